// SPDX-License-Identifier: Apache-2.0
// A core with sessions that are moved by hand.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>

#include "arbiter/core/core.h"
#include "arbiter/policy/registry.h"

namespace sharedgpu {

inline const GpuUuid kGpu{{1}};
inline const GpuUuid kOther{{2}};

// A core with one GPU of 100 MiB (and 20 more for contexts), and sessions moved by hand.
struct Bench {
  std::unique_ptr<Policy> policy = make_policy("round-robin");
  std::unique_ptr<Core> core;
  Nanoseconds now = std::chrono::seconds(1000);
  Actions last;

  explicit Bench(Recovered recovered = {}, TurnRules turns = {.fixed = std::chrono::seconds(10)},
                 Nanoseconds surge_pause = {}) {
    Tuning tuning;
    tuning.evict_step = Bytes{};
    tuning.surge_pause = surge_pause;
    tuning.turns = turns;
    core = std::make_unique<Core>(tuning, *policy, std::move(recovered), now);
    for (const GpuUuid& gpu : {kGpu, kOther})
      step(GpuFound{.gpu = gpu, .total = mebibytes(120), .capacity = mebibytes(100), .learned = false});
  }

  void step(const Event& event) {
    last = core->step(event, now);
  }
  template <class Body>
  void say(std::uint64_t session, const Body& body) {
    step(From<Body>{.session = SessionId{session}, .body = body});
  }
  void come(std::uint64_t session, std::uint64_t tenant, const Hello& hello = {}, Bytes cap = {}) {
    step(SessionCame{.session = SessionId{session},
                     .tenant = TenantId{tenant},
                     .step = {.job = static_cast<std::uint32_t>(tenant), .step = 0},
                     .cap = cap,
                     .expected = hello.resuming != 0,
                     .hello = hello});
  }
  void attach(std::uint64_t session, const GpuUuid& gpu = kGpu) {
    say(session, Attach{.gpu = gpu, .total = {}, .name = {}});
  }
  // Comes, attaches and allocates `size`, all of it resident.
  void settle_in(std::uint64_t session, std::uint64_t tenant, unsigned size) {
    come(session, tenant);
    attach(session);
    grow(session, size, 0);
    tell(session, size, size);
  }
  // Comes, attaches and wants `size`, none of which fits, and lets go of what lease it had.
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
    say(id,
        Released{.epoch = epoch(id), .order = session(id).order, .wants = wants, .overuse = {}, .use = its});
  }
  void ready(std::uint64_t session, unsigned swappable) {
    say(session, Ready{.epoch = epoch(session), .use = use(swappable, swappable)});
  }
  void pass(Nanoseconds time) {
    now += time;
    step(TimerFired{});
  }
  // Until the core asks for.
  void pass_to_timer() {
    const auto timer = std::find_if(last.begin(), last.end(), [](const Action& action) {
      return std::holds_alternative<ArmTimer>(action);
    });
    if (timer == last.end()) throw std::logic_error("no timer was armed");
    pass(std::get<ArmTimer>(*timer).at - now);
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
  Epoch epoch(std::uint64_t id) const { return tenant(session(id).tenant.value).epoch; }
  bool open(std::uint64_t id) const { return session(id).gate_open; }

  // The message of that kind that the last step sent to the session.
  template <class Body>
  std::optional<Body> sent(std::uint64_t id) const {
    for (const Action& action : last)
      if (const auto* send = std::get_if<Send>(&action))
        if (send->session == SessionId{id} && send->message.type == Body::kType)
          return send->message.as<Body>();
    return std::nullopt;
  }
  bool granted(std::uint64_t id) const {
    auto verdict = sent<Verdict>(id);
    return verdict && verdict->granted != 0;
  }
};

}  // namespace sharedgpu
