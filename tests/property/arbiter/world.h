// SPDX-License-Identifier: Apache-2.0
// A simulation around the core, in simulated time: sessions that obey the protocol with random delays, on
// GPUs whose memory is counted.
//
// Every step checks the invariants; a violation is thrown as std::logic_error.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "arbiter/core/core.h"
#include "arbiter/policy/registry.h"
#include "decision_digest.h"
#include "hostile_clients.h"
#include "simulation/session.h"
#include "simulation/timeline.h"

namespace sharedgpu::test {

struct Scenario {
  std::uint64_t seed = 0;
  unsigned gpus = 1;
  unsigned tenants = 3;
  unsigned most_sessions = 2;
  unsigned capacity = 100;       // capacity of each GPU in MiB
  unsigned largest_growth = 30;  // largest growth of a session at once, in MiB
  TurnRules turns{.fixed = std::chrono::milliseconds(500)};
  std::string policy = "round-robin";
  bool claims = false;  // tenants have different units, priorities and shares
  // Each session reports met and missed deadlines at random moments, sometimes with a pause of 15 s. Two of
  // three tenants state a deadline. Requires `claims`.
  bool deadlines = false;
  unsigned switches = 0;   // how often the policy changes
  Nanoseconds patience{};  // time for which a tenant may wait beyond a round of turns
  bool deaths = false;
  bool host_runs_out = false;  // evictions fail now and then
  bool host_short = false;     // programs sometimes need the host memory that holds evicted memory
  // Limits of evictable memory in MiB: host_cap is set by the site for each tenant; host_limit (of a step)
  // and job_host_limit (of its job) are reported by sessions. Zero: no limit.
  unsigned host_cap = 0;
  unsigned host_limit = 0;
  unsigned job_host_limit = 0;
  unsigned restarts = 0;
  bool oversize = false;  // the site permits away memory, and programs use it
  bool pins = false;
  bool lockstep = false;  // a session's n-th submission ends only when all sessions of its tenant have
                          // submitted n times
  unsigned longest_sleep = 2000;  // pause of a program between two submissions, in ms
  // Programs capture streams, and some of their work ends only with their next submission. They allocate
  // memory between these submissions.
  bool entangled = false;
  // Sometimes one process or all processes of a tenant are stopped. Some stops are announced to the arbiter.
  bool stops = false;
  bool queries = false;  // programs query the free memory
  bool terms = false;    // caps and claims of running jobs change; on some GPUs, deadlines limit the GPU
                         // threads of other tenants instead of their time
  bool forgets = false;  // tenants that have no process are forgotten
  bool learned = false;  // the arbiter learns of the GPUs from sessions, and later finds one GPU itself
  bool losses =
      false;  // GPUs fail, are lost, return and are drained; tenants use the GPUs where they are placed
  // Number of additional tenants that obey no order. A tenant that keeps other tenants waiting for 5 s is
  // ended. Its processes start again and reconnect.
  unsigned mutes = 0;
  Nanoseconds length = std::chrono::seconds(120);
  // Number of additional tenants of hostile clients; surveys then show the real memory of all clients. With
  // `absurd`, hostile clients also state arbitrary units, shares and deadlines. Cannot be combined with
  // `restarts`.
  unsigned hostile = 0;
  bool absurd = false;
  // The core gets surveys, each of which shows the memory that sessions had a moment before. Worlds with
  // hostile clients always have surveys.
  bool surveys = false;
  bool early_advances = false;  // domains are also advanced before their timers fire
  bool checked = true;          // checks after every event, not only after orders and records of the core
};

// The longest time for which a well-behaved client beside hostile clients waits for its turn or for an
// answer. It is the sum of a round of turns and of all delays that each tenant can cause. A policy may make
// the client wait longer.
Nanoseconds progress_bound(const Scenario& scenario);

class World : private simulation::Process, private HostileClients::Surroundings {
 public:
  // Called for every action as it is performed.
  using Listener = std::function<void(Nanoseconds now, const Action&)>;

  // Called after each event, with the core and its actions.
  using Watcher = std::function<void(Nanoseconds now, const Core&, const Event&, const Actions&)>;

  explicit World(const Scenario& scenario, Listener listener = {}, Watcher watcher = {});
  ~World() override;
  void run();

  // Counts of events. Tests check by these counts that the events happened.
  struct Tally {
    unsigned turns = 0;
    unsigned evictions = 0;
    unsigned refusals = 0;
    unsigned kernels = 0;
    unsigned stuck = 0;
    unsigned settled = 0;  // swappable memory became pinned
    unsigned steps = 0;    // single submissions that drained sessions were allowed to make
    unsigned late = 0;     // grants of memory to sessions whose turn was ending
    unsigned home = 0;     // gates that opened while the program needed its host memory
    unsigned host_refusals = 0;
    unsigned stops = 0;
    unsigned given_back = 0;  // turns that sessions yielded before the end
    unsigned taken = 0;       // stopped processes that lost their lease before they resumed
    unsigned late_work = 0;   // submissions of these processes by threads that had passed the gate
    unsigned bounded = 0;     // how often deadlines of other tenants lowered a tenant's limit
    unsigned answers = 0;     // number of answers to queries of free memory
    unsigned forgotten = 0;   // how often the core was told to forget a tenant without a process
    unsigned given_up = 0;    // how often a tenant that answers nothing and has no memory lost its lease
    unsigned cancelled = 0;   // tenants that obey no order and were ended
    unsigned host_waits = 0;  // growth that was delayed until host memory was freed
    unsigned away = 0;        // requests for away memory that were granted
    unsigned kept_home = 0;   // requests for away memory that were refused
    unsigned moved_in = 0;    // requests to move away memory to the GPU that were granted
    unsigned dropped = 0;     // sessions of hostile clients that were dropped
    unsigned gpu_changes = 0;
    unsigned lost_sessions = 0;  // sessions that were on a GPU when it was lost
    unsigned displaced = 0;      // tenants that got another GPU because their GPU had failed
    Nanoseconds longest_wait{};
    double most_actions = 0;  // largest number of actions after one event, without answers to requests,
                              // divided by the number of sessions plus one
    DecisionDigest decisions;
  };
  const Tally& tally() const { return tally_; }

