// SPDX-License-Identifier: Apache-2.0
// Simulates jobs that span nodes of a cluster, and compares four ways to give them turns: no coordination,
// order of arrival, an order that changes with each period of a common clock, and coordination by the
// arbiters (gangs). Prints a table for docs/multi-node.md.
//
// A cluster has two to six jobs that each span two to four of its nodes, and it may have jobs on one node
// (random_cluster()). A scenario counts as deadlocked if not all of its jobs end within twenty minutes of
// modelled time (with --cut an hour; --work multiplies both). Alone, each job takes seconds. The longest wait
// is compared with simulation::longest_wait(). In scenarios without faults, one in twenty is also compared
// with an ideal scheduler, which knows the state of all nodes and has handoffs without duration: the total
// times are compared. In each turn, the ideal scheduler runs the job that has waited longest, and then, in
// the order of their waits, each job that fits beside the jobs chosen so far.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/median.h"
#include "simulation/cluster.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using simulation::ClusterResult;
using simulation::ClusterScenario;
using simulation::Coordination;

struct Way {
  const char* name;
  Coordination coordination;
  const char* policy;
};
constexpr Way kWays[] = {{"none", Coordination::none, "round-robin"},
                         {"first come", Coordination::none, "fcfs"},
                         {"epochs", Coordination::epochs, "round-robin"},
                         {"agreement", Coordination::gangs, "round-robin"}};

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// The time that each job takes alone, and its maximum footprint.
struct Alone {
  Nanoseconds starts{};
  Nanoseconds takes{};
  Bytes most;
};

std::vector<Alone> alone(const ClusterScenario& scenario) {
  std::vector<Alone> jobs;
  for (const simulation::ClusterJob& job : scenario.jobs) {
    ClusterScenario its = scenario;
    its.coordination = Coordination::none;
    its.jobs = {job};
    jobs.push_back({.starts = job.starts,
                    .takes = simulation::simulate(its).jobs.front().took.value(),
                    .most = job.footprint + job.growth});
  }
  return jobs;
}

// The time until all jobs have ended under the ideal scheduler.
Nanoseconds ideal(const ClusterScenario& scenario) {
  const std::vector<Alone> jobs = alone(scenario);
  std::vector<Nanoseconds> left, ran(jobs.size(), Nanoseconds{-1});
  for (const Alone& job : jobs) left.push_back(job.takes);
  for (Nanoseconds now{};; now += 10ms) {
    std::vector<std::size_t> order;
    bool all_ended = true;
    for (std::size_t job = 0; job < jobs.size(); ++job) {
      all_ended = all_ended && left[job] <= 0ns;
      if (left[job] > 0ns && jobs[job].starts <= now) order.push_back(job);
    }
    if (all_ended) return now;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
      return ran[one] / scenario.turn < ran[other] / scenario.turn;
    });
    std::vector<Bytes> load(scenario.nodes);
    for (const std::size_t job : order) {
      const auto& nodes = scenario.jobs[job].nodes;
      if (std::any_of(nodes.begin(), nodes.end(),
                      [&](unsigned node) { return load[node] + jobs[job].most > scenario.capacity; }))
        continue;
      for (const unsigned node : nodes) load[node] += jobs[job].most;
      left[job] -= 10ms;
      ran[job] = now;
    }
  }
}

struct Faults {
  unsigned outages = 0;   // number of outages of arbiters and links
  unsigned longer = 1;    // factor of the length of the outages
  unsigned restarts = 0;  // restarts of arbiters for each link that is down
  unsigned lost = 0;      // lost messages between arbiters, per thousand
  std::string cut;        // "link": the first two nodes never reach each other; "all": no two nodes do
  unsigned spread = 0;    // seconds within which the processes of a job come; zero: the scenario's value
  unsigned work = 1;      // factor of the length of jobs
  bool any() const { return outages > 0 || lost > 0 || !cut.empty() || spread > 0; }
};

struct Row {
  unsigned locked = 0;
  unsigned refused = 0;
  double longest_of_bound = 0;
  std::vector<double> of_ideal;
  double messages_a_turn = 0;
};

void add_cuts(ClusterScenario& scenario, const std::string& cut) {
  for (unsigned node = 0; node < scenario.nodes; ++node)
    for (unsigned peer = node + 1; peer < scenario.nodes; ++peer)
      if (cut == "all" || (cut == "link" && node == 0 && peer == 1))
        scenario.outages.push_back({.at = {}, .lasts = 2 * scenario.limit, .node = node, .peer = peer});
}

