// SPDX-License-Identifier: Apache-2.0
// The jobs of the simulated cluster: their processes, and the work that these submit.
#include "simulation/cluster_model.h"

namespace sharedgpu::simulation {

using namespace std::chrono_literals;

namespace {

constexpr Bytes kChunk = mebibytes(8);

}  // namespace

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

}  // namespace sharedgpu::simulation