 private:
  struct Client;

  void count(const Actions& actions);
  void perform(const Actions& actions);
  void check();
  void check_together(const Snapshot& state);
  void check_end();
  void check_alone(const Snapshot& state);
  void check_host();
  void check_counted(const Snapshot& state) const;
  void check_parts(const Snapshot& state);
  void check_allowed(const std::map<SessionId, std::optional<Bytes>>& shown) const;
  void check_reports() const;
  void check_waits();
  Bytes promised_to_honest(const Snapshot& state, const Snapshot::Gpu& gpu) const;
  void check_refusal(const Client& client, const Snapshot& state) const;
  void note_request(const Event& event);
  Claims claims_of(TenantId tenant) const;
  void restart();
  void switch_policy(std::string_view name);
  void arrive(TenantId tenant, unsigned gpu);
  void die(SessionId id);
  void stop_somebody();
  void advance_early();
  void survey();
  void change_terms();
  void forget_somebody();
  void find_gpu(unsigned gpu, bool learned);
  void end_mute(TenantId tenant);
  void change_gpu();
  void tell_of_gpu(unsigned gpu);
  std::optional<unsigned> place(TenantId tenant);
  void lose(Client& client);
  void check_gpus(const Snapshot& state);
  void stop(Client& client);
  void go_on(SessionId key);

  // the client's side
  template <class Body>
  void say(Client& client, const Body& body);
  void deliver(SessionId id, const Message& message);
  void work(Client& client);
  void next_order(Client& client);
  void report(Client& client, const Released& what);
  void report(Client& client, const Ready& what);
  void report(Client& client, const Usage& what);
  void gate_opened(Client& client);
  void pass(SessionId key);
  void live(Client& client);
  void capture(Client& client);
  void let_through(Client& client);
  void grow(Client& client);
  void shrink(Client& client);
  void compute(Client& client);
  void submit(Client& client);
  void complete(Client& client);
  void resume(Client& client);
  void watch_idle(SessionId id, unsigned generation);
  void watch_host(SessionId id);
  void tell_of_deadlines(SessionId id);
  void annoy(SessionId id);
  void hear_mutely(Client& client, const Message& message);
  void ask_for_memory(SessionId id);
  Usage usage(const Client& client, std::uint64_t request = 0, bool stuck = false) const;

  // overrides of simulation::Process
  Nanoseconds drain(simulation::Session& session, MessageType order) override;
  Nanoseconds submit_once(simulation::Session& session) override;
  bool can_evict(simulation::Session& session) override;
  bool waits(const simulation::Session& session) const override;
  Nanoseconds longest_submission(simulation::Session& session) override;

  // overrides of HostileClients::Surroundings
  Nanoseconds now() const override { return timeline_.now(); }
  void at(Nanoseconds time, std::function<void()> what) override;
  void tell(const Event& event) override;
  SessionId new_session() override { return SessionId{++last_session_}; }
  GpuUuid any_gpu() override { return uuids_[random(0, scenario_.gpus - 1)]; }
  bool winding_down() const override { return winding_down_; }
  unsigned random(unsigned least, unsigned most) override {
    return std::uniform_int_distribution<unsigned>(least, most)(random_);
  }
  Nanoseconds delay(unsigned most_milliseconds) {
    return std::chrono::microseconds(random(1, most_milliseconds * 1000));
  }

  Scenario scenario_;
  Listener listener_;
  Watcher watcher_;
  std::mt19937_64 random_;
  simulation::Timeline timeline_;
  Nanoseconds end_{};
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<Policy> elastic_ = make_policy("elastic");
  std::unique_ptr<Core> core_;
  unsigned life_ = 0;  // number of the present arbiter; messages to earlier arbiters are lost
  LeaseBook written_;  // the leases, computed from the records for the ledger
  std::map<TenantId, Bytes> caps_;
  std::map<TenantId, std::uint64_t> claims_changed_;  // number of changes of each tenant's claims
  std::set<TenantId> requested_;  // tenants that have connected, or have requested the GPU or memory, since
                                  // their last lease ended
  Nanoseconds last_written_{};
  std::vector<GpuUuid> uuids_;
  struct GpuState {
    GpuCondition condition = GpuCondition::healthy;
    bool drained = false;
    bool takes() const { return condition == GpuCondition::healthy && !drained; }
  };
  std::vector<GpuState> gpus_;  // gpus_[i] has the UUID uuids_[i]
  std::set<GpuUuid>
      begun_anew_;  // GPUs on which promises may exceed the GPU's memory after a restart of the arbiter
  std::map<SessionId, std::unique_ptr<Client>> clients_;
  std::optional<HostileClients> hostile_;  // empty if the simulation has no hostile clients
  std::uint64_t verdicts_ = 0;             // number of Verdicts sent to hostile clients
  std::uint64_t last_session_ = 0;
  bool winding_down_ = false;
  Tally tally_;
};

}  // namespace sharedgpu::test
