// SPDX-License-Identifier: Apache-2.0
#include "simulation/cluster.h"

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <utility>

#include "arbiter/policy/registry.h"

namespace sharedgpu::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Bytes kContexts = mebibytes(60);
constexpr Bytes kChunk = mebibytes(8);

void must(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

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

class Cluster {
 public:
  explicit Cluster(const ClusterScenario& scenario);
  ClusterResult run();

 private:
  struct Process;
  struct Node {
    std::unique_ptr<Core> core;  // null while the node's arbiter is down
    std::vector<std::unique_ptr<Policy>> policies;
    unsigned life =
        0;  // number of stops of the arbiter; messages that were sent before the last stop are lost
    std::uint64_t alarms = 0;
    LeaseBook written;  // stands for the arbiter's ledger: the leases that it would contain
    Nanoseconds last_written{};
    std::optional<HeardNodes> heard;  // an arbiter keeps this in a file, so it outlives the arbiter
    std::optional<GangMembers> members;
    std::optional<GangDesk> desk;
    std::set<std::size_t> new_jobs;  // jobs that have begun since the arbiter started
    std::uint64_t wakes = 0;
    GpuUuid gpu;
    bool gpu_lost = false;
    Nanoseconds clock_off{};
  };
  struct Job {
    std::vector<Process*> processes;
    unsigned started = 0;  // number of kernels of each process that have run
    bool busy = false;     // the next kernel of each process is running
  };

  static TenantId tenant_of(std::size_t job) { return TenantId{job + 1}; }
  static std::uint32_t job_number(std::size_t job) { return static_cast<std::uint32_t>(job + 1); }
  Nanoseconds now() const { return timeline_.now(); }
  unsigned random(unsigned least, unsigned most) {
    return std::uniform_int_distribution<unsigned>(least, most)(random_);
  }
  Nanoseconds some(Nanoseconds most) { return most * random(1, 1000) / 1000; }

  // ---- arbiters ----
  void boot(unsigned node, Recovered recovered);
  void stop(unsigned node);
  void restart(unsigned node);
  void tell(unsigned node, const Event& event);
  void perform(unsigned node, const Actions& actions);
  void begin_epoch(unsigned node, std::uint64_t epoch);
  Process* find(unsigned node, SessionId id);

  // ---- gangs ----
  bool is_gang(std::size_t job) const {
    return scenario_.coordination == Coordination::gangs && scenario_.jobs[job].nodes.size() > 1;
  }
  bool linked(unsigned one, unsigned other) const {
    return one == other || cut_.count({std::min(one, other), std::max(one, other)}) == 0;
  }
  // Sends the letters of the gangs on this node, and passes the orders of gangs to the core.
  void tend(unsigned node);
  void tell_nodes(unsigned node, const GangDesk::Run& run);
  void tell_jobs(unsigned node, Nanoseconds asked);
  void post(unsigned from, unsigned to, const GangLetter& letter);
  void read(unsigned node, unsigned from, const GangLetter& letter);

  // ---- processes ----
  void arrive(std::size_t job, std::size_t member);
  void come_back(Process& process);
  template <class Body>
  void say(Process& process, const Body& body);
  void deliver(Process& process, const Message& message);
  void work(Process& process);
  void think(Process& process);
  void go_on(Process& process);
  void submit(Process& process);
  void compute(std::size_t job);
  void leave(Process& process);
  void give_up(std::size_t job);
  void fail(std::size_t job);
  void suspend(const Suspension& suspension, bool suspended);
  void lose_gpu(unsigned node);
  void watch_idle(Process& process);
  void check(unsigned node) const;

  const ClusterScenario scenario_;
  std::mt19937_64 random_;
  Timeline timeline_;
  std::vector<Node> nodes_;
  std::vector<Job> jobs_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::set<std::pair<unsigned, unsigned>> cut_;    // links that are down
  std::set<std::size_t> suspended_;                // jobs that Slurm has suspended
  std::map<std::uint32_t, GangCommand> commands_;  // the last command of each job's coordinator
  std::uint64_t last_session_ = 0;
  std::size_t left_ = 0;  // jobs that have not ended
  ClusterResult result_;
};

struct Cluster::Process final : Session, simulation::Process {
  Cluster* cluster = nullptr;
  std::size_t job = 0;
  unsigned node = 0;
  std::size_t member = 0;
  bool here = false;  // the process has begun and has not ended
  bool attached = false;
  bool working = false;  // the process's memory was granted; processes of a job work only together
  bool waiting = false;  // the process waits at the gate
  bool lonely = false;   // the process waits until all processes of its job are working
  bool full = false;     // the process may submit no further kernel before one of its kernels has ended
                         // (ClusterJob::ahead)
  bool thinking = false;
  std::uint64_t asking = 0;  // the request for memory that has no answer yet
  std::uint64_t requests = 0;
  Bytes granted;  // the process's memory before the request `asking`
  unsigned submitted = 0;
  unsigned done = 0;
  Nanoseconds waiting_since{};
  Nanoseconds idle_since{};
  Nanoseconds to_arbiter{},
      from_arbiter{};  // the arrival times of the latest messages; messages do not overtake each other
  unsigned idle_watch = 0;

  Nanoseconds drain(Session&, MessageType) override { return submitted > done ? 1ms : 0ms; }
  Nanoseconds submit_once(Session&) override {
    if (waiting && asking == 0 && missing() == Bytes{}) {
      waiting = false;
      cluster->submit(*this);
    }
    return 100us;
  }
  bool waits(const Session&) const override { return waiting; }
};

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
  for (const GangMembers::Sent& sent : its.members->take_letters())
    post(node, static_cast<unsigned>(std::stoul(sent.node)), sent.letter);
  for (const GangDesk::Sent& sent : its.desk->take_letters())
    post(node, static_cast<unsigned>(std::stoul(sent.address)), sent.letter);
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

// Stands for Slurm: sends the nodes of a job to the coordinator.
void Cluster::tell_nodes(unsigned node, const GangDesk::Run& run) {
  std::vector<GangDesk::Listed> nodes;
  for (const unsigned its : scenario_.jobs[run.first - 1].nodes)
    nodes.push_back({.node = std::to_string(its), .address = std::to_string(its)});
  nodes_[node].desk->list(run, nodes, now());
  tend(node);
}

// Stands for Slurm: sends the jobs on a node to its arbiter.
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

void Cluster::post(unsigned from, unsigned to, const GangLetter& letter) {
  ++result_.letters;
  if (const auto* order = std::get_if<GangOrder>(&letter.what))
    if (std::exchange(commands_[letter.job], order->command) != order->command &&
        order->command == GangCommand::run)
      ++result_.turns;
  const bool comes = from == to || (linked(from, to) && random(1, 1000) > scenario_.lost);
  if (!comes) return;
  timeline_.at(now() + (from == to ? 0ns : some(scenario_.delay)),
               [this, to, from, letter] { read(to, from, letter); });
}

void Cluster::read(unsigned node, unsigned from, const GangLetter& letter) {
  Node& its = nodes_[node];
  if (!its.core) return;
  if (std::holds_alternative<GangReport>(letter.what))
    its.desk->hear(std::to_string(from), letter, now());
  else
    its.members->hear(letter, !its.core->in_grace(), now());
  tend(node);
}

// ---- processes ----

void Cluster::arrive(std::size_t job, std::size_t member) {
  Process& process = *jobs_[job].processes[member];
  if (!nodes_[process.node].core || nodes_[process.node].gpu_lost) {
    timeline_.at(now() + 100ms, [this, job, member] { arrive(job, member); });
    return;
  }
  process.here = true;
  nodes_[process.node].new_jobs.insert(job);
  process.id = SessionId{++last_session_};
  tell(process.node, SessionCame{.session = process.id,
                                 .tenant = tenant_of(job),
                                 .step = {.job = job_number(job), .step = 0},
                                 .cap = {},
                                 .job = is_gang(job) ? job_number(job) : 0,
                                 .hello = {}});
  say(process, Attach{.gpu = nodes_[process.node].gpu, .total = {}, .name = {}});
}

void Cluster::come_back(Process& process) {
  const bool had_gate = process.page.open;
  process.page.open = false;
  process.id = SessionId{++last_session_};
  Hello hello;
  hello.resuming = 1;
  hello.held = had_gate;
  hello.wants = process.waiting;
  hello.epoch = process.epoch;
  tell(process.node, SessionCame{.session = process.id,
                                 .tenant = tenant_of(process.job),
                                 .step = {.job = job_number(process.job), .step = 0},
                                 .cap = {},
                                 .expected = process.attached,
                                 .job = is_gang(process.job) ? job_number(process.job) : 0,
                                 .hello = hello});
  say(process, Attach{.gpu = nodes_[process.node].gpu, .total = {}, .name = {}});
  if (!process.attached) return;
  say(process, Usage{.request = 0, .use = process.use, .stuck = 0});
  if (process.asking != 0) say(process, Usage{.request = process.asking, .use = process.use, .stuck = 0});
}

template <class Body>
void Cluster::say(Process& process, const Body& body) {
  process.to_arbiter = std::max(process.to_arbiter, now() + some(300us));
  timeline_.at(process.to_arbiter, [this, &process, body, id = process.id] {
    if (process.here && process.id == id) tell(process.node, From<Body>{.session = id, .body = body});
  });
}

void Cluster::deliver(Process& process, const Message& message) {
  if (process.receive(message)) {
    if (process.begin_order()) work(process);
    return;
  }
  if (message.type == MessageType::attached) {
    if (std::exchange(process.attached, true)) return;
    process.use.context = mebibytes(1);
    process.granted = {};
    process.use.swappable = scenario_.jobs[process.job].footprint;
    process.asking = ++process.requests;
    say(process, Usage{.request = process.asking, .use = process.use, .stuck = 0});
  } else if (message.type == MessageType::verdict) {
    const Verdict verdict = message.as<Verdict>();
    if (verdict.request != process.asking) return;
    if (verdict.granted == 0) return give_up(process.job);
    process.asking = 0;
    process.take(verdict);
    say(process, Usage{.request = 0, .use = process.use, .stuck = 0});
    if (!std::exchange(process.working, true))
      for (Process* peer : jobs_[process.job].processes)
        if (peer != &process && std::exchange(peer->lonely, false)) think(*peer);
    think(process);
  }
}

void Cluster::work(Process& process) {
  const Piece piece = carry_out(process, process, kChunk);
  if (piece.report)
    std::visit(
        [&](auto what) {
          if constexpr (std::is_same_v<decltype(what), Usage>) what.use = process.use;
          say(process, what);
        },
        *piece.report);
  if (piece.finished) {
    if (process.begin_order()) work(process);
    return;
  }
  const Nanoseconds copying = Nanoseconds(std::chrono::milliseconds(1)) *
                              static_cast<long>(piece.copied.count) /
                              static_cast<long>(scenario_.copied_per_ms.count);
  timeline_.at(now() + std::max<Nanoseconds>(piece.pause, copying), [this, &process] {
    if (process.here) work(process);
  });
}

// Begins the CPU part of an iteration. After this part, the process submits a kernel.
void Cluster::think(Process& process) {
  const ClusterJob& job = scenario_.jobs[process.job];
  if (process.submitted == job.iterations) return;
  const std::vector<Process*>& peers = jobs_[process.job].processes;
  const auto is_missing = [](const Process* peer) { return !peer->working; };
  if (std::any_of(peers.begin(), peers.end(), is_missing)) {
    process.lonely = true;
    return;
  }
  if (job.grows_at != 0 && process.submitted == job.grows_at && process.requests == 1) {
    process.granted = process.use.swappable;
    process.use.swappable += job.growth;
    process.asking = ++process.requests;
    return say(process, Usage{.request = process.asking, .use = process.use, .stuck = 0});
  }
  if (process.submitted - process.done >= job.ahead) {
    process.full = true;
    return;
  }
  process.thinking = true;
  timeline_.at(now() + some(2 * job.thinks), [this, &process] {
    process.thinking = false;
    if (!process.here) return;
    if (process.page.open) return submit(process);
    process.waiting = true;
    process.waiting_since = now();
    say(process, Want{});
  });
}

// Called when the gate has opened.
void Cluster::go_on(Process& process) {
  if (!process.here || !process.page.open || !process.waiting) return;
  process.waiting = false;
  submit(process);
}

void Cluster::submit(Process& process) {
  must(process.missing() == Bytes{}, "work was let in before all memory was there");
  ClusterResult::Job& its = result_.jobs[process.job];
  if (process.waiting_since != 0ns)
    its.longest_wait = std::max(its.longest_wait, now() - std::exchange(process.waiting_since, {}));
  ++process.submitted;
  process.in_turn = true;
  compute(process.job);
  think(process);
}

void Cluster::compute(std::size_t job) {
  Job& its = jobs_[job];
  const auto has_submitted = [&](const Process* process) { return process->submitted > its.started; };
  if (its.busy || !std::all_of(its.processes.begin(), its.processes.end(), has_submitted)) return;
  its.busy = true;
  timeline_.at(now() + some(2 * scenario_.jobs[job].computes), [this, job] {
    if (result_.jobs[job].failed) return;
    Job& done = jobs_[job];
    done.busy = false;
    ++done.started;
    result_.jobs[job].iterations = done.started;
    const bool ended = done.started == scenario_.jobs[job].iterations;
    for (Process* process : done.processes) {
      process->done = done.started;
      process->idle_since = now();
      if (ended)
        timeline_.at(now() + some(20ms), [this, process] { leave(*process); });
      else if (std::exchange(process->full, false))
        think(*process);
    }
    if (!ended) return compute(job);
    result_.jobs[job].took = now() - Timeline::kBegin - scenario_.jobs[job].starts;
    --left_;
  });
}

// Ends a job after one of its requests for memory was refused.
void Cluster::give_up(std::size_t job) {
  if (result_.jobs[job].has_ended()) return;
  result_.jobs[job].refused = true;
  --left_;
  for (Process* process : jobs_[job].processes)
    if (process->here) timeline_.at(now() + some(20ms), [this, process] { leave(*process); });
}

// Ends a job that has lost a process. The other processes wait for the lost process until Slurm ends them.
void Cluster::fail(std::size_t job) {
  if (result_.jobs[job].has_ended()) return;
  result_.jobs[job].failed = true;
  --left_;
  for (Process* process : jobs_[job].processes)
    timeline_.at(now() + 10s, [this, process] { leave(*process); });
}

void Cluster::leave(Process& process) {
  if (!std::exchange(process.here, false)) return;
  process.use = {};
  process.orders.clear();
  tell(process.node, SessionGone{.session = process.id});
}

void Cluster::watch_idle(Process& process) {
  if (!process.here || !process.page.contended) return;
  if (process.page.open && process.submitted == process.done && now() - process.idle_since >= 20ms)
    say(process, Idle{.epoch = process.epoch, .idle = now() - process.idle_since});
  timeline_.at(now() + 40ms, [this, &process, watch = process.idle_watch] {
    if (process.idle_watch == watch) watch_idle(process);
  });
}

}  // namespace

