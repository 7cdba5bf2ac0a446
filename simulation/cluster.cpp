// SPDX-License-Identifier: Apache-2.0
#include "simulation/cluster.h"

#include "arbiter/policy/registry.h"
#include "simulation/cluster_model.h"

namespace sharedgpu::simulation {

using namespace std::chrono_literals;

namespace {

constexpr Bytes kContexts = mebibytes(60);

// Ranks jobs in an order that is the same on all nodes and changes with each epoch.
class Epochs final : public Policy {
 public:
  explicit Epochs(std::uint64_t epoch) : Policy("epochs", {.preemption = Preemption::free}), epoch_(epoch) {}

  Rank rank(const TenantView& waiting, const TurnView&) const override {
    return {.level = level_of(waiting.tenant), .weight = {}};
  }
  bool preempts(const TenantView& waiting, const TenantView& running, const TurnView&) const override {
    return level_of(waiting.tenant) > level_of(running.tenant);
  }
  bool extends(const TenantView& running, const TenantView& waiting, const TurnView&) const override {
    return level_of(running.tenant) > level_of(waiting.tenant);
  }
  Rank retain(const TenantView& running, const TurnView&) const override {
    return {.level = level_of(running.tenant), .weight = {}};
  }

 private:
  int level_of(TenantId tenant) const {
    std::uint64_t mixed = (tenant.value + 1) * 0x9e3779b97f4a7c15 + epoch_ * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 29)) * 0x94d049bb133111eb;
    return static_cast<int>(mixed >> 34);
  }

  std::uint64_t epoch_;
};

}  // namespace

Cluster::Cluster(const ClusterScenario& scenario) : scenario_(scenario), random_(scenario.seed) {
  result_.jobs.resize(scenario.jobs.size());
  nodes_.resize(scenario.nodes);
  for (unsigned node = 0; node < scenario.nodes; ++node) {
    nodes_[node].gpu.bytes[0] = static_cast<std::uint8_t>(node + 1);
    if (scenario.skew != 0ns) nodes_[node].clock_off = some(scenario.skew);
    boot(node, {});
    if (scenario.coordination == Coordination::epochs) begin_epoch(node, 0);
  }
  for (std::size_t job = 0; job < scenario.jobs.size(); ++job) {
    const ClusterJob& its = scenario.jobs[job];
    Job& entry = jobs_.emplace_back();
    for (std::size_t member = 0; member < its.nodes.size(); ++member) {
      Process& process = *processes_.emplace_back(std::make_unique<Process>());
      process.cluster = this;
      process.job = job;
      process.node = its.nodes[member];
      process.member = member;
      entry.processes.push_back(&process);
      timeline_.at(now() + its.starts + some(its.spread), [this, job, member] { arrive(job, member); });
    }
  }
  left_ = scenario.jobs.size();
  for (const Suspension& suspension : scenario.suspensions) {
    // Repeats the announcement, as the SPANK plugin does: the core ends a suspension that is not announced
    // again.
    for (Nanoseconds after{}; after < suspension.lasts; after += 10s)
      timeline_.at(now() + suspension.at + after, [this, suspension] { suspend(suspension, true); });
    timeline_.at(now() + suspension.at + suspension.lasts,
                 [this, suspension] { suspend(suspension, false); });
  }
  for (const LostGpu& lost : scenario.lost_gpus)
    timeline_.at(now() + lost.at, [this, node = lost.node] { lose_gpu(node); });
  for (const Outage& outage : scenario.outages) {
    if (!outage.peer) {
      timeline_.at(now() + outage.at, [this, node = outage.node] { stop(node); });
      timeline_.at(now() + outage.at + outage.lasts, [this, node = outage.node] { restart(node); });
      continue;
    }
    const auto link = std::minmax(outage.node, *outage.peer);
    timeline_.at(now() + outage.at, [this, link] { cut_.insert(link); });
    timeline_.at(now() + outage.at + outage.lasts, [this, link] { cut_.erase(link); });
  }
}

void Cluster::suspend(const Suspension& suspension, bool suspended) {
  if (!suspension.member && suspended) suspended_.insert(suspension.job);
  if (!suspension.member && !suspended) suspended_.erase(suspension.job);
  for (const Process* process : jobs_[suspension.job].processes)
    if (!suspension.member || process->member == *suspension.member)
      tell(process->node, Suspend{.tenant = tenant_of(suspension.job), .suspended = suspended});
}

void Cluster::lose_gpu(unsigned node) {
  std::set<std::size_t> jobs;
  for (const auto& process : processes_) {
    if (process->node != node || !process->here) continue;
    process->here = false;
    process->use = {};
    process->orders.clear();
    jobs.insert(process->job);
  }
  nodes_[node].gpu_lost = true;
  tell(node, GpuChanged{.gpu = nodes_[node].gpu, .condition = GpuCondition::lost});
  for (const std::size_t job : jobs) fail(job);
  timeline_.at(now() + 1s, [this, node] {
    nodes_[node].gpu_lost = false;
    tell(node, GpuChanged{.gpu = nodes_[node].gpu, .condition = GpuCondition::healthy});
  });
}

