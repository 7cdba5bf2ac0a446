// SPDX-License-Identifier: Apache-2.0
// simulate: what the arbiter's core makes of programs on one GPU under each policy, in virtual time. Prints a
// table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <random>

#include "bench/simulator/trace.h"
#include "config/settings.h"

namespace sharedgpu {
namespace {

struct Arguments {
  std::vector<std::string> policies;
  std::string trace;
  unsigned tenants = 8;
  double seconds = 3600;
  double quantum = 0;
  double max_wait = 30;
  double memory_gib = 80;
  double bus = 50;
  std::uint64_t seed = 1;
  bool each = false;
  std::string timeline;
};

double in_seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// Half of them always work, the others in bursts.
std::vector<Program> any_programs(const Arguments& arguments) {
  std::mt19937_64 random(arguments.seed);
  const auto between = [&](unsigned least, unsigned most) {
    return least + static_cast<unsigned>(random() % (most - least + 1));
  };
  std::vector<Program> programs(arguments.tenants);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    programs[i].size = between(20, 95);
    programs[i].claims.units = between(1, 8);
    if (i % 2 == 0) continue;
    programs[i].burst = std::chrono::milliseconds(between(50, 5000));
    programs[i].pause = std::chrono::milliseconds(between(500, 20000));
  }
  return programs;
}

void print_head() {
  std::printf("%-15s %9s %9s %7s %8s %11s %12s %12s %10s\n", "POLICY", "TIME_S", "ENDED", "LOST", "TURNS",
              "MEAN_WAIT_S", "LONGEST_S", "MEAN_TOOK_S", "EVENTS/S");
}

constexpr int kStepsASecond = 50;

// A line for each program: what it may have now, and what came of its deadlines so far.
void write_moment(std::ofstream& timeline, const Stage& stage, std::size_t programs) {
  if (stage.measured() <= std::chrono::milliseconds(1000 / kStepsASecond))
    timeline << "time_s,program,part,lease_s,response_s,met,missed\n";
  for (std::size_t i = 0; i < programs; ++i) {
    const Stage::Seen seen = stage.seen(i);
    timeline << in_seconds(stage.measured()) << ',' << i + 1 << ',' << stage.part(i) << ','
             << in_seconds(seen.lease) << ',' << in_seconds(seen.response) << ',' << seen.met << ','
             << seen.missed << '\n';
  }
}

void simulate(const Arguments& arguments, const std::string& policy, const std::vector<Program>& programs) {
  TurnRules turns;
  turns.fixed = Nanoseconds(static_cast<Nanoseconds::rep>(arguments.quantum * 1e9));
  turns.max_wait = Nanoseconds(static_cast<Nanoseconds::rep>(arguments.max_wait * 1e9));
  // The stage counts in hundredths of the GPU's memory.
  const double per_hundredth = arguments.memory_gib * 1.073741824e9 / 100 / (arguments.bus * 1e9);
  std::ofstream timeline;
  if (!arguments.timeline.empty()) timeline.open(arguments.timeline + "." + policy + ".csv");
  Stage stage(arguments.seed, turns, Nanoseconds(static_cast<Nanoseconds::rep>(per_hundredth * 1e9)),
              programs, policy);
  const auto begun = std::chrono::steady_clock::now();
  for (double left = arguments.seconds; left > 0 && !stage.all_ended(); left -= 1) {
    if (!timeline.is_open()) stage.run(std::chrono::seconds(1));
    for (int step = 0; step < kStepsASecond && timeline.is_open(); ++step) {
      stage.run(std::chrono::milliseconds(1000 / kStepsASecond));
      write_moment(timeline, stage, programs.size());
    }
  }
  const double real = in_seconds(std::chrono::steady_clock::now() - begun);

  unsigned turns_seen = 0;
  std::vector<double> waits;
  std::vector<double> took;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const Stage::Seen seen = stage.seen(i);
    turns_seen += seen.turns;
    for (const Nanoseconds wait : seen.waits) waits.push_back(in_seconds(wait));
    if (seen.took) took.push_back(in_seconds(*seen.took));
  }
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
  };
  std::printf("%-15s %9.0f %4zu/%-4zu %6.2f%% %8u %11.3f %12.3f %12.3f %10.0f\n", policy.c_str(),
              in_seconds(stage.measured()), took.size(), programs.size(),
              100 * in_seconds(stage.lost()) / in_seconds(stage.measured()), turns_seen, mean(waits),
              waits.empty() ? 0 : *std::max_element(waits.begin(), waits.end()), mean(took),
              static_cast<double>(stage.events()) / real);
  if (!arguments.each) return;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const Stage::Seen seen = stage.seen(i);
    const double share = 100 * in_seconds(seen.lease) / in_seconds(stage.measured());
    std::printf("  program %-5zu size %3u%%, units %u, priority %d: lease %.1f s (%.2f%%), turns %u", i + 1,
                programs[i].size, programs[i].claims.units, programs[i].claims.priority,
                in_seconds(seen.lease), share, seen.turns);
    if (seen.met + seen.missed > 0) std::printf(", deadlines met %u, missed %u", seen.met, seen.missed);
    std::printf("\n");
  }
}

int run(const Arguments& arguments) {
  std::vector<Program> programs;
  if (arguments.trace.empty()) {
    programs = any_programs(arguments);
  } else {
    std::ifstream file(arguments.trace);
    const std::string error =
        file ? read_trace(file, arguments.trace, programs) : arguments.trace + ": cannot be read";
    if (!error.empty()) {
      std::cerr << "simulate: " << error << '\n';
      return 2;
    }
  }
  std::vector<std::string> policies = arguments.policies;
  if (policies.empty()) policies.assign(std::begin(kPolicies), std::end(kPolicies));
  for (const std::string& policy : policies)
    if (make_policy(policy) == nullptr) {
      std::cerr << "simulate: no policy '" << policy << "'\n";
      return 2;
    }
  print_head();
  for (const std::string& policy : policies) simulate(arguments, policy, programs);
  return 0;
}

}  // namespace
}  // namespace sharedgpu

int main(int argc, char** argv) {
  sharedgpu::Arguments arguments;
  CLI::App app("What the arbiter makes of programs on one GPU, in virtual time.", "simulate");
  app.add_option("--policy", arguments.policies, "One or several (default: all)")->type_name("NAME");
  app.add_option("--trace", arguments.trace, "Programs as CSV; bench/simulator/trace.h has the columns")
      ->type_name("FILE");
  app.add_option("--tenants", arguments.tenants, "Without a trace: so many random programs (default 8)")
      ->check(CLI::Range(1, 10000));
  app.add_option("--time", arguments.seconds, "The longest to simulate, in seconds (default 3600)")
      ->check(CLI::Range(1.0, 1e8));
  app.add_option("--quantum", arguments.quantum, "Quantum, in seconds (default 0: auto)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--max-wait", arguments.max_wait, "MaxWait, in seconds (default 30)")
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--memory", arguments.memory_gib, "Of the GPU, in GiB (default 80)")
      ->check(CLI::Range(0.1, 1e4));
  app.add_option("--bus", arguments.bus, "What handoffs move, in GB/s each way (default 50)")
      ->check(CLI::Range(0.1, 1e4));
  app.add_option("--seed", arguments.seed, "Of the random programs and delays (default 1)");
  app.add_option("--timeline", arguments.timeline,
                 "Writes FILE.POLICY.csv: what each program may have, and its deadlines, 50 times a second")
      ->type_name("FILE");
  app.add_flag("--each", arguments.each, "A line for each program as well");
  CLI11_PARSE(app, argc, argv);
  return sharedgpu::run(arguments);
}