ClusterScenario random_cluster(std::uint64_t seed, unsigned nodes, unsigned outages) {
  std::mt19937_64 source(seed);
  const auto random = [&](unsigned least, unsigned most) {
    return std::uniform_int_distribution<unsigned>(least, most)(source);
  };
  ClusterScenario scenario;
  scenario.seed = seed;
  scenario.nodes = nodes;
  std::vector<unsigned> all(nodes);
  for (unsigned node = 0; node < nodes; ++node) all[node] = node;
  const unsigned gangs = random(2, 2 + nodes / 2);
  const unsigned alone = random(0, nodes);
  for (unsigned job = 0; job < gangs + alone; ++job) {
    ClusterJob its;
    std::shuffle(all.begin(), all.end(), source);
    const unsigned spans = job < gangs ? random(2, std::max(2u, std::min(nodes, 4u))) : 1;
    its.nodes.assign(all.begin(), all.begin() + spans);
    its.footprint = mebibytes(random(20, 80));
    its.thinks = random(0, 8) * 1ms;
    its.computes = random(1, 20) * 1ms;
    its.ahead = random(1, 3);
    its.iterations = random(2000, 6000) / static_cast<unsigned>((its.thinks + its.computes) / 1ms);
    its.starts = random(0, 3000) * 1ms;
    if (random(0, 3) == 0) {
      its.grows_at = random(1, its.iterations - 1);
      its.growth = mebibytes(random(1, 20));
    }
    scenario.jobs.push_back(its);
  }
  for (unsigned outage = 0; outage < outages; ++outage) {
    Outage its;
    its.at = random(1000, 20000) * 1ms;
    its.lasts = random(10, 8000) * 1ms;
    its.node = random(0, nodes - 1);
    if (random(0, 1) == 0) its.peer = (its.node + random(1, nodes - 1)) % nodes;
    scenario.outages.push_back(its);
  }
  return scenario;
}

void add_restarts(ClusterScenario& scenario, unsigned restarts) {
  std::mt19937_64 source(scenario.seed);
  const auto random = [&](unsigned least, unsigned most) {
    return std::uniform_int_distribution<unsigned>(least, most)(source);
  };
  const std::vector<Outage> outages = scenario.outages;
  for (const Outage& link : outages) {
    if (!link.peer) continue;
    for (unsigned restart = 0; restart < restarts; ++restart)
      scenario.outages.push_back({.at = link.at + random(0, 40'000) * 1ms,
                                  .lasts = random(50, 3000) * 1ms,
                                  .node = random(0, 1) == 0 ? link.node : *link.peer,
                                  .peer = {}});
  }
}

Nanoseconds longest_wait(const ClusterScenario& scenario) {
  const Nanoseconds handoff = 2ms * static_cast<long>(scenario.capacity.count / scenario.copied_per_ms.count);
  return 2 * static_cast<long>(scenario.jobs.size()) * (scenario.turn + handoff + 500ms) + 10s;
}

ClusterResult simulate(const ClusterScenario& scenario) { return Cluster(scenario).run(); }

}  // namespace sharedgpu::simulation