ClusterResult Cluster::run() {
  const Nanoseconds began = now();
  while (left_ > 0 && timeline_.next() && *timeline_.next() < began + scenario_.limit) timeline_.go_on()();
  result_.took = now() - began;

  for (unsigned node = 0; node < nodes_.size(); ++node)
    for (std::size_t job = 0; job < jobs_.size(); ++job) {
      const Nanoseconds lease = nodes_[node].written.of_tenant(tenant_of(job), now());
      if (lease != 0ns) result_.jobs[job].lease[node] = lease;
    }
  return result_;
}

// ---- arbiters ----

void Cluster::boot(unsigned node, Recovered recovered) {
  Node& its = nodes_[node];
  const std::uint64_t life = 1 + node + nodes_.size() * its.life;  // a number that no other arbiter, and no
                                                                   // other start of this arbiter, has
  if (!its.heard) its.heard.emplace(GangTimes{}.recent);
  its.members.emplace(std::to_string(node), life, GangTimes{}, *its.heard);
  its.desk.emplace(std::to_string(node), life, GangTimes{}, GangPace{}, its.clock_off, *its.heard);
  Tuning tuning;
  tuning.evict_step = mebibytes(4);
  if (scenario_.policy != "fcfs") tuning.turns.fixed = scenario_.turn;
  its.policies.push_back(make_policy(scenario_.policy));
  its.core = std::make_unique<Core>(tuning, *its.policies.back(), std::move(recovered), now());
  tell(node,
       GpuFound{.gpu = its.gpu, .total = scenario_.capacity + kContexts, .capacity = scenario_.capacity});
}

void Cluster::stop(unsigned node) {
  Node& its = nodes_[node];
  ++its.life;
  ++its.alarms;
  ++its.wakes;
  its.core.reset();
  its.new_jobs.clear();
}

void Cluster::restart(unsigned node) {
  Node& its = nodes_[node];
  if (its.core) return;  // the end of another outage has restarted the arbiter
  Recovered recovered;
  recovered.leases = its.written;
  recovered.last_record = its.last_written;
  for (const auto& process : processes_)
    if (process->node == node && process->here && process->attached) ++recovered.expected_sessions;
  for (const auto& [key, lease] : its.written.open())
    recovered.last_epoch = std::max(recovered.last_epoch, lease.epoch);
  boot(node, std::move(recovered));
  for (const auto& process : processes_) {
    if (process->node != node || !process->here) continue;
    timeline_.at(now() + some(1500ms), [this, one = process.get(), life = its.life] {
      if (nodes_[one->node].life == life && one->here) come_back(*one);
    });
  }
}

void Cluster::begin_epoch(unsigned node, std::uint64_t epoch) {
  Node& its = nodes_[node];
  its.policies.push_back(std::make_unique<Epochs>(epoch));
  tell(node, RulesSet{.node = {.policy = its.policies.back().get(), .turns = {.fixed = scenario_.epoch}}});
  timeline_.at(now() + scenario_.epoch + (epoch == 0 ? its.clock_off : 0ns),
               [this, node, epoch] { begin_epoch(node, epoch + 1); });
}

Cluster::Process* Cluster::find(unsigned node, SessionId id) {
  for (const auto& process : processes_)
    if (process->node == node && process->id == id) return process.get();
  return nullptr;
}

void Cluster::tell(unsigned node, const Event& event) {
  if (!nodes_[node].core) return;
  perform(node, nodes_[node].core->handle(event, now()));
  check(node);
}

void Cluster::perform(unsigned node, const Actions& actions) {
  Node& its = nodes_[node];
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<Send>(&action)) {
      Process* process = find(node, send->session);
      if (process == nullptr) continue;
      process->from_arbiter = std::max(process->from_arbiter, now() + some(300us));
      timeline_.at(process->from_arbiter, [this, process, life = its.life, message = send->message] {
        if (process->here && nodes_[process->node].life == life) deliver(*process, message);
      });
    } else if (const auto* gate = std::get_if<SetGate>(&action)) {
      Process* process = find(node, gate->session);
      if (process == nullptr) continue;
      process->page.set(*gate);
      if (!gate->open) continue;
      process->in_turn = true;
      process->idle_since = now();
      timeline_.at(now(), [this, process] { go_on(*process); });
    } else if (const auto* contended = std::get_if<SetContended>(&action)) {
      Process* process = find(node, contended->session);
      if (process == nullptr) continue;
      process->page.set(*contended);
      ++process->idle_watch;
      watch_idle(*process);
    } else if (const auto* lease = std::get_if<RecordLease>(&action)) {
      its.last_written = now();
      if (lease->grant)
        must(its.written.grant(lease->key, lease->epoch, lease->at), "a lease granted twice");
      else
        must(its.written.release(lease->key, lease->at), "a lease released that was not held");
    } else if (const auto* timer = std::get_if<ArmTimer>(&action)) {
      timeline_.at(timer->at, [this, node, alarm = ++its.alarms] {
        if (nodes_[node].alarms == alarm) tell(node, TimerFired{});
      });
    } else if (const auto* told = std::get_if<TellGang>(&action)) {
      const std::size_t job = told->tenant.value - 1;
      const auto& nodes = scenario_.jobs[job].nodes;
      its.members->report(told->tenant,
                          {.number = job_number(job),
                           .nodes = static_cast<std::uint32_t>(nodes.size()),
                           .coordinator = std::to_string(nodes.front()),
                           .is_new = its.new_jobs.count(job) > 0},
                          told->report, now());
      timeline_.at(now(), [this, node] { tend(node); });
    } else if (const auto* look = std::get_if<Look>(&action)) {
      timeline_.at(now(), [this, node, session = look->session] {
        tell(node, Looked{.session = session, .stopped = false});
      });
    } else if (const auto* drop = std::get_if<Drop>(&action)) {
      if (find(node, drop->session) == nullptr || !find(node, drop->session)->here) continue;
      throw std::logic_error("a session that behaves is dropped: " + drop->reason);
    }
  }
}

