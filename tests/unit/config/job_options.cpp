// SPDX-License-Identifier: Apache-2.0
#include "config/job_options.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

std::size_t number_of(std::string_view name) {
  for (std::size_t i = 0; i < kOptions.size(); ++i)
    if (name == kOptions[i].name) return i;
  FAIL("no option " << name);
  return 0;
}

JobOptions good(const char* name, const char* value) {
  GivenOptions given;
  CHECK(set_option(given, number_of(name), value).empty());
  CHECK(given.texts[number_of(name)] == value);
  return given.job;
}

// Returns the message about a wrong value. Checks that the message names the option and the value, and that
// no option was changed.
std::string bad(const char* name, const std::string& value) {
  GivenOptions given;
  JobOptions& options = given.job;
  options = {.memory = {1}, .share_request = 2, .share_limit = 3, .priority = 4, .deadline = Nanoseconds(5)};
  std::string message = set_option(given, number_of(name), value);
  CHECK(message.find(std::string("--sharedgpu-") + name + ": '" + value + "' is not ") == 0);
  CHECK(given.texts[number_of(name)].empty());
  CHECK(options.memory == Bytes{1});
  CHECK(options.share_request == 2);
  CHECK(options.share_limit == 3);
  CHECK(options.priority == 4);
  CHECK(options.deadline == Nanoseconds(5));
  CHECK(options.backend_given == 0);
  return message;
}

}  // namespace

TEST_CASE("every option has a name, a value and help") {
  for (const OptionInfo& option : kOptions) {
    CHECK(std::string(option.name) != "");
    CHECK(std::string(option.run_help) != "");
    CHECK(std::string(option.value) != "");
    CHECK(std::string(option.help) != "");
  }
}

TEST_CASE("option --sharedgpu-memory") {
  CHECK(good("memory", "8GiB").memory == gibibytes(8));
  CHECK(good("memory", "512M").memory == mebibytes(512));
  CHECK(good("memory", "1.5g").memory == mebibytes(1536));
  for (const char* value : {"", "8", "0G", "-1G", "12 parsecs", "G", "8GiB ", "1e400G", "99999999999T"})
    bad("memory", value);
  CHECK(bad("memory", "8") == "--sharedgpu-memory: '8' is not a size with a unit (such as 512M or 8GiB)");
}

TEST_CASE("option --sharedgpu-share") {
  JobOptions options = good("share", "25");
  CHECK(options.share_request == 25);
  CHECK(options.share_limit == 0);
  options = good("share", "25%:100%");
  CHECK(options.share_request == 25);
  CHECK(options.share_limit == 100);
  CHECK(good("share", "50:50").share_limit == 50);
  for (const char* value :
       {"", "0", "101", "-5", "25:", ":50", "25:50:75", "25:0", "a", "25 ", "50:20", "4294967297"})
    bad("share", value);
}

TEST_CASE("option --sharedgpu-priority") {
  CHECK(good("priority", "7").priority == 7);
  CHECK(good("priority", "-1000").priority == -1000);
  for (const char* value : {"", "high", "1001", "-1001", "1.5", "7 ", "99999999999"}) bad("priority", value);
}

TEST_CASE("option --sharedgpu-deadline") {
  using namespace std::chrono;
  CHECK(good("deadline", "90s").deadline == seconds(90));
  CHECK(good("deadline", "2h").deadline == hours(2));
  CHECK(good("deadline", "1:30").deadline == seconds(90));
  CHECK(good("deadline", "01:30:00").deadline == minutes(90));
  CHECK(good("deadline", "2-01:00:00").deadline == hours(49));
  CHECK(good("deadline", "100:00:00").deadline == hours(100));
  for (const char* value : {"", "90", "0s", "0:00", "1:99", "1:99:00", "1:2:3:4", "1-2", "1-2:3", "-1:00:00",
                            "soon", "1:", ":1", "99999-00:00:00", "99999999:00:00"})
    bad("deadline", value);
}

TEST_CASE("option --sharedgpu-summary") {
  GivenOptions given;
  CHECK_FALSE(given.summary);
  CHECK(set_option(given, number_of("summary"), "yes").empty());
  CHECK(given.summary == std::optional(true));
  CHECK(set_option(given, number_of("summary"), "no").empty());
  CHECK(given.summary == std::optional(false));
  for (const char* value : {"", "Yes", "1", "yes "}) bad("summary", value);
}

TEST_CASE("option --sharedgpu-backend") {
  for (auto [name, backend] : {std::pair{"swap", Backend::swap}, std::pair{"managed", Backend::managed},
                               std::pair{"native", Backend::native}}) {
    JobOptions options = good("backend", name);
    CHECK(options.backend == backend);
    CHECK(options.backend_given == 1);
  }
  for (const char* value : {"", "Swap", "swap ", "turbo"}) bad("backend", value);
}

TEST_CASE("option --sharedgpu-gpus") {
  CHECK(good("gpus", "1").gpus == 1);
  CHECK(good("gpus", "12").gpus == 12);
  for (const char* value : {"0", "13", "-1", "2x", "", "1,2", "99999999999"})
    CHECK(bad("gpus", value).find("a number from 1 to 12") != std::string::npos);
}