Row measure(const Way& way, unsigned nodes, unsigned first, unsigned count, const Faults& faults) {
  Row row;
  std::uint64_t messages = 0, turns = 0;
  for (unsigned seed = first; seed < first + count; ++seed) {
    ClusterScenario scenario = simulation::random_cluster(seed, nodes, faults.outages);
    for (simulation::Outage& outage : scenario.outages) outage.lasts *= faults.longer;
    simulation::add_restarts(scenario, faults.restarts);
    scenario.lost = faults.lost;
    scenario.coordination = way.coordination;
    scenario.policy = way.policy;
    scenario.limit = faults.work * (faults.cut.empty() ? 20min : 60min);
    for (simulation::ClusterJob& job : scenario.jobs) {
      job.iterations *= faults.work;
      job.grows_at *= faults.work;
    }
    add_cuts(scenario, faults.cut);
    if (faults.spread > 0)
      for (simulation::ClusterJob& job : scenario.jobs) job.spread = faults.spread * 1s;
    const ClusterResult result = simulation::simulate(scenario);
    for (const ClusterResult::Job& job : result.jobs) {
      row.refused += job.refused ? 1 : 0;
      if (result.all_ended())
        row.longest_of_bound = std::max(
            row.longest_of_bound, seconds(job.longest_wait) / seconds(simulation::longest_wait(scenario)));
    }
    messages += result.messages;
    turns += result.turns;
    if (!result.all_ended()) {
      ++row.locked;
      std::fprintf(stderr, "%s: %u nodes, seed %u is locked\n", way.name, nodes, seed);
    } else if (seed < first + count / 20 && !faults.any())
      row.of_ideal.push_back(seconds(ideal(scenario)) / seconds(result.took));
  }
  if (turns > 0) row.messages_a_turn = static_cast<double>(messages) / static_cast<double>(turns);
  return row;
}

int run(int argc, char** argv) {
  unsigned count = 1000, first = 1;
  Faults faults;
  std::vector<unsigned> sizes = {2, 4, 8};
  std::vector<std::string> ways;
  for (const Way& way : kWays) ways.emplace_back(way.name);
  CLI::App app("Jobs that span nodes, simulated");
  app.add_option("--scenarios", count, "number of scenarios for each number of nodes")->capture_default_str();
  app.add_option("--seed", first, "seed of the first scenario")->capture_default_str();
  app.add_option("--nodes", sizes, "numbers of nodes")->delimiter(',')->capture_default_str();
  app.add_option("--by", ways, "ways to coordinate turns")->delimiter(',')->capture_default_str();
  app.add_option(
         "--outages", faults.outages,
         "outages of arbiters and links in each scenario; with outages there is no comparison with the ideal")
      ->capture_default_str();
  app.add_option("--longer", faults.longer, "factor on the duration of outages")->capture_default_str();
  app.add_option("--restarts", faults.restarts,
                 "restarts of arbiters at the ends of each link that is down, within 40 s after the link has "
                 "gone down")
      ->capture_default_str();
  app.add_option("--lost", faults.lost, "number of lost messages per thousand messages between arbiters")
      ->capture_default_str();
  app.add_option("--cut", faults.cut, "links that never work: the link between two nodes, or all links")
      ->check(CLI::IsMember({"link", "all"}));
  app.add_option("--spread", faults.spread, "seconds within which the processes of a job come")
      ->capture_default_str();
  app.add_option("--work", faults.work,
                 "factor on the length of jobs, and on the time after which a scenario counts as deadlocked")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::puts(
      "| nodes | way to give turns | scenarios | deadlocked scenarios | jobs refused memory | longest wait "
      "divided by its "
      "bound | "
      "throughput divided by "
      "the ideal | messages per turn |");
  std::puts("|---|---|---|---|---|---|---|---|");
  for (const unsigned nodes : sizes)
    for (const Way& way : kWays) {
      if (std::find(ways.begin(), ways.end(), way.name) == ways.end()) continue;
      const Row row = measure(way, nodes, first, count, faults);
      std::printf("| %u | %s | %u | %u | %u | %.2f | %.2f | %.0f |\n", nodes, way.name, count, row.locked,
                  row.refused, row.longest_of_bound, median(row.of_ideal), row.messages_a_turn);
      std::fflush(stdout);
    }
  return 0;
}

}  // namespace
}  // namespace sharedgpu

int main(int argc, char** argv) { return sharedgpu::run(argc, argv); }
