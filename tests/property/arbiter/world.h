// SPDX-License-Identifier: Apache-2.0
// A small world for the core to rule: sessions that obey the protocol with delays of their own, on a GPU
// whose memory is counted, in a time that runs as fast as the computer can.
//
// Every step checks what must always hold; a breach is thrown as std::logic_error.
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
  unsigned capacity = 100;       // in MiB, per GPU
  unsigned largest_growth = 30;  // in MiB
  TurnRules turns{.fixed = std::chrono::milliseconds(500)};
  std::string policy = "round-robin";
  bool claims = false;     // tenants differ in units, priority and shares
  bool deadlines = false;  // some tell of deadlines, at random moments, and fall silent; with `claims`
  unsigned switches = 0;   // so often another policy takes over
  Nanoseconds patience{};  // how much longer a tenant may wait than a round of turns takes
  bool deaths = false;
  bool host_runs_out = false;  // evictions get stuck now and then
  bool host_short = false;     // programs need the host memory of what was evicted now and then
  // In MiB, of what can be evicted: of a tenant, as the site says; of a step and of its job, as sessions
  // tell. Zero: none.
  unsigned host_cap = 0;
  unsigned host_limit = 0;
  unsigned job_host_limit = 0;
  unsigned restarts = 0;
  bool pins = false;
  bool lockstep = false;  // a session's work ends only when all others of its tenant have given as much
  unsigned longest_sleep = 2000;  // of a program between two submissions, in ms
  // Programs capture, and some of their work ends only with what they submit next. They allocate meanwhile.
  bool entangled = false;
  bool stops =
      false;  // tenants' processes are stopped now and then, all or one; some of them are told before
  bool queries = false;  // programs ask how much memory is free
  bool terms = false;    // jobs get other caps and claims as they run; some GPUs rule threads, not time
  bool forgets = false;  // tenants that have no process are forgotten
  bool learned = false;  // only sessions tell of GPUs; the arbiter finds one of them late
  bool losses = false;   // GPUs fail, are lost, return and are drained; tenants go where they are placed
  // So many tenants more that obey no order. One that keeps others waiting for 5 s is ended, and comes again.
  unsigned mutes = 0;
  Nanoseconds length = std::chrono::seconds(120);
  // So many tenants more of hostile clients, on top of which surveys show what everybody really has. They
  // have any claims, too, where `absurd` says so. Not with restarts.
  unsigned hostile = 0;
  bool absurd = false;
  bool surveys = false;         // surveys show what sessions have, a little late
  bool early_advances = false;  // domains are advanced before their time, too
  bool checked = true;          // after every event; else only as sessions and the ledger are told what to do
};

// The longest time for which a client that behaves waits for the GPU or for an answer, beside hostile ones
// and where no policy makes it wait for longer: a round of turns, with all that each tenant can hold up.
Nanoseconds progress_bound(const Scenario& scenario);

class World : private simulation::Process, private HostileClients::Surroundings {
 public:
  // Hears of every action as it is performed.
  using Listener = std::function<void(Nanoseconds now, const Action&)>;

  // Sees the core after each event, and the actions that it asked for.
  using Watcher = std::function<void(Nanoseconds now, const Core&, const Event&, const Actions&)>;

  explicit World(const Scenario& scenario, Listener listener = {}, Watcher watcher = {});
  ~World() override;
  void run();

  // What was seen, for tests that want to know that something happened at all.
  struct Tally {
    unsigned turns = 0;
    unsigned evictions = 0;
    unsigned refusals = 0;
    unsigned kernels = 0;
    unsigned stuck = 0;
    unsigned settled = 0;  // what was swappable became pinned
    unsigned steps = 0;    // submissions that were let through for others of the tenant
    unsigned late = 0;     // growth with memory for a session whose turn was ending
    unsigned home = 0;     // sessions that came home for their host memory
    unsigned host_refusals = 0;
    unsigned stops = 0;
    unsigned given_back = 0;  // turns, before they were over
    unsigned taken = 0;       // leases of tenants whose processes were stopped
    unsigned late_work = 0;   // submitted after that, by threads that were past the gate before it
    unsigned bounded = 0;     // tenants, each time that deadlines of others left them less
    unsigned answers = 0;     // to programs that asked how much memory is free
    unsigned forgotten = 0;   // tenants
    unsigned given_up = 0;    // mutes that had nothing on the GPU
    unsigned cancelled = 0;   // mutes
    unsigned host_waits = 0;  // growth that was held back until host memory was given back
    unsigned dropped = 0;     // sessions of hostile clients
    unsigned gpu_changes = 0;
    unsigned lost_sessions = 0;  // that were on a GPU when it was lost
    unsigned displaced = 0;      // tenants that got another GPU for one that had failed
    Nanoseconds longest_wait{};
    double most_actions = 0;  // that followed from an event, for each session there was
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
  void check_parts(const Snapshot& state);
  void check_allowed(const std::map<SessionId, std::optional<Bytes>>& shown) const;
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

  // Process
  Nanoseconds drain(simulation::Session& session, MessageType order) override;
  Nanoseconds submit_once(simulation::Session& session) override;
  bool can_evict(simulation::Session& session) override;
  bool waits(const simulation::Session& session) const override;
  Nanoseconds longest_submission(simulation::Session& session) override;

  // Surroundings
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
  unsigned life_ = 0;  // of the arbiter: what was under way to a dead one is lost
  LeaseBook written_;  // what a ledger would hold
  std::map<TenantId, Bytes> caps_;
  std::map<TenantId, std::uint64_t> claims_changed_;  // so often
  std::set<TenantId> requested_;                      // asked for the GPU since their last lease ended
  Nanoseconds last_written_{};
  std::vector<GpuUuid> uuids_;
  struct GpuState {
    GpuCondition condition = GpuCondition::healthy;
    bool drained = false;
    bool takes() const { return condition == GpuCondition::healthy && !drained; }
  };
  std::vector<GpuState> gpus_;    // by their places in uuids_
  std::set<GpuUuid> begun_anew_;  // where more may count as promised than there is, since a restart
  std::map<SessionId, std::unique_ptr<Client>> clients_;
  std::optional<HostileClients> hostile_;  // none: there are none
  std::uint64_t verdicts_ = 0;             // to hostile clients
  std::uint64_t last_session_ = 0;
  bool winding_down_ = false;
  Tally tally_;
};

}  // namespace sharedgpu::test
