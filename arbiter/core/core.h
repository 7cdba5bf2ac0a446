// SPDX-License-Identifier: Apache-2.0
// The arbiter's mind: a deterministic state machine, (state, event, now) -> (state, actions).
//
// It knows no socket, clock, file or thread; the daemon, the tests and the simulator all run this very code.
// Every event is handled in two parts: its handler enters into the books what it tells (core.cpp), then
// settle() moves the state to where it should be: who runs (plan.cpp, turns.cpp) for how long (timing.cpp),
// which memory moves (residency.cpp); but looks only at who is awake (rest.cpp). settle() derives everything
// from the state and can be run at any time; so an event that is lost, repeated or crosses another costs time
// at most. What is told of one domain changes nothing in another, which is not looked at then. One thread at
// a time.
#pragma once

#include <functional>
#include <queue>
#include <tuple>

#include "arbiter/core/events.h"
#include "arbiter/core/recovered.h"
#include "arbiter/core/state.h"
#include "arbiter/policy/policy.h"
#include "arbiter/policy/turn_length.h"

namespace sharedgpu {

struct Tuning {
  TurnRules turns;
  // An idle tenant that others wait for is not made to leave sooner than after this, see policy/idleness.h;
  // but always after idle_cap.
  Nanoseconds idle_release = std::chrono::milliseconds(5);
  Nanoseconds idle_cap = std::chrono::seconds(1);
  // After a restart: how long to wait for sessions that the ledger knows before memory is promised anew.
  Nanoseconds grace = std::chrono::seconds(2);
  // A session that was asked to do something and shows no progress for this long, and for a second per GiB
  // that it has to move, is planned around.
  Nanoseconds patience = std::chrono::seconds(10);
  // One that may restore all it has and is not ready after this long, and a second per GiB, finds less memory
  // than the books say: others evict more for it.
  Nanoseconds shortage = std::chrono::milliseconds(500);
  // Where leave to settle memory is asked on the way out, and no room can be made: refused after this.
  Nanoseconds settle = kSettlePatience;
  // Growth that only waits for host memory to be given back is refused after this.
  Nanoseconds host_patience = std::chrono::seconds(3);
  // How long a session that could not evict is left alone.
  Nanoseconds stuck_retry = std::chrono::seconds(1);
  // A tenant whose gates have been closed for so long, and some of whose sessions have drained and some not:
  // those that have are let forward, see Step; and again after the pause, or longer.
  Nanoseconds step_after = std::chrono::milliseconds(100);
  Nanoseconds step_pause = std::chrono::milliseconds(2);
  // Between two looks at whether a process is stopped that an answer is missing of.
  Nanoseconds look = std::chrono::milliseconds(250);
  // A tenant's lease is taken so long after it could last submit anything, where its processes are stopped:
  // what they had submitted goes on, and nobody can tell when it is done.
  Nanoseconds stop_grace = std::chrono::seconds(1);
  // Who was said to be about to be stopped, and never is, goes on after this.
  Nanoseconds suspend_notice = std::chrono::seconds(30);
  // The least to evict for a growing tenant, so that small allocations do not cost a message each.
  Bytes evict_step = mebibytes(64);
  // A footprint that has not grown for so long has grown up, see policy/surge.h.
  Nanoseconds surge_pause = std::chrono::seconds(1);
  // A tenant whose host memory runs short interrupts others at once, but not again before this.
  Nanoseconds home_pause = std::chrono::seconds(30);
  // Less host memory than before must have been enough for so long until sessions give it back.
  Nanoseconds host_calm = std::chrono::seconds(5);
};

// The device memory that may be handed out on a GPU.
constexpr Bytes capacity_of(Bytes total, Bytes limit, Bytes reserve) {
  Bytes kept = minus(total, reserve);
  return limit < kept ? limit : kept;
}

class Core {
 public:
  // The policy must outlive the core, as those that replace it must. It rules everywhere until a RulesSet.
  Core(const Tuning& tuning, const Policy& policy, Recovered recovered, Nanoseconds now);

  Actions step(const Event& event, Nanoseconds now);

  // The tenant will not come again, or is to begin at zero: its lease times are no longer of interest. What
  // it held before the core began, and has not come back for, has ended.
  Actions forget(TenantId tenant);

  Snapshot snapshot() const;
  // One session of it, or none. For callers that look at each message.
  std::optional<Snapshot::Session> session(SessionId id) const;
  const LeaseBook& leases() const { return leases_; }
  bool in_grace() const { return in_grace_; }
  // Whether what is kept for speed is what would be found by looking at everything. For tests.
  bool consistent() const;

