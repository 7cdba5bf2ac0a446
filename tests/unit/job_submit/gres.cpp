// SPDX-License-Identifier: GPL-2.0-or-later
#include <catch2/catch.hpp>
#include <string>

#include "job_submit/gres.h"

using namespace sharedgpu::job_submit;

namespace {

// Returns the counts in the order of the text, for example "2 a100:1". A count without a type is a bare
// number.
std::string read(std::string_view text) {
  std::string result;
  for (const TypedCount& count : counts_of(text, "sharedgpu"))
    result += (result.empty() ? "" : " ") + (count.type.empty() ? "" : std::string(count.type) + ":") +
              std::to_string(count.count);
  return result;
}

}  // namespace

TEST_CASE("Counts of a GRES are read as the releases of Slurm write them") {
  CHECK(read("gres:sharedgpu:2") == "2");
  CHECK(read("gres/sharedgpu:2") == "2");
  CHECK(read("gres/sharedgpu=2") == "2");
  CHECK(read("sharedgpu:2") == "2");
  CHECK(read("cpu=4,gres/sharedgpu=2,license/iop1=1") == "2");
  CHECK(read("gres:gpu:1,gres:sharedgpu:a100:3") == "a100:3");
  CHECK(read("gres/sharedgpu:a100=3") == "a100:3");
  CHECK(read("gpu:a100:4(S:0-1),sharedgpu:h200:8(S:0)") == "h200:8");
  CHECK(read("sharedgpu:no_consume:8") == "8");
  CHECK(read("gres:sharedgpu:1K") == "1024");
}

TEST_CASE("A count that is left out is one") {
  CHECK(read("gres:sharedgpu") == "1");
  CHECK(read("gres:sharedgpu:a100") == "a100:1");
  CHECK(read("gres:sharedgpu:1g.10gb") == "1g.10gb:1");
}

TEST_CASE("Other GRES, no units and what Slurm does not understand count as nothing") {
  for (const char* text : {"", "gres:gpu:2", "gres:sharedgpus:2", "gres:my_sharedgpu:2",
                           "license/sharedgpu:2", "gres:sharedgpu:0", "gres:sharedgpu:a100:0",
                           "gres:sharedgpu:a100:x", ",", ":", "gres:sharedgpu:a100:"})
    CHECK(read(text).empty());
}

TEST_CASE("Counts of one type add up, and typed units are part of the untyped") {
  CHECK(read("sharedgpu:2,sharedgpu:3") == "5");
  CHECK(read("sharedgpu:a100:2,sharedgpu:A100:3") == "a100:5");
  CHECK(read("sharedgpu:3,sharedgpu:a100:2") == "1 a100:2");
  CHECK(read("sharedgpu:2,sharedgpu:a100:2") == "a100:2");
  CHECK(read("sharedgpu:1,sharedgpu:a100:2") == "a100:2");
}

TEST_CASE("Absurd counts stay in range") {
  const auto most = std::to_string(kLargestCount);
  CHECK(read("sharedgpu:99999999999") == most);
  CHECK(read("sharedgpu:9000P") == most);
  CHECK(read("sharedgpu:99999999999,sharedgpu:99999999999") == most);
  CHECK(read("sharedgpu:99999999999999999999999").empty() == false);  // Slurm takes this text for a type
}

TEST_CASE("The length of a text and the number of types are limited") {
  std::string types = "sharedgpu:1";
  for (std::size_t i = 1; i < kMostTypes; ++i) types += ",sharedgpu:t" + std::to_string(i) + ":1";
  CHECK(counts_of(types, "sharedgpu").size() == kMostTypes - 1);  // the units with a type include the unit
                                                                  // without a type
  types += ",sharedgpu:one:1,sharedgpu:t1:5";
  CHECK(counts_of(types, "sharedgpu").size() == kMostTypes - 1);
  CHECK(sum(counts_of(types, "sharedgpu")) == kMostTypes - 1 + 5);
  const std::string most = "sharedgpu:2," + std::string(kLongestText - 12, ',');
  CHECK(sum(counts_of(most, "sharedgpu")) == 2);
  CHECK(counts_of(most + ",", "sharedgpu").empty());
}

TEST_CASE("A node must have the units that a request names") {
  const auto has = [](std::string_view offer, std::string_view request) {
    return has_all(counts_of(offer, "sharedgpu"), counts_of(request, "sharedgpu"));
  };
  CHECK(has("sharedgpu:8", "sharedgpu:8"));
  CHECK_FALSE(has("sharedgpu:8", "sharedgpu:9"));
  CHECK(has("sharedgpu:a100:4,sharedgpu:h100:4", "sharedgpu:8"));
  CHECK(has("sharedgpu:a100:4,sharedgpu:h100:4", "sharedgpu:A100:4"));
  CHECK_FALSE(has("sharedgpu:a100:4,sharedgpu:h100:4", "sharedgpu:a100:5"));
  CHECK_FALSE(has("sharedgpu:8", "sharedgpu:a100:1"));
  CHECK_FALSE(has("gpu:8", "sharedgpu:1"));
}
