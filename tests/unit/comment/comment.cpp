// SPDX-License-Identifier: GPL-2.0-or-later
#include "comment/comment.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Outcome = Merged::Outcome;

JobSummary share_of(const std::string& node) {
  return {.nodes = {node},
          .lease = 1500ms,
          .waited = 250ms,
          .overuse = 1ms,
          .handoffs = 3,
          .restored = 10,
          .evicted = 20,
          .footprint = 30,
          .resident = 25,
          .backends = {"swap"},
          .gpus = {"NVIDIA H200"},
          .gpu_losses = {}};
}

std::string with(const std::string& comment, const std::string& node) {
  const Merged merged = add_share(comment, share_of(node));
  REQUIRE(merged.outcome == Outcome::changed);
  return merged.text;
}

TEST_CASE("A summary is read as it was written") {
  JobSummary summary = share_of("gpu1");
  summary.gpus.insert("a \"model\" of ' \\ \xc3\xa9 and more");
  summary.evicted = UINT64_MAX;
  CHECK(parse_summary(format_summary(summary)) == summary);
  // The JSON that programs of sites read.
  CHECK(format_summary(share_of("gpu1")) ==
        R"({"version":1,"nodes":["gpu1"],"lease_seconds":1.5,"waiting_seconds":0.25,"overuse_seconds":0.001,)"
        R"("handoffs":3,"restored_bytes":10,"evicted_bytes":20,"peak_footprint_bytes":30,)"
        R"("peak_resident_bytes":25,"backends":["swap"],"gpus":["NVIDIA H200"]})");
}

TEST_CASE("A summary names the GPUs that were lost, of all nodes, and only where there are any") {
  JobSummary share = share_of("gpu2");
  share.gpu_losses = {{.node = "gpu2", .gpu = "GPU-2", .reason = "Xid 79"}};
  CHECK(parse_summary(format_summary(share)) == share);
  const std::string text = format_summary(share);
  CHECK(text.ends_with(R"(,"gpu_losses":[{"node":"gpu2","gpu":"GPU-2","reason":"Xid 79"}]})"));
  JobSummary other = share_of("gpu1");
  other.gpu_losses = {{.node = "gpu1", .gpu = "GPU-1", .reason = "lost to its driver"}};
  const auto both = find_summary(add_share(add_share(with("", "gpu3"), share).text, other).text);
  REQUIRE(both);
  CHECK(both->gpu_losses.size() == 2);
  CHECK(both->gpu_losses.begin()->node == "gpu1");
  CHECK(format_summary(share_of("gpu1")).find("gpu_losses") == std::string::npos);
}

TEST_CASE("A text of another version is no summary") {
  const std::string good = format_summary(share_of("n"));
  auto changed = [&](const char* name, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(good);
    json[name] = value;
    return json.dump();
  };
  CHECK(parse_summary(good));
  CHECK_FALSE(parse_summary(changed("version", 2)));
  CHECK_FALSE(parse_summary(changed("nodes", "n")));
  CHECK_FALSE(parse_summary(changed("nodes", {1})));
  CHECK_FALSE(parse_summary(changed("lease_seconds", -1)));
  CHECK_FALSE(parse_summary(changed("lease_seconds", 1e300)));
  CHECK_FALSE(parse_summary(changed("handoffs", -1)));
  CHECK_FALSE(parse_summary(changed("gpu_losses", 1)));
  CHECK_FALSE(parse_summary(changed("gpu_losses", {1})));
  CHECK_FALSE(parse_summary(changed("gpu_losses", {{{"node", "n"}, {"gpu", "g"}}})));
  CHECK_FALSE(parse_summary("{}"));
  CHECK_FALSE(parse_summary(""));
  CHECK_FALSE(parse_summary("7"));
}

TEST_CASE("Text of other programs in a comment stays as it is") {
  const std::string ours = "\"sharedgpu\":" + format_summary(share_of("n"));
  for (const auto& [before, after] : std::vector<std::pair<std::string, std::string>>{
           {"", "{" + ours + "}"},
           {"  ", "  {" + ours + "}"},
           {"charged to o'neill, 50% \\", "charged to o'neill, 50% \\ {" + ours + "}"},
           {"{}", "{" + ours + "}"},
           {" { } ", " { " + ours + "} "},
           {R"({"power": 1.50, "x":{"sharedgpu":1}, "power":2})",
            R"({"power": 1.50, "x":{"sharedgpu":1}, "power":2)" + ("," + ours) + "}"},
           {R"(["sharedgpu"])", R"(["sharedgpu"] {)" + ours + "}"},
           {R"("sharedgpu")", R"("sharedgpu" {)" + ours + "}"},
           {R"({"half": )", R"({"half":  {)" + ours + "}"},
           {R"(note {"sharedgpu":{}})", R"(note {"sharedgpu":{}} {)" + ours + "}"},
           {R"(note {"sharedgpu":)", R"(note {"sharedgpu": {)" + ours + "}"},
       }) {
    INFO(before);
    CHECK(with(before, "n") == after);
    CHECK(find_summary(after) == share_of("n"));
    CHECK(add_share(after, share_of("n")).outcome == Outcome::complete);
  }
}

