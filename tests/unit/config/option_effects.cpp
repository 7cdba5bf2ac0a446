// SPDX-License-Identifier: Apache-2.0
#include "config/option_effects.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using Lines = std::vector<std::string>;

struct Given {
  JobOption option;
  const char* value;
};

GivenOptions options(std::initializer_list<Given> values, const char* prefix = kSlurmPrefix) {
  GivenOptions given{.prefix = prefix, .job = {}, .texts = {}};
  for (const Given& each : values)
    REQUIRE(set_option(given, static_cast<std::size_t>(each.option), each.value).empty());
  return given;
}

Submission submission(std::optional<bool> has_units) {
  Submission result;
  result.has_units = has_units;
  return result;
}

Lines told(std::initializer_list<Given> values, const char* conf, const Submission& how = submission(true)) {
  Settings settings;
  REQUIRE(parse_settings(conf, "conf", settings) == "");
  const char* prefix = how.is_run ? kRunPrefix : kSlurmPrefix;
  return missing_effects(options(values, prefix), how, &settings);
}

const Submission kRun = {.is_run = true,
                         .is_later_step = false,
                         .lacks_last_step = false,
                         .has_units = true,
                         .partition = "",
                         .qos = ""};

TEST_CASE("an option of a job without units has no effect") {
  const GivenOptions given = options({{JobOption::memory, "8GiB"}, {JobOption::gpus, "2"}});
  CHECK(missing_effects(given, submission(false), nullptr) ==
        Lines{"--sharedgpu-memory=8GiB has no effect: the job requests no units (--gres=sharedgpu:1)",
              "--sharedgpu-gpus=2 has no effect: the job requests no units (--gres=sharedgpu:1)"});
  CHECK(missing_effects(given, submission(true), nullptr).empty());
  CHECK(missing_effects(given, submission(std::nullopt), nullptr).empty());
  CHECK(missing_effects(options({}), submission(false), nullptr).empty());
}

TEST_CASE("a later step of a batch job cannot change the backend") {
  Submission step = submission(std::nullopt);
  step.is_later_step = true;
  CHECK(missing_effects(options({{JobOption::backend, "native"}, {JobOption::gpus, "2"}}), step, nullptr) ==
        Lines{"--sharedgpu-backend=native has no effect: all processes of a batch job have the backend that "
              "sbatch "
              "states"});
}

TEST_CASE("a salloc without interactive step has no summary") {
  Submission salloc = submission(true);
  salloc.lacks_last_step = true;
  const GivenOptions wanted = options({{JobOption::summary, "yes"}});
  CHECK(missing_effects(wanted, salloc, nullptr) ==
        Lines{"--sharedgpu-summary=yes has no effect: in a salloc, only an interactive step ends with the "
              "line, and LaunchParameters in slurm.conf lacks use_interactive_step"});
  CHECK(missing_effects(options({{JobOption::summary, "no"}}), salloc, nullptr).empty());
  CHECK(missing_effects(wanted, submission(true), nullptr).empty());
}

TEST_CASE("no line is written without the site's settings, or about options that are not given") {
  const GivenOptions all =
      options({{JobOption::share, "25"}, {JobOption::priority, "5"}, {JobOption::deadline, "1s"}});
  CHECK(missing_effects(all, submission(true), nullptr).empty());
  CHECK(told({}, "Policy=round-robin\n").empty());
  CHECK(told({{JobOption::memory, "1G"}, {JobOption::backend, "native"}, {JobOption::gpus, "2"}},
             "Policy=round-robin\n")
            .empty());
}

TEST_CASE("an option has an effect under the policies that use it") {
  struct Row {
    Given given;
    std::vector<std::string_view> serving;
  };
  for (const Row& row : {Row{{JobOption::share, "25"}, {"elastic", "deadline"}},
                         Row{{JobOption::priority, "-5"}, {"priority", "deadline"}},
                         Row{{JobOption::deadline, "1s"}, {"deadline"}}})
    for (const std::string_view policy : kPolicies) {
      const bool serves = std::find(row.serving.begin(), row.serving.end(), policy) != row.serving.end();
      CAPTURE(policy, row.given.value);
      CHECK(told({row.given}, ("Policy=" + std::string(policy)).c_str()).empty() == serves);
    }
}