  // The part of the GPU's threads for a process of such a tenant that starts now, see Rules::by_threads.
  static double threads_on(const Snapshot::Gpu& gpu, const Claims& claims);

  // What a tenant with that cap (zero: none) sees of a GPU, whether or not it has a session there.
  struct Room {
    Bytes total;
    Bytes free;  // what it may still allocate
  };
  Room room(const GpuUuid& gpu, TenantId tenant, Bytes cap, const StepName& step) const;

 private:
  // snapshot.cpp
  Snapshot::Session view_of(const Session& session) const;
  Snapshot::Tenant view_of(const Tenant& tenant) const;
  Snapshot::Gpu view_of(const Gpu& gpu) const;

  // GPUs that have a tenant in common: their running sets change together. So one GPU's rules hold for all of
  // them: those of the first in the host's order.
  struct Domain {
    std::vector<Gpu*> gpus;
    Rules rules;
    Nanoseconds due{};  // when it is to be settled next; zero: with the next event
    std::vector<Tenant*> tenants;
    std::vector<Tenant*> awake;       // in the same order, see rest.cpp
    std::size_t resting_waiters = 0;  // of the others
    TurnLength turn;
    // It was reckoned from these, and they from what is noted of the tenants, which may have changed since.
    unsigned sets = 1;  // running sets, if all wanted to run
    unsigned waiting_sets = 0;
    Nanoseconds handoff{};
    struct Stale {
      bool needs = true;
      bool turns = true;
      bool waiting = true;
      bool operator==(const Stale&) const = default;
    } stale;
    bool timed = false;    // the time of one is ruled, see policy.h
    bool limited = false;  // and it has a limit
    bool shared = false;   // what is due to each follows from who competes now
    // Of what deadlines leave to others: the earliest that one may end by silence; max(): there is none.
    Nanoseconds bounds_hold_until{};
    // What all its tenants were told.
    std::optional<bool> contended;
    std::optional<bool> oversubscribed;
    struct Stakes {  // how many of its tenants have which
      unsigned entering = 0;
      unsigned leases = 0;
      void count(const Tenant::Stake& stake, int times) {
        entering += stake.enters ? times : 0;
        leases += stake.holds ? times : 0;
      }
      bool operator==(const Stakes&) const = default;
    } stakes;
    Standing common;  // what all standings have in common, with the share of one that is due all of the time
  };
  // When a running set's turn began, and whether it is over.
  struct Turn {
    Nanoseconds began{};
    Nanoseconds left{};
    bool over = false;
    bool begun = false;  // false: nobody runs yet, or the one it is for is still on its way in
  };

  // A tenant, and what the policy sees of it.
  struct Seen {
    Tenant* tenant;
    TenantView view;
    bool comes_home = false;
  };
  struct RunningSet {
    Turn turn;
    std::vector<Seen> members;  // in the order in which they would leave
    bool interruptible = true;  // not once the policy lets one that waits end nobody's turn
    bool goes_on = false;       // the turn is over, and the policy gives a member another
  };

  // core.cpp: what events tell
  void on(const GpuFound& event);
  void on(const SessionCame& event);
  void on(const SessionGone& event);
  void on(const CapSet& event);
  void on(const Place& event);
  void on(const Unplace& event);
  void on(const From<Attach>& event);
  void on(const From<Usage>& event);
  void on(const From<Want>& event);
  void on(const From<Idle>& event);
  void on(const From<GiveBack>& event);
  void on(const From<Ready>& event);
  void on(const From<Released>& event);
  void on(const From<MemoryQuery>& event);
  void on(const From<Deadlines>& event);
  void on(const RulesSet& event);
  void on(const Looked& event);
  void on(const Suspend& event);
  void on(const TimerFired& event);
  Session* find(SessionId id);
  Session* hear(SessionId id);
  void take_claims(Tenant& tenant, const Claims& stated);
  void take_rules(Tenant& tenant, const Rules& rules);
  void keep_account(const Tenant& tenant);
  void take_account(Tenant& tenant, const Policy& policy);
  static bool is_timed(const Tenant& tenant);
  const Rules& rules_of(const GpuUuid& gpu) const;
  void take_use(Session& session, MemoryUse told, bool may_grow);
  void take_residency(Session& session, MemoryUse told);
  bool could_ever_fit(const Session& session, const MemoryUse& use) const;
  // What the processes of a tenant could have to evict, over all GPUs.
  struct Evictable {
    Bytes of_step;
    Bytes of_all;
    Bytes held;  // of all, with what was freed and is still held as host memory
  };
  static Evictable evictable(const Tenant& tenant, const StepName& step, const Session* but = nullptr);
  static Evictable evictable_with(const Session& session, const MemoryUse& use);
  static Bytes passed_host_bound(const Session& session, const MemoryUse& use);
  static bool waits_for_host(const Session& session, const MemoryUse& use);
  void look_at_held_back(Gpu& gpu);
  void begin_request(Session& session, std::uint64_t request);
  // The most that host memory can ever hold of what a tenant evicts; nullopt: nobody bounds it.
  static std::optional<Bytes> host_budget(const Tenant& tenant);
  Room room(const Gpu& gpu, TenantId tenant, Bytes cap, const StepName& step) const;
  static Bytes host_room(const Tenant& tenant, const StepName& step);
  void no_longer_expected(Session& session);
  void end_grace();
  void end_lost_leases(const Tenant& tenant);
  void attach_resumed(Session& session);

