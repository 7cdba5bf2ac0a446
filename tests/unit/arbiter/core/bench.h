// SPDX-License-Identifier: Apache-2.0
// A core with sessions that the test drives.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "arbiter/core/core.h"
#include "arbiter/policy/registry.h"
#include "simulation/session.h"

namespace sharedgpu {

inline const GpuUuid kGpu{{1}};
inline const GpuUuid kOther{{2}};
inline const GpuUuid kThird{{3}};

// A core with one GPU of 100 MiB (and 20 MiB more for contexts), and sessions that the test drives.
struct Bench {
  std::unique_ptr<Policy> policy = make_policy("round-robin");
  std::unique_ptr<Core> core;
  Nanoseconds now = std::chrono::seconds(1000);
  Actions last;
  // The last messages of the core to each session. The tests carry out the orders in these messages.
  std::map<std::uint64_t, simulation::Session> told;
  LeaseBook written;                            // the leases, computed from the recorded grants and releases
  std::optional<Nanoseconds> timer;             // the timer that the last step armed
  std::vector<std::string> notes;               // the notes of the last step
  std::vector<Overstay> overstays;              // the overstays of all steps
  std::map<std::uint64_t, GangReport> reports;  // the last report of each tenant

  explicit Bench(Recovered recovered = {}, TurnRules turns = {.fixed = std::chrono::seconds(10)},
                 Nanoseconds surge_pause = {}, std::optional<OveruseRules> overuse = {},
                 Nanoseconds first_surveys = {}) {
    written = recovered.leases;
    Tuning tuning;
    tuning.evict_step = Bytes{};
    tuning.surge_pause = surge_pause;
    tuning.turns = turns;
    tuning.overuse = overuse;
    tuning.first_surveys = first_surveys;
    core = std::make_unique<Core>(tuning, *policy, std::move(recovered), now);
    for (const GpuUuid& gpu : {kGpu, kOther})
      handle(GpuFound{.gpu = gpu, .total = mebibytes(120), .capacity = mebibytes(100), .learned = false});
  }

  void handle(const Event& event) {
    last = core->handle(event, now);
    timer.reset();
    notes.clear();
    for (const Action& action : last) std::visit([this](const auto& what) { hear(what); }, action);
  }
  template <class Body>
  void say(std::uint64_t session, const Body& body) {
    handle(From<Body>{.session = SessionId{session}, .body = body});
  }
  void come(std::uint64_t session, std::uint64_t tenant, const Hello& hello = {}, Bytes cap = {}) {
    handle(SessionCame{.session = SessionId{session},
                       .tenant = TenantId{tenant},
                       .step = {.job = static_cast<std::uint32_t>(tenant), .step = 0},
                       .cap = cap,
                       .expected = hello.resuming != 0,
                       .hello = hello});
  }
  // The process of session `old` reconnects as session `heir`. The caller then attaches the new session.
  void succeed(std::uint64_t old, std::uint64_t heir) {
    come(heir, session(old).tenant.value);
    handle(SessionGone{.session = SessionId{old}, .heir = SessionId{heir}});
  }
  void attach(std::uint64_t session, const GpuUuid& gpu = kGpu) {
    say(session, Attach{.gpu = gpu, .total = {}, .name = {}});
  }
  // Connects, attaches and allocates `size`, all of it resident.
  void settle_in(std::uint64_t session, std::uint64_t tenant, unsigned size) {
    come(session, tenant);
    attach(session);
    grow(session, size, 0);
    tell(session, size, size);
  }
  // Connects, attaches and requests `size`, which does not fit, and drains if it has a lease.
  void queue_up(std::uint64_t session, std::uint64_t tenant, unsigned size) {
    come(session, tenant);
    attach(session);
    grow(session, size, 0);
    release(session, 0, true);
  }
  static MemoryUse use(unsigned swappable, unsigned resident, unsigned pinned = 0) {
    return {.swappable = mebibytes(swappable),
            .resident = mebibytes(resident),
            .pinned = mebibytes(pinned),
            .context = {},
            .host = {}};
  }
  void grow(std::uint64_t session, unsigned swappable, unsigned resident, unsigned pinned = 0) {
    say(session, Usage{.request = 1, .use = use(swappable, resident, pinned), .stuck = 0});
  }
  void tell(std::uint64_t session, unsigned swappable, unsigned resident, bool stuck = false) {
    say(session, Usage{.request = 0, .use = use(swappable, resident), .stuck = stuck});
  }
  void want(std::uint64_t session) { say(session, Want{}); }
  void release(std::uint64_t session, unsigned swappable, bool wants) {
    release(session, wants, use(swappable, swappable));
  }
  void release(std::uint64_t id, bool wants, MemoryUse its) {
    say(id, Released{.epoch = epoch(id), .order = told[id].order, .wants = wants, .overuse = {}, .use = its});
  }
  void ready(std::uint64_t session, unsigned swappable) {
    say(session, Ready{.epoch = epoch(session), .use = use(swappable, swappable)});
  }
  // The session requests to pin `size` MiB in place.
  void settle(std::uint64_t session, unsigned swappable, unsigned size) {
    MemoryUse its = use(swappable, swappable, size);
    its.settling = mebibytes(size);
    say(session, Usage{.request = 7, .use = its, .stuck = 0});
  }
  // The session's process is stopped, and resumed.
  void stop(std::uint64_t session) { handle(Looked{.session = SessionId{session}, .stopped = true}); }
  void go_on(std::uint64_t session) { handle(Looked{.session = SessionId{session}, .stopped = false}); }
  // Causes an event that changes nothing.
  void ask(std::uint64_t session) { say(session, MemoryQuery{.request = 9}); }
  // Moves the time forward in one step, without the timers in between. If a timer is then late by 100 ms or
  // more, the core assumes that the arbiter did not run.
  void pass(Nanoseconds time) {
    now += time;
    handle(TimerFired{});
  }
  // Lets time pass until the armed timer fires.
  void pass_to_timer() {
    if (!timer) throw std::logic_error("no timer was armed");
    pass(*timer - now);
  }
  // Lets time pass until a message of this kind is sent to the session, but at most for `most`. Returns the
  // time that has passed; nullopt: no such message was sent.
  template <class Body>
  std::optional<Nanoseconds> until_sent(std::uint64_t id, Nanoseconds most = std::chrono::minutes(1)) {
    const Nanoseconds begun = now;
    while (timer && *timer <= begun + most) {
      pass_to_timer();
      if (sent<Body>(id)) return now - begun;
    }
    now = begun + most;
    return std::nullopt;
  }
  // Lets this time pass. All timers of the core fire in time, and no other event happens.
  void pass_by_timers(Nanoseconds time) {
    const Nanoseconds end = now + time;
    while (timer && *timer <= end) pass_to_timer();
    if (now < end) now = end;
  }

