// SPDX-License-Identifier: Apache-2.0
// How long: the length of turns, what tenants have earned of interruptions, how long idleness is borne.
#include <algorithm>
#include <utility>

#include "arbiter/core/actions.h"
#include "arbiter/policy/credit.h"
#include "arbiter/policy/idleness.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::milliseconds kIdleNews{100};
constexpr std::chrono::seconds kHomeNews{3};
// What a tenant's way in takes is guessed from its size before it has been seen: bytes a second.
constexpr std::uint64_t kGuessedSpeed = 50'000'000'000;

struct Mean {
  Nanoseconds sum{};
  unsigned count = 0;
  Nanoseconds value() const { return count == 0 ? Nanoseconds{} : sum / count; }
  void add(Nanoseconds one) { sum += one, ++count; }
};

Nanoseconds guessed_handoff(const Tenant& tenant) {
  Bytes size;
  for (const Session* session : tenant.sessions) size += session->use.swappable;
  return std::chrono::milliseconds(size.count / (kGuessedSpeed / 1000));
}

}  // namespace

// A handoff to a running set takes about as long as the longest of its members'.
void Core::set_turn_length(Domain& domain) const {
  std::vector<Tenant*> waiting;
  std::vector<Tenant*> taking_turns;
  for (Tenant* tenant : domain.tenants) {
    if (tenant->taken || (tenant->phase == Phase::out && !waits(*tenant))) continue;
    if (tenant->phase == Phase::out) waiting.push_back(tenant);
    taking_turns.push_back(tenant);
  }
  Mean seen;
  Mean expected;
  begin_choice(domain);
  for (const std::vector<Tenant*>& set : sets_of(domain, taking_turns)) {
    Nanoseconds longest{};
    Nanoseconds longest_seen{};
    for (const Tenant* tenant : set) {
      longest_seen = std::max(longest_seen, tenant->handoff);
      longest =
          std::max(longest, tenant->handoff > Nanoseconds{} ? tenant->handoff : guessed_handoff(*tenant));
    }
    expected.add(longest);
    if (longest_seen > Nanoseconds{}) seen.add(longest_seen);
  }
  domain.turn =
      turn_length(tuning_.turns, expected.value(), static_cast<unsigned>(sets_of(domain, waiting).size()));
  const auto sets = static_cast<unsigned>(sets_of(domain, domain.tenants).size());
  for (Tenant* tenant : domain.tenants) {
    tenant->sets = sets;
    tenant->turn = domain.turn.length;
  }
  for (Gpu* gpu : domain.gpus) {
    gpu->turn = domain.turn;
    if (seen.count > 0) gpu->handoff = seen.value();
  }
}

// Brings every tenant's credit up to now, by the state that has been since the last event.
void Core::keep_credit() {
  for (auto& [id, tenant] : state_.tenants) {
    const bool contended = std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                                       [](const Session* session) { return session->contended; });
    const Standing standing{
        .pauses = tenant.phase == Phase::out && attached(tenant) && !tenant.wants(),
        .pays = contended && leases_.holds(id),
        .sets = tenant.sets,
        .turn = tenant.turn,
    };
    tenant.credit = credit_after(tenant.credit, standing, now_ - credit_kept_);
  }
  credit_kept_ = now_;
}

Nanoseconds Core::peace_of(const Tenant& tenant, Nanoseconds handoff) const {
  return peace_left(tenant.credit, now_ - tenant.opened, handoff);
}

// Where turns have a fixed length nobody interrupts them.
bool Core::urgent(const Tenant& tenant) const {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    return on_gpu(session) && session->gpu->turn.rule != TurnRule::fixed &&
           may_interrupt(tenant.credit, session->gpu->turn.handoff);
  });
}

// What it evicted is in the way of its job, which the kernel would end for that. It waits for no turn: while
// it is short of memory it evicts no more, and says so every second. That it is may be a lie, hence the
// pause.
bool Core::must_come_home(const Tenant& tenant) const {
  const bool may = tenant.brought_home == Nanoseconds{} || now_ - tenant.brought_home >= tuning_.home_pause;
  return may && tenant.phase == Phase::out &&
         std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* session) {
           return on_gpu(session) && session->host_short != Nanoseconds{} &&
                  now_ - session->host_short < kHomeNews;
         });
}

// Wakes the arbiter when the turn is over, or may be interrupted, and somebody waits.
void Core::watch_turn(const Domain& domain) {
  const Turn turn = turn_of(domain);
  auto still_waits = [this](const Tenant* tenant) { return waits(*tenant) || starved(*tenant); };
  if (!turn.begun || std::none_of(domain.tenants.begin(), domain.tenants.end(), still_waits)) return;
  wake_at(turn.began + domain.turn.length);
  for (const Tenant* tenant : domain.tenants)
    if (tenant->phase == Phase::running) wake_at(now_ + peace_of(*tenant, domain.turn.handoff));
}

bool Core::idle_enough(const Tenant& tenant) const {
  if (tenant.phase != Phase::running) return false;
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    if (!on_gpu(session) || session->stopped) return true;
    Nanoseconds least =
        idle_patience(session->gpu->turn.handoff, tenant.long_pauses, tuning_.idle_release, tuning_.idle_cap);
    // Sessions repeat themselves ever more rarely. One that says no more is at work again.
    Nanoseconds fresh = std::max<Nanoseconds>(2 * tuning_.idle_release, session->idle / 2 + kIdleNews);
    return session->idle > Nanoseconds{} && session->idle >= least && now_ - session->idle_told <= fresh;
  });
}

// A tenant asks for the GPU again.
void Core::end_pause(Tenant& tenant) {
  if (!std::exchange(tenant.idled, false)) return;
  const bool proved_long =
      std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
        return !on_gpu(session) || was_long(now_ - tenant.left, session->gpu->turn.handoff);
      });
  tenant.long_pauses = proved_long ? std::min(tenant.long_pauses + 1, kMostLongPauses) : 0;
}

}  // namespace sharedgpu