TEST_CASE("the line names option, value, reason and what would have an effect") {
  CHECK(told({{JobOption::share, "25:50%"}}, "Policy=round-robin\n") ==
        Lines{"--sharedgpu-share=25:50% has no effect here: shares count under Policy=elastic or deadline, "
              "not under "
              "round-robin"});
  CHECK(told({{JobOption::deadline, "33ms"}}, "Policy=fcfs\n[gpu 0]\nPolicy=credit\n", kRun) ==
        Lines{"--deadline=33ms has no effect here: deadlines count under Policy=deadline, not under fcfs and "
              "credit"});
  CHECK(told({{JobOption::share, "80:90"}}, "Policy=elastic\nMaxRequest=62.5%\n") ==
        Lines{"--sharedgpu-share=80:90 requests more than MaxRequest=62.5%: it counts as 62.5"});
  CHECK(told({{JobOption::priority, "50"}}, "Policy=priority\nMaxPriority=10\n") ==
        Lines{"--sharedgpu-priority=50 is above MaxPriority=10: it counts as 10"});
}

TEST_CASE("a run can only lower its priority") {
  constexpr char kConf[] = "Policy=priority\nMaxPriority=10\n";
  CHECK(told({{JobOption::priority, "5"}}, kConf).empty());
  CHECK(told({{JobOption::priority, "5"}}, kConf, kRun) ==
        Lines{"--priority=5 is above 0, the highest of a run: it counts as 0"});
  CHECK(told({{JobOption::priority, "-5"}}, kConf, kRun).empty());
}

TEST_CASE("a limit bounds the threads of MPS under every policy") {
  CHECK(told({{JobOption::share, "25:50"}}, "Mps=yes\n").empty());
  CHECK(told({{JobOption::share, "25"}}, "Mps=yes\n").size() == 1);
}

TEST_CASE("an option has an effect if a section that may apply gives it one") {
  const auto lines = [](Given given, const char* conf, std::optional<std::string> partition,
                        std::optional<std::string> qos) {
    return told({given}, conf,
                {.is_run = false,
                 .is_later_step = false,
                 .lacks_last_step = false,
                 .has_units = true,
                 .partition = partition,
                 .qos = qos})
        .size();
  };
  constexpr Given kShare = {JobOption::share, "25"};
  constexpr char kPolicyOfLong[] = "[partition long]\nPolicy=elastic\n";
  CHECK(lines(kShare, kPolicyOfLong, std::nullopt, std::nullopt) == 0);
  CHECK(lines(kShare, kPolicyOfLong, "long", std::nullopt) == 0);
  CHECK(lines(kShare, kPolicyOfLong, "short", std::nullopt) == 1);
  CHECK(lines(kShare, "[gpu 3]\nPolicy=elastic\n", "short", "low") == 0);
  // A GPU that jobs of several partitions use follows the node's policy.
  CHECK(lines(kShare, "Policy=elastic\n[partition long]\nPolicy=fcfs\n", "long", "low") == 0);

  constexpr Given kPriority = {JobOption::priority, "50"};
  constexpr char kUrgent[] = "Policy=priority\n[qos urgent]\nMaxPriority=100\n";
  CHECK(lines(kPriority, kUrgent, "long", std::nullopt) == 0);
  CHECK(lines(kPriority, kUrgent, "long", "urgent") == 0);
  CHECK(lines(kPriority, kUrgent, "long", "low") == 1);
  constexpr char kLower[] = "Policy=priority\nMaxPriority=100\n[partition long]\nMaxPriority=0\n";
  CHECK(lines(kPriority, kLower, "long", "low") == 1);
  CHECK(lines(kPriority, kLower, "short", "low") == 0);
}

}  // namespace
}  // namespace sharedgpu