void Cluster::check(unsigned node) const {
  Bytes resident;
  for (const auto& process : processes_)
    if (process->node == node) resident += process->use.resident;
  must(resident <= scenario_.capacity, "more is on a GPU than it has");
}

// ---- gangs ----

void Cluster::tend(unsigned node) {
  Node& its = nodes_[node];
  if (!its.core) return;
  its.members->advance(now());
  its.desk->advance(now());
  for (const GangDesk::Run& run : its.desk->take_unlisted())
    timeline_.at(now() + some(100ms), [this, node, run, life = its.life] {
      if (nodes_[node].life == life) tell_nodes(node, run);
    });
  if (const auto asked = its.members->take_line_question())
    timeline_.at(now() + some(100ms), [this, node, asked = *asked, life = its.life] {
      if (nodes_[node].life == life) tell_jobs(node, asked);
    });
  for (const GangMembers::Sent& sent : its.members->take_messages())
    post(node, static_cast<unsigned>(std::stoul(sent.node)), sent.message);
  for (const GangDesk::Sent& sent : its.desk->take_messages())
    post(node, static_cast<unsigned>(std::stoul(sent.address)), sent.message);
  for (const GangOrdered& order : its.members->take_orders()) {
    if (!order.order) ++result_.given_up;
    tell(node, order);
  }
  std::optional<Nanoseconds> wake = its.members->wake();
  if (const auto other = its.desk->wake(); other && (!wake || *other < *wake)) wake = other;
  if (!wake) return;
  timeline_.at(*wake, [this, node, wakes = ++its.wakes] {
    if (nodes_[node].wakes == wakes) tend(node);
  });
}

// Simulates Slurm: sends the nodes of a job to the coordinator.
void Cluster::tell_nodes(unsigned node, const GangDesk::Run& run) {
  std::vector<GangDesk::Listed> nodes;
  for (const unsigned its : scenario_.jobs[run.first - 1].nodes)
    nodes.push_back({.node = std::to_string(its), .address = std::to_string(its)});
  nodes_[node].desk->list(run, nodes, now());
  tend(node);
}

// Simulates Slurm: sends the running jobs on several nodes, if they have a process on this node, to the
// arbiter of this node.
void Cluster::tell_jobs(unsigned node, Nanoseconds asked) {
  std::vector<StartedJob> jobs;
  for (std::size_t job = 0; job < scenario_.jobs.size(); ++job) {
    const ClusterJob& its = scenario_.jobs[job];
    const bool is_here = std::count(its.nodes.begin(), its.nodes.end(), node) > 0;
    const Nanoseconds started = Timeline::kBegin + its.starts;
    const bool runs = started <= asked && !result_.jobs[job].has_ended() && suspended_.count(job) == 0;
    if (its.nodes.size() > 1 && is_here && runs)
      jobs.push_back(
          {.number = job_number(job), .started = std::chrono::floor<std::chrono::seconds>(started)});
  }
  nodes_[node].members->list(std::move(jobs), asked);
  tend(node);
}

void Cluster::post(unsigned from, unsigned to, const GangMessage& message) {
  ++result_.messages;
  if (const auto* order = std::get_if<GangOrder>(&message.what))
    if (std::exchange(commands_[message.job], order->command) != order->command &&
        order->command == GangCommand::run)
      ++result_.turns;
  const bool comes = from == to || (linked(from, to) && random(1, 1000) > scenario_.lost);
  if (!comes) return;
  timeline_.at(now() + (from == to ? 0ns : some(scenario_.delay)),
               [this, to, from, message] { read(to, from, message); });
}

void Cluster::read(unsigned node, unsigned from, const GangMessage& message) {
  Node& its = nodes_[node];
  if (!its.core) return;
  if (std::holds_alternative<GangReport>(message.what))
    its.desk->hear(std::to_string(from), message, now());
  else
    its.members->hear(message, !its.core->in_grace(), now());
  tend(node);
}

ClusterResult simulate(const ClusterScenario& scenario) { return Cluster(scenario).run(); }

}  // namespace sharedgpu::simulation