  // plan.cpp: who runs
  void find_domains();
  void plan(Domain& domain);
  void drop_who_no_longer_fits(Domain& domain, const Turn& turn);
  void drop_who_does_not_answer(Domain& domain);
  void drop_who_may_not_go_on(Domain& domain);
  RunningSet running_set(const Domain& domain) const;
  struct InLine {
    Tenant* tenant;
    bool comes_home;
    Rank rank;
    Nanoseconds waited;
    bool operator<(const InLine& other) const {
      const auto order = [](const InLine& its) { return std::tie(its.comes_home, its.rank, its.waited); };
      return order(*this) != order(other) ? order(*this) < order(other) : tenant->id > other.tenant->id;
    }
  };
  using Line = std::priority_queue<InLine>;
  Line line_of(const Domain& domain);
  bool anybody_could_enter(const Domain& domain, const RunningSet& running) const;
  static void sort_as_they_leave(std::vector<Seen>& members, const Domain& domain, const Turn& turn);
  static bool may_leave(const Seen& member, const Seen& waiter, const Domain& domain,
                        const RunningSet& running);
  bool serve(Domain& domain, const Seen& waiter, RunningSet& running);
  void give_another_turn(const Domain& domain);
  bool fits_at_peak(const Domain& domain, Tenant& newcomer) const;
  Turn turn_of(const Domain& domain) const;
  TenantView view(const Tenant& tenant) const;
  static TurnView view(const Domain& domain, const Turn& turn) {
    return {.rules = domain.rules.turns, .turn = domain.turn, .over = turn.over};
  }

  // turns.cpp: a tenant's way in and out
  void enter(Domain& domain, Tenant& tenant, bool leads);
  void open_ready(Domain& domain);
  bool waits_for_drain(const Tenant& tenant) const;
  void open(Domain& domain, Tenant& tenant);
  void begin_turn(Domain& domain, Tenant& leader);
  void leave(Tenant& tenant);
  void begin_to_leave(Tenant& tenant) const;
  void revoke(Session& session);
  void finish_leaving(Tenant& tenant);
  void end_turn(Tenant& tenant);
  bool at_work(const Session& session) const;
  bool has_arrived(const Session& session) const;
  bool waits_to_grow(const Session& session) const;
  bool lags(const Session& session) const;
  bool starved(const Session& session) const;
  bool starved(const Tenant& tenant) const;
  void note_drained(const Session& session);
  void lend_to_who_came_back(const Tenant& tenant);
  void step_laggards(Tenant& tenant);
  void sync_leases(Tenant& tenant);
  void grant_lease(const Session& session);
  void end_leases(Tenant& tenant);
  void tell_contended(Domain& domain, bool contended);
  bool tell_oversubscribed(Domain& domain);

  // stopped.cpp: whose processes are stopped
  bool suspended(const Tenant& tenant) const { return tenant.suspended_until > now_; }
  bool absent(const Tenant& tenant) const { return suspended(tenant) || tenant.stopped(); }
  bool waits(const Tenant& tenant) const;
  bool others_wait(const Domain& domain) const;
  bool may_be_stopped(const Session& session) const;
  void look_for_stopped(Gpu& gpu);
  void goes_on(Session& session);
  void drop_who_is_absent(Domain& domain);
  void take_from_stopped(Tenant& tenant);
  void evict_before_the_stop(Gpu& gpu);

  // rest.cpp: who rests
  static void join(Gpu& gpu, Session& session);
  static void part(Gpu& gpu, Session& session);
  void wake(Tenant& tenant);
  void let_rest(Domain& domain);
  bool may_rest(const Tenant& tenant) const;
  bool has_nothing_under_way(const Session& session) const;

