// SPDX-License-Identifier: Apache-2.0
// simulate: runs the arbiter's core in virtual time, under one or several policies, for programs on one GPU
// or on many independent GPUs. Prints a table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <stdexcept>
#include <thread>

#include "arbiter/policy/registry.h"
#include "bench/simulator/ledger_trace.h"
#include "bench/simulator/plot.h"
#include "bench/simulator/trace.h"
#include "config/settings.h"

namespace sharedgpu {
namespace {

struct Arguments {
  std::vector<std::string> policies;
  std::string trace;
  std::string ledger;
  unsigned nodes = 1;
  unsigned threads = std::max(std::thread::hardware_concurrency(), 1u);
  unsigned tenants = 8;
  double seconds = 3600;
  double quantum = 0;
  double max_wait = 30;
  double memory_gib = 80;
  double bus = 50;
  std::uint64_t seed = 1;
  bool each = false;
  std::string timeline;
  std::string plot;
};

// Independent nodes, each with one GPU.
struct Nodes {
  unsigned count = 0;
  std::function<std::vector<Program>(unsigned node)> programs;
};

double in_seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// Returns random programs: half of them always have work, the others have bursts of work.
std::vector<Program> any_programs(const Arguments& arguments, unsigned node) {
  std::mt19937_64 random(arguments.seed + node);
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

constexpr Nanoseconds kStep = std::chrono::milliseconds(20);

// Writes a line for each program: the time, the current limit, the lease time, the last response time, and
// the deadlines met and missed so far.
void write_moment(std::ofstream& timeline, const Stage& stage, std::size_t programs) {
  if (stage.measured() <= kStep) timeline << "time_s,program,part,lease_s,response_s,met,missed\n";
  for (std::size_t i = 0; i < programs; ++i) {
    const Stage::Seen seen = stage.seen(i);
    timeline << in_seconds(stage.measured()) << ',' << i + 1 << ',' << stage.part(i) << ','
             << in_seconds(seen.lease) << ',' << in_seconds(seen.response) << ',' << seen.met << ','
             << seen.missed << '\n';
  }
}

void plot_moment(Plot& plot, const Stage& stage, std::size_t programs) {
  if (!plot.wants(stage.measured())) return;
  std::vector<Plot::Point> points;
  for (std::size_t i = 0; i < programs; ++i) {
    const Stage::Seen seen = stage.seen(i);
    points.push_back({.lease = seen.lease, .part = stage.part(i), .missed = seen.missed});
  }
  plot.add(stage.measured(), std::move(points));
}

// The results of the programs of one node or of several nodes.
struct Outcome {
  Nanoseconds longest{};   // longest virtual time of a node
  Nanoseconds measured{};  // the measured time, summed over nodes
  Nanoseconds lost{};
  std::uint64_t events = 0;
  std::uint64_t turns = 0;
  std::size_t programs = 0;
  std::string each = {};  // text with a line for each program
  struct Mean {
    double sum = 0;
    double most = 0;
    std::size_t count = 0;
    void add(Nanoseconds one) {
      sum += in_seconds(one);
      most = std::max(most, in_seconds(one));
      ++count;
    }
    void add(const Mean& more) {
      sum += more.sum;
      most = std::max(most, more.most);
      count += more.count;
    }
    double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  };
  Mean waits = {};
  Mean took = {};

  void add(const Outcome& more) {
    longest = std::max(longest, more.longest);
    measured += more.measured;
    lost += more.lost;
    events += more.events;
    turns += more.turns;
    programs += more.programs;
    waits.add(more.waits);
    took.add(more.took);
  }
};

void describe_each(const Stage& stage, const std::vector<Program>& programs, std::string& text) {
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const Stage::Seen seen = stage.seen(i);
    const double share = 100 * in_seconds(seen.lease) / in_seconds(stage.measured());
    char line[256];
    std::snprintf(line, sizeof line,
                  "  program %-5zu size %3u%%, units %u, priority %d: lease %.1f s (%.2f%%), turns %u", i + 1,
                  programs[i].size, programs[i].claims.units, programs[i].claims.priority,
                  in_seconds(seen.lease), share, seen.turns);
    text += line;
    if (seen.met + seen.missed > 0)
      text += ", deadlines met " + std::to_string(seen.met) + ", missed " + std::to_string(seen.missed);
    text += '\n';
  }
}

// Output files for one node's timeline and plot; empty if not wanted.
struct Files {
  std::string timeline;
  std::string plot;
};

std::ofstream open_to_write(const std::string& path) {
  std::ofstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be written");
  return file;
}

void close(std::ofstream& file, const std::string& path) {
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

// Throws std::runtime_error if a file cannot be written.
Outcome simulate_node(const Arguments& arguments, const std::string& policy, unsigned node,
                      const std::vector<Program>& programs, const Files& files) {
  TurnRules turns;
  turns.fixed = Nanoseconds(static_cast<Nanoseconds::rep>(arguments.quantum * 1e9));
  turns.max_wait = Nanoseconds(static_cast<Nanoseconds::rep>(arguments.max_wait * 1e9));
  // In Stage, sizes are hundredths of the GPU's memory.
  const double per_hundredth = arguments.memory_gib * 1.073741824e9 / 100 / (arguments.bus * 1e9);
  std::ofstream timeline;
  std::ofstream drawing;
  if (!files.timeline.empty()) timeline = open_to_write(files.timeline);
  if (!files.plot.empty()) drawing = open_to_write(files.plot);
  const bool watched = timeline.is_open() || drawing.is_open();
  const Nanoseconds length(static_cast<Nanoseconds::rep>(arguments.seconds * 1e9));
  Plot plot(length);
  Stage stage(arguments.seed + node, turns, Nanoseconds(static_cast<Nanoseconds::rep>(per_hundredth * 1e9)),
              programs, policy);
  for (Nanoseconds left = length; left > Nanoseconds{} && !stage.all_ended();) {
    const Nanoseconds step = std::min(left, watched ? kStep : std::chrono::seconds(1));
    stage.run(step);
    left -= step;
    if (timeline.is_open()) write_moment(timeline, stage, programs.size());
    if (drawing.is_open()) plot_moment(plot, stage, programs.size());
  }
  if (timeline.is_open()) close(timeline, files.timeline);
  if (drawing.is_open()) {
    drawing << plot.svg(policy);
    close(drawing, files.plot);
  }
  Outcome outcome{.longest = stage.measured(),
                  .measured = stage.measured(),
                  .lost = stage.lost(),
                  .events = stage.events(),
                  .programs = programs.size()};
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const Stage::Seen seen = stage.seen(i);
    outcome.turns += seen.turns;
    for (const Nanoseconds wait : seen.waits) outcome.waits.add(wait);
    if (seen.took) outcome.took.add(*seen.took);
  }
  if (arguments.each) describe_each(stage, programs, outcome.each);
  return outcome;
}

// Nodes are independent: each thread takes the next remaining node. The results do not depend on which thread
// simulates which node.
Outcome simulate_all(const Arguments& arguments, const std::string& policy, const Nodes& nodes) {
  std::vector<Outcome> outcomes(nodes.count);
  std::atomic<unsigned> next = 0;
  const auto work = [&] {
    for (unsigned node = next++; node < nodes.count; node = next++)
      outcomes[node] = simulate_node(arguments, policy, node, nodes.programs(node), {});
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::min(arguments.threads, nodes.count); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  Outcome sum;
  for (const Outcome& outcome : outcomes) sum.add(outcome);
  return sum;
}

void simulate(const Arguments& arguments, const std::string& policy, const Nodes& nodes) {
  const auto begun = std::chrono::steady_clock::now();
  Outcome sum;
  if (nodes.count == 1) {
    // Inserts the policy into the name of a file: for a plot, FILE and FILE.svg both become FILE.POLICY.svg.
    const auto named = [&](std::string name, std::string_view kind) {
      if (name.ends_with(kind)) name.resize(name.size() - kind.size());
      return name.empty() ? name : name + "." + policy + std::string(kind);
    };
    sum =
        simulate_node(arguments, policy, 0, nodes.programs(0),
                      {.timeline = named(arguments.timeline, ".csv"), .plot = named(arguments.plot, ".svg")});
  } else {
    sum = simulate_all(arguments, policy, nodes);
  }
  const double real = in_seconds(std::chrono::steady_clock::now() - begun);
  std::printf("%-15s %9.1f %4zu/%-4zu %6.2f%% %8llu %11.3f %12.3f %12.3f %10.0f\n", policy.c_str(),
              in_seconds(sum.longest), sum.took.count, sum.programs,
              100 * in_seconds(sum.lost) / in_seconds(sum.measured),
              static_cast<unsigned long long>(sum.turns), sum.waits.value(), sum.waits.most, sum.took.value(),
              static_cast<double>(sum.events) / real);
  std::printf("%s", sum.each.c_str());
}

// Returns an empty string, or an error.
std::string read_ledger_trace(const Arguments& arguments, LedgerTrace::Replay& replay) {
  LedgerTrace trace;
  unsigned damaged = 0;
  if (const Status read = trace.read(arguments.ledger, damaged); !read.ok()) return read.message();
  if (damaged > 0)
    std::cerr << "simulate: " << arguments.ledger << ": passed over " << damaged << " damaged lines\n";
  replay = trace.replay(Bytes{static_cast<std::uint64_t>(arguments.memory_gib * 1073741824.0)});
  if (replay.gpus.empty()) return arguments.ledger + ": has no leases to replay";
  std::cerr << "simulate: the ledger has the begin and end of leases, not the work in them: idle time within "
               "a lease\n"
               "counts as work, and waiting is subtracted from the pauses in equal parts.\n";
  if (replay.unsized > 0)
    std::cerr << "simulate: " << replay.unsized
              << " programs have no recorded footprint and are assumed to fill their GPU\n";
  return {};
}

// Assigns programs to nodes. The programs of a trace are distributed to the nodes round robin.
std::string find_nodes(const Arguments& arguments, Nodes& nodes) {
  if (arguments.trace.empty() && arguments.ledger.empty()) {
    nodes = {arguments.nodes, [&arguments](unsigned node) { return any_programs(arguments, node); }};
    return {};
  }
  std::vector<std::vector<Program>> all;
  if (!arguments.ledger.empty()) {
    LedgerTrace::Replay replay;
    if (std::string error = read_ledger_trace(arguments, replay); !error.empty()) return error;
    all = std::move(replay.gpus);
  } else {
    std::vector<Program> programs;
    std::ifstream file(arguments.trace);
    const std::string error =
        file ? read_trace(file, arguments.trace, programs) : arguments.trace + ": cannot be read";
    if (!error.empty()) return error;
    all.resize(std::min<std::size_t>(arguments.nodes, programs.size()));
    for (std::size_t i = 0; i < programs.size(); ++i) all[i % all.size()].push_back(programs[i]);
  }
  const auto count = static_cast<unsigned>(all.size());
  nodes = {count, [all = std::move(all)](unsigned node) { return all[node]; }};
  return {};
}

int run(const Arguments& arguments) {
  Nodes nodes;
  std::string error = find_nodes(arguments, nodes);
  if (error.empty() && nodes.count > 1 &&
      (arguments.each || !arguments.timeline.empty() || !arguments.plot.empty()))
    error = "--each, --timeline and --plot need a single node; the number of nodes is " +
            std::to_string(nodes.count);
  if (!error.empty()) {
    std::cerr << "simulate: " << error << '\n';
    return 2;
  }
  std::vector<std::string> policies = arguments.policies;
  if (policies.empty()) policies.assign(std::begin(kPolicies), std::end(kPolicies));
  for (const std::string& policy : policies)
    if (make_policy(policy) == nullptr) {
      std::cerr << "simulate: no policy '" << policy << "'\n";
      return 2;
    }
  print_head();
  for (const std::string& policy : policies) simulate(arguments, policy, nodes);
  if (std::fflush(stdout) != 0) throw std::runtime_error("cannot write to standard output");
  return 0;
}

// CLI::Range accepts "nan", so this is checked here.
std::string is_number(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "'" + text + "' is not a number" : "";
}

}  // namespace
}  // namespace sharedgpu

int main(int argc, char** argv) {
  sharedgpu::Arguments arguments;
  CLI::App app(
      "Runs the arbiter on simulated programs, on one GPU or on several separate ones, in virtual time.",
      "simulate");
  app.add_option("--policy", arguments.policies, "One or several policies (default: all)")->type_name("NAME");
  app.add_option("--trace", arguments.trace, "Programs as CSV; bench/simulator/trace.h describes the columns")
      ->type_name("FILE");
  app.add_option("--ledger", arguments.ledger,
                 "Replays an arbiter's ledger with its older files; each GPU becomes a node. "
                 "bench/simulator/ledger_trace.h lists what a ledger does not contain")
      ->type_name("FILE")
      ->excludes("--trace");
  app.add_option("--nodes", arguments.nodes,
                 "Number of nodes, of one GPU each (default 1); a trace's programs go to them in turn")
      ->check(CLI::Range(1, 1000000))
      ->excludes("--ledger");
  app.add_option("--threads", arguments.threads, "Threads that simulate nodes (default: one for each core)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--tenants", arguments.tenants,
                 "Without a trace or ledger: number of random programs on each node (default 8)")
      ->check(CLI::Range(1, 10000));
  app.add_option("--time", arguments.seconds, "Maximum of simulated time, in seconds (default 3600)")
      ->check(CLI::Range(1.0, 1e8))
      ->check(sharedgpu::is_number);
  app.add_option("--quantum", arguments.quantum, "Quantum, in seconds (default 0: auto)")
      ->check(CLI::Range(0.0, 1e6))
      ->check(sharedgpu::is_number);
  app.add_option("--max-wait", arguments.max_wait, "MaxWait, in seconds (default 30)")
      ->check(CLI::Range(0.1, 1e6))
      ->check(sharedgpu::is_number);
  app.add_option("--memory", arguments.memory_gib, "Memory of the GPU, in GiB (default 80)")
      ->check(CLI::Range(0.1, 1e4))
      ->check(sharedgpu::is_number);
  app.add_option("--bus", arguments.bus, "Bandwidth of handoffs, in GB/s each way (default 50)")
      ->check(CLI::Range(0.1, 1e4))
      ->check(sharedgpu::is_number);
  app.add_option("--seed", arguments.seed, "Seed of the random programs and delays (default 1)");
  app.add_option(
         "--timeline", arguments.timeline,
         "Writes FILE.POLICY.csv: the time that each program may have, and its deadlines, 50 times a second")
      ->type_name("FILE");
  app.add_option(
         "--plot", arguments.plot,
         "Writes FILE.POLICY.svg: the lease time that each program had and may have, and missed deadlines")
      ->type_name("FILE");
  app.add_flag("--each", arguments.each, "Prints a line for each program too");
  CLI11_PARSE(app, argc, argv);
  try {
    return sharedgpu::run(arguments);
  } catch (const std::exception& error) {
    std::cerr << "simulate: " << error.what() << '\n';
    return 2;
  }
}