  template <class Key>
  auto known(const Key& key) const {
    const Snapshot state = core->snapshot();
    const auto* found = state.find(key);
    if (found == nullptr) throw std::out_of_range("the core does not know it");
    return *found;
  }
  Snapshot::Session session(std::uint64_t id) const { return core->session(SessionId{id}).value(); }
  Snapshot::Tenant tenant(std::uint64_t id) const { return known(TenantId{id}); }
  Snapshot::Gpu gpu(const GpuUuid& uuid = kGpu) const { return known(uuid); }
  Epoch epoch(std::uint64_t id) const { return told.at(id).epoch; }
  bool open(std::uint64_t id) const { return told.at(id).page.open; }
  bool holds(std::uint64_t id) const { return written.holds(TenantId{id}); }

  // The messages of this kind that the last step sent to the session: all, the first, or the last message.
  template <class Body>
  std::vector<Body> all_sent(std::uint64_t id) const {
    std::vector<Body> all;
    for (const Action& action : last)
      if (const auto* send = std::get_if<Send>(&action))
        if (send->session == SessionId{id} && send->message.type == Body::kType)
          all.push_back(send->message.as<Body>());
    return all;
  }
  template <class Body>
  std::optional<Body> sent(std::uint64_t id) const {
    const std::vector<Body> all = all_sent<Body>(id);
    return all.empty() ? std::nullopt : std::optional(all.front());
  }
  template <class Body>
  std::optional<Body> last_sent(std::uint64_t id) const {
    const std::vector<Body> all = all_sent<Body>(id);
    return all.empty() ? std::nullopt : std::optional(all.back());
  }
  bool looked_at(std::uint64_t id) const {
    return std::any_of(last.begin(), last.end(), [id](const Action& action) {
      const auto* look = std::get_if<Look>(&action);
      return look != nullptr && look->session == SessionId{id};
    });
  }
  bool granted(std::uint64_t id) const {
    auto verdict = sent<Verdict>(id);
    return verdict && verdict->granted != 0;
  }
  bool refused(std::uint64_t id) const {
    auto verdict = sent<Verdict>(id);
    return verdict && verdict->granted == 0;
  }

 private:
  void hear(const Send& send) { told[send.session.value].receive(send.message); }
  void hear(const RecordLease& lease) {
    const bool news =
        lease.grant ? written.grant(lease.key, lease.epoch, lease.at) : written.release(lease.key, lease.at);
    if (!news) throw std::logic_error("a lease was recorded twice");
  }
  void hear(const ArmTimer& armed) { timer = armed.at; }
  void hear(const Note& note) { notes.push_back(note.text); }
  void hear(const TellGang& gang) { reports[gang.tenant.value] = gang.report; }
  void hear(const Overstay& overstay) { overstays.push_back(overstay); }
  void hear(const Drop&) {}
  void hear(const Look&) {}
  template <class OfPage>
  void hear(const OfPage& action) {
    told[action.session.value].page.set(action);
  }
};

// Tenant 2, with sessions 2 and 3, is leaving, and neither session has drained. Tenant 1 is entering.
inline Bench two_leave() {
  Bench b;
  b.settle_in(2, 2, 30);
  b.settle_in(3, 2, 30);
  b.queue_up(1, 1, 75);
  b.pass_by_timers(std::chrono::seconds(10));
  REQUIRE(b.sent<Revoke>(2));
  REQUIRE(b.sent<Revoke>(3));
  return b;
}

}  // namespace sharedgpu
