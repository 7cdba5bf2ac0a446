// SPDX-License-Identifier: Apache-2.0
// Sends arbitrary messages of arbitrary sessions to the core. No gate may be open outside of a turn, no
// session may be on a lost GPU, and the core may not set a timer to a time that has passed.
#include "arbiter/core/core.h"
#include "arbiter/policy/registry.h"
#include "input.h"

namespace {

using namespace sharedgpu;
using fuzz::Input;
using fuzz::require;

// Returns an order number for a message: the number of the last order to the session, or sometimes one less;
// 0 if there is no such session.
std::uint64_t order_of(const Core& core, SessionId id, Input& in) {
  const auto session = core.session(id);
  return !session ? 0 : session->order - (in.byte() % 8 == 0);
}

GangOrder gang_order(Input& in) {
  return {.seen = in.byte(),
          .command = static_cast<GangCommand>(in.byte() % 4),
          .possible = in.byte() % 2 == 0,
          .apart = in.byte() % 2 == 0,
          .stopped = in.byte() % 2 == 0,
          .wanted = in.byte() % 2 == 0,
          .idle = in.byte() % 2 == 0,
          .settled = in.byte() % 2 == 0,
          .urgent = in.byte() % 2 == 0,
          .drains = in.byte() % 2 == 0,
          .grows = in.byte() % 2 == 0,
          .steps = in.byte(),
          .since = std::chrono::seconds(in.byte() % 4)};
}

Event next_event(const Core& core, Input& in) {
  SessionId session{in.byte() % 6u + 1};
  Epoch epoch{in.byte()};
  switch (in.byte() % 19) {
    case 0: {
      Hello hello;
      const std::uint8_t kind = in.byte();
      hello.resuming = kind % 2;
      hello.held = in.byte() % 2;
      hello.wants = in.byte() % 2;
      hello.epoch = epoch;
      return SessionCame{.session = session,
                         .tenant = TenantId{in.byte() % 4u + 1},
                         .step = {.job = 1, .step = in.byte() % 2u},
                         .cap = in.size(),
                         .host_cap = in.size(),
                         .oversize = kind / 2 % 2 != 0,
                         .expected = in.byte() % 2 == 0,
                         .job = in.byte() % 2 == 0 ? in.byte() % 4u : 0,
                         .can_be_away = kind / 4 % 2 != 0,
                         .host_limit = mebibytes(kind / 8),
                         .hello = hello};
    }
    case 1:
      return SessionGone{.session = session, .heir = SessionId{in.byte() % 12u}};
    case 2:
      return From<Attach>{session, {.gpu = {{in.byte()}}, .total = {}, .name = {}}};
    case 3: {
      const std::uint8_t kind = in.byte();
      return From<Usage>{
          session, {.request = kind % 2u, .use = in.use(), .stuck = in.byte(), .away = mebibytes(kind / 2)}};
    }
    case 4:
      return From<Want>{session, {.host_short = in.byte()}};
    case 5:
      return From<Idle>{session, {.epoch = epoch, .idle = std::chrono::milliseconds(10 * in.byte())}};
    case 6:
      return From<Ready>{session, {.epoch = epoch, .use = in.use()}};
    case 7:
      return From<Released>{session,
                            {.epoch = epoch,
                             .order = order_of(core, session, in),
                             .wants = in.byte(),
                             .overuse = {},
                             .use = in.use()}};
    case 8:
      return From<MemoryQuery>{session, {}};
    case 9: {
      const std::uint8_t which = in.byte();
      return CapSet{.tenant = TenantId{which % 4u + 1},
                    .cap = in.size(),
                    .host_cap = in.size(),
                    .oversize = which / 4 % 2 != 0};
    }
    case 10:
      return Looked{.session = session, .stopped = in.byte() % 2 == 0};
    case 11:
      return Suspend{.tenant = TenantId{in.byte() % 4u + 1}, .suspended = in.byte() % 2 == 0};
    case 12: {
      GpuSurvey found{.unmanaged = in.size(), .limit = in.size(), .reserve = {}};
      for (std::uint64_t id = in.byte() % 6u; id > 0; --id) found.sessions[SessionId{id}] = in.size();
      return Surveyed{.gpu = {{in.byte()}}, .found = found};
    }
    case 13: {
      const TenantId tenant{in.byte() % 4u + 1};
      if (in.byte() % 4 == 0) return GangOrdered{.tenant = tenant, .order = std::nullopt};
      return GangOrdered{.tenant = tenant, .order = gang_order(in)};
    }
    case 14:
      return GpuChanged{.gpu = {{in.byte()}}, .condition = static_cast<GpuCondition>(in.byte() % 3)};
    case 15:
      return GpuDrained{.gpu = {{in.byte()}}, .drained = in.byte() % 2 == 0};
    case 16:
      return TuningSet{{.idle_release = std::chrono::milliseconds(in.byte()),
                        .most_overuse = std::chrono::seconds(in.byte()),
                        .cancel_overuse = in.byte() % 2 == 0}};
    case 17:
      return CapacitySet{.gpu = {{in.byte()}}, .capacity = in.size()};
    default:
      return TimerFired{};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto policy = make_policy("round-robin");
  Input in(data, size);
  Recovered recovered;
  if (in.byte() % 2 == 0) {
    LeaseKey key{.tenant = TenantId{1}, .gpu = {{1}}, .step = {.job = 1, .step = 0}};
    recovered.leases.grant(key, Epoch{7}, Nanoseconds(5));
    recovered.expected_sessions = in.byte() % 3;
  }
  Nanoseconds now(1000);
  Core core({}, *policy, recovered, now);
  for (std::uint8_t gpu : {std::uint8_t{1}, std::uint8_t{2}})
    core.handle(
        GpuFound{.gpu = {{gpu}}, .total = gibibytes(1), .capacity = mebibytes(900), .learned = gpu == 2},
        now);
  while (!in.empty()) {
    now += std::chrono::milliseconds(in.byte());
    for (const Action& action : core.handle(next_event(core, in), now))
      if (const auto* timer = std::get_if<ArmTimer>(&action))
        require(timer->at > now, "a timer that is due already");
    const Snapshot state = core.snapshot();
    for (const Snapshot::Session& session : state.sessions)
      require(!session.gate_open || state.find(session.tenant)->phase == Phase::running,
              "an open gate without a turn");
    for (const Snapshot::Gpu& gpu : state.gpus)
      require(gpu.condition != GpuCondition::lost || gpu.sessions.empty(), "a session on a lost GPU");
  }
  return 0;
}