TEST_CASE("Our summary is found even if the site has added text to it") {
  const std::string first = with("before", "n1");
  const std::string both = with(first + " after {", "n2");
  CHECK(both.starts_with("before {"));
  CHECK(both.ends_with("} after {"));
  CHECK(find_summary(both)->nodes == std::set<std::string>{"n1", "n2"});
}

TEST_CASE("A value under the name sharedgpu that is not a summary is left alone") {
  for (const char* comment : {R"({"sharedgpu":5})", R"({"sharedgpu":{"version":2,"new":1}})",
                              R"(note {"sharedgpu":{"version":2}})"})
    CHECK(add_share(comment, share_of("n")).outcome == Outcome::refused);
  CHECK(add_share(std::string(60'000, 'x'), share_of("n")).outcome == Outcome::refused);
}

TEST_CASE("An object with a zero byte behind it is text") {
  using namespace std::string_literals;
  const std::string once = with("{ }\0 and more}"s, "gpu1");
  CHECK(add_share(once, share_of("gpu1")).outcome == Outcome::complete);
}

TEST_CASE("The shares of the nodes are added, and each node counts once") {
  std::string comment = "{\"site\": true}";
  for (const char* node : {"n1", "n2", "n3"}) comment = with(comment, node);
  for (const char* node : {"n3", "n1", "n2"})
    CHECK(add_share(comment, share_of(node)).outcome == Outcome::complete);
  const JobSummary sum = *find_summary(comment);
  CHECK(sum.lease == 4500ms);
  CHECK(sum.waited == 750ms);
  CHECK(sum.overuse == 3ms);
  CHECK(sum.handoffs == 9);
  CHECK(sum.restored == 30);
  CHECK(sum.evicted == 60);
  CHECK(sum.footprint == 30);  // the largest value of any node
  CHECK(sum.resident == 25);
  CHECK(sum.backends == std::set<std::string>{"swap"});
  CHECK(sum.gpus == std::set<std::string>{"NVIDIA H200"});
}

TEST_CASE("An end belongs to the run that it overlaps most") {
  const std::vector<Span> runs = {{.begin = 100, .end = 200}, {.begin = 210, .end = 300}, {.begin = 400}};
  CHECK(run_of(runs, {.begin = 120, .end = 205}) == 0);
  CHECK(run_of(runs, {.begin = 190, .end = 290}) == 1);  // the clock of this node is slow
  CHECK(run_of(runs, {.begin = 405, .end = 500}) == 2);
  CHECK(run_of(runs, {.begin = 150, .end = 150}) == 0);  // the end of the run is not known
  CHECK(run_of(runs, {.begin = 320, .end = 330}) == 1);  // the nearest run
  CHECK_FALSE(run_of({}, {.begin = 1, .end = 2}));
}

TEST_CASE("A summary is in AdminComment, but never in one of jobstats") {
  const std::string ours = with("", "gpu1");
  const auto field = [](std::string_view admin, std::string_view system) {
    return std::pair(field_for(admin, system, CommentField::admin),
                     field_for(admin, system, CommentField::system));
  };
  const std::pair preferred(CommentField::admin, CommentField::system);
  const std::pair admin(CommentField::admin, CommentField::admin);
  const std::pair system(CommentField::system, CommentField::system);
  CHECK(field("", "") == preferred);
  CHECK(field("paid", "burst buffer") == preferred);
  CHECK(field("see JS1:", "") == preferred);
  for (const char* jobstats : {"JS1:H4sIADelIWcC/1WN", "JS1:Short", "JS1:None", "JS1:"}) {
    CHECK(field(jobstats, "") == system);
    CHECK(field(jobstats, ours) == system);
    CHECK(field(jobstats + ours, "") == system);
  }
  // A summary stays in its field, even if the nodes of a job have different settings.
  CHECK(field(ours, "") == admin);
  CHECK(field("", ours) == system);
}

}  // namespace
}  // namespace sharedgpu