  // choice.cpp: who fits together
  enum class Reckoning : std::uint8_t { now, at_peak };
  void begin_choice(const Domain& domain, Reckoning reckoning = Reckoning::now) const;
  static void choose(Tenant& tenant, bool chosen);
  static bool fits(const Domain& domain);
  static bool everybody_fits(const Domain& domain);
  static void note_time(Domain& domain);
  static bool fits(const Tenant& newcomer);
  static unsigned for_each_set(const Domain& domain, Among among,
                               const std::function<void(const std::vector<Tenant*>&)>& each);

  // deadlines.cpp: what tenants with deadlines leave to others
  bool bounds_others(const Tenant& tenant) const;
  static Claims bounded(const Claims& stated, double part);
  static void bound(Tenant& tenant, double part, Domain& domain);
  void lift_bounds(Domain& domain);
  bool bounds_are_right(const Domain& domain) const;
  static void bound_threads(const Domain& domain, const Tenant& teller, const DeadlinesSeen& seen);

  // pressure.cpp: which host memory that will take
  void expect_evictions(Gpu& gpu);
  void tell_host(Session& session, Bytes need);

  // timing.cpp: how long
  void set_turn_length(Domain& domain) const;
  static void reckon_handoff(Domain& domain);
  static void note_least_waiting(const Domain& domain);
  void watch_turn(const Domain& domain);
  void tell_turn_ends(const Domain& domain, Nanoseconds at);
  Nanoseconds busy_time(const Tenant& tenant) const;
  static bool gives_turns_back(const Tenant& tenant);
  bool idle_enough(const Tenant& tenant) const;
  void end_pause(Tenant& tenant);
  Nanoseconds credit(const Tenant& tenant) const;
  void keep_credit(Tenant& tenant) const;
  void add_credit(Tenant& tenant, Nanoseconds more) const;
  void note_standing(Domain& domain, bool contended, bool crowded) const;
  static Standing standing_of(const Tenant& tenant, const Standing& common);
  struct Due {
    double share = 0;
    double due = 0;
  };
  std::vector<Due> shares(const Domain& domain) const;
  static void note_what_is_due_to_holders(const Domain& domain);
  Nanoseconds waited(const Tenant& tenant) const;
  Reckoned reckoned_of(const Tenant& tenant) const;
  bool as_reckoned(const Tenant& tenant) const;
  Tenant::Stake stake_of(const Tenant& tenant) const;
  bool said_host_short(const Session& session) const;
  void begin_burst(Tenant& tenant) const;
  bool must_come_home(const Tenant& tenant) const;

  // residency.cpp: which memory moves
  Bytes usable(const Gpu& gpu) const;
  Bytes promised(const Gpu& gpu) const;  // physical memory that sessions have or may take at any moment
  Bytes promised(const Session& session) const;
  Bytes whole(const Session& session) const;
  Bytes unevictable(const Session& session) const;
  void make_room(Gpu& gpu);
  const Tenant* first_starved(const Gpu& gpu) const;
  bool can_be_filled(const Tenant& tenant) const;
  void evict(Gpu& gpu, Bytes shortage, const Tenant* first);
  void evict_for_the_unknown(Gpu& gpu);
  void send_restores(Gpu& gpu);
  Bytes growth_ahead(const Gpu& gpu) const;
  Bytes settle_pinned(Gpu& gpu);
  void refuse_the_last(const Gpu& gpu);
  void refuse(Session& session, Bytes host_most = {});
  bool is_promised_already(Session& session);
  void answer_requests(Gpu& gpu);
  void notice_stuck(Gpu& gpu);
  Nanoseconds patience_for(Bytes moving) const;

  void look_at_all();
  void settle();
  void settle(Domain& domain);
  void arm_timer();
  void set_gate(Session& session, bool open);
  template <class Body>
  void send(Session& session, const Body& body);
  void wake_at(Nanoseconds at);

  Tuning tuning_;
  Rules rules_;                   // of the node
  std::map<GpuUuid, Rules> own_;  // of GPUs that have others
  State state_;
  std::vector<Domain> domains_;
  bool domains_changed_ = true;  // and are to be found anew: who uses which GPU has changed
  LeaseBook leases_;
  Epoch last_epoch_;
  std::uint64_t last_order_;
  bool in_grace_ = false;
  Nanoseconds grace_until_{};
  unsigned still_expected_ = 0;

  // Of the step under way.
  Nanoseconds now_{};
  Nanoseconds wake_{};
  bool moved_ = false;  // a tenant has gone in or out
  Actions actions_;
};

}  // namespace sharedgpu
