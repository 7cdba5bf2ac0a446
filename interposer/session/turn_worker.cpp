// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/turn_worker.h"

#include <algorithm>
#include <utility>

#include "interposer/gate/closing.h"
#include "interposer/gate/marks.h"
#include "interposer/session/log.h"

namespace sharedgpu::session {

using gate::now;

namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kContendedLook = 1ms;
constexpr Nanoseconds kQuietLook = 50ms;
constexpr Nanoseconds kDrainPatience = 500ms;  // time after which an exchange is given up
constexpr Nanoseconds kMergePatience = 10s;    // the same for merge()
constexpr Nanoseconds kRetry = 2ms;  // pause before a restore is repeated, while the driver still frees
                                     // another process's memory
constexpr Nanoseconds kTend = 1s;
constexpr Nanoseconds kTendOften = 50ms;
constexpr Nanoseconds kWantHome = 1s;  // time after which the request to restore evicted memory is repeated,
                                       // since the arbiter may have died meanwhile

double milliseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

}  // namespace

// Adds an order to the queue. An order to restore or evict moves memory until the resident limit is reached,
// and the newest limit has already been set. So if the last order in the queue has the same kind and the same
// turn, a second order is not needed.
void TurnWorker::push(const TurnOrder& order) {
  {
    std::lock_guard lock(mutex_);
    const bool moves = order.kind == TurnOrder::Kind::restore || order.kind == TurnOrder::Kind::evict;
    if (moves && !queue_.empty() && queue_.back().kind == order.kind && queue_.back().epoch == order.epoch)
      return;
    queue_.push_back(order);
  }
  wakeup_.raise();
}

void TurnWorker::allow(Bytes resident) {
  if (TurnMemory* mine = memory()) mine->set_allowed(resident);
}

void TurnWorker::allow_at_most(Bytes resident) {
  if (TurnMemory* mine = memory()) mine->set_allowed(std::min(mine->allowed(), resident));
}

void TurnWorker::prepare_host(Bytes size, unsigned sharers) {
  if (TurnMemory* mine = memory()) mine->prepare_host(size, sharers);
}

void TurnWorker::look() { wakeup_.raise(); }

void TurnWorker::give_back() {
  debug("turn %llu yielded", static_cast<unsigned long long>(epoch().value));
  outbox_.post({.type = MessageType::give_back, .epoch = epoch()});
}

void TurnWorker::run() {
  for (;;) {
    const std::uint32_t seen = wakeup_.seen();
    if (const auto order = take_front(mutex_, queue_)) {
      phase_ = obey(*order);
    } else if (const auto* restoring = std::get_if<Restoring>(&phase_)) {
      wakeup_.wait(seen, kRetry);
      tend();
      phase_ = obey(restoring->order);
    } else if (paused_ != 0 && !std::holds_alternative<Closed>(phase_)) {
      wakeup_.wait(seen, kRetry);
      tend();
      restore_memory();
    } else {
      tend();
      watch();
      wakeup_.wait(seen, gate::contended(slot_) ? kContendedLook : kQuietLook);
    }
  }
}

LeasePhase TurnWorker::obey(const TurnOrder& order) {
  switch (order.kind) {
    case TurnOrder::Kind::restore:
      return restore(order);
    case TurnOrder::Kind::revoke:
      revoked_ = order.since;
      return after_drain(parts_.drain.close(), order);
    case TurnOrder::Kind::step:
      // The gate may be open: if the arbiter that sent this order has died, the next arbiter may already have
      // returned the lease.
      return gate::is_open() ? holding() : after_drain(parts_.drain.step(memory()), order);
    case TurnOrder::Kind::evict:
      if (memory() == nullptr || evict(*memory())) outbox_.usage(false);
      return std::holds_alternative<Restoring>(phase_) ? Closed{} : phase_;
    case TurnOrder::Kind::exchange:
      return exchange(*order.exchange);
    case TurnOrder::Kind::go_plain:
      if (!restore_memory()) return Restoring{order};
      gate::open_for_good(slot_);
      return Plain{};
  }
  return phase_;
}

// Carries out a Restore. If the resident limit is too small for all of the memory, the arbiter sends another
// Restore later.
LeasePhase TurnWorker::restore(const TurnOrder& order) {
  if (restore_memory()) {
    // Once Ready is sent, the gate may open at any time, and then this session holds the lease.
    gate::hold();
    debug("turn %llu ready", static_cast<unsigned long long>(order.epoch.value));
    outbox_.post({.type = MessageType::ready, .epoch = order.epoch});
    return holding();
  }
  if (memory()->use().resident < memory()->allowed()) return Restoring{order};
  return Closed{};
}

// `drained` is false if the gate was opened again during the drain, so that the session still holds the
// lease.
LeasePhase TurnWorker::after_drain(bool drained, const TurnOrder& order) {
  if (!drained) return holding();
  const Nanoseconds overuse = now() - revoked_;
  debug("turn %llu drained, %.3f ms after Revoke", static_cast<unsigned long long>(order.epoch.value),
        milliseconds(overuse));
  outbox_.post({.type = MessageType::released,
                .epoch = order.epoch,
                .order = order.number,
                .span = overuse,
                .submission = submission_});
  return Closed{};
}

// Returns the phase of a session that holds the lease. If the session already was in this phase, the
// IdleWatch keeps its state.
LeasePhase TurnWorker::holding() const {
  return std::holds_alternative<Holding>(phase_) ? phase_ : Holding{};
}

ExchangeResult TurnWorker::exchange(std::vector<CUdeviceptr> out, std::vector<CUdeviceptr> in) {
  const Nanoseconds begun = now();
  const ExchangeResult result =
      request(std::make_shared<ExchangeRequest>(std::move(out), std::move(in)), kDrainPatience);
  totals_.add_wait(now() - begun);
  outbox_.usage(false);  // reports the new totals now, since the process may end at any time
  return result;
}

ExchangeResult TurnWorker::merge(CUdeviceptr address) {
  return request(std::make_shared<ExchangeRequest>(address), kMergePatience);
}

// Cancels the request when the patience is over, unless handles are moving then.
ExchangeResult TurnWorker::request(const std::shared_ptr<ExchangeRequest>& request, Nanoseconds patience) {
  push({.kind = TurnOrder::Kind::exchange, .epoch = epoch(), .since = now(), .exchange = request});
  const Nanoseconds end = now() + patience;
  for (;;) {
    const std::uint32_t seen = request->changed.seen();
    if (request->done()) return request->result();
    const Nanoseconds left = end - now();
    if (left <= Nanoseconds(0) && request->cancel()) return {};
    request->changed.wait(seen, left > Nanoseconds(0) ? left : kQuietLook);
  }
}

// The process holds the lease throughout. If the arbiter revokes the lease meanwhile, the turn thread obeys
// afterwards. After a failure of the driver, a handle may lack physical memory until a restore succeeds. The
// gate stays paused until then, in this turn or a later one.
LeasePhase TurnWorker::exchange(ExchangeRequest& request) {
  Memory* const mine = memory();
  const bool movable = mine != nullptr && mine->away_memory() != nullptr;
  ExchangeResult result{.outcome = movable ? Exchanged::closed : Exchanged::partial};
  const Nanoseconds begun = now();
  const auto move = [&] {
    if (!request.move()) return true;
    const Nanoseconds drained = now();
    const Traffic before = mine->moved();
    result.outcome = carry_out(*mine, request);
    const Traffic moved = minus(mine->moved(), before);
    result.entered = moved.restored;
    if (request.merges == 0) totals_.add_move(moved, now() - drained);
    const bool restored = restore_memory();
    result.took = now() - drained;
    debug("exchanged %zu handles for %zu%s in %.2f ms, after a drain of %.2f ms%s", request.out.size(),
          request.in.size(), request.merges != 0 ? ", and made one handle of several," : "",
          milliseconds(result.took), milliseconds(drained - begun),
          result.outcome == Exchanged::complete ? "" : "; not completely");
    return restored;
  };
  if (movable && paused_ == 0)
    paused_ = parts_.drain.pause([&](std::uint32_t pause) { return request.begin(pause); }, move);
  request.end(result);
  return paused_ != 0 && std::holds_alternative<Closed>(phase_) ? Holding{} : phase_;
}

Exchanged TurnWorker::carry_out(Memory& memory, const ExchangeRequest& request) {
  CUresult result = CUDA_SUCCESS;
  if (request.merges != 0)
    result = memory.merge(request.merges);
  else if (!memory.away_memory()->exchange(request.out, request.in))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_ERROR_NOT_READY) return Exchanged::closed;
  return result == CUDA_SUCCESS ? Exchanged::complete : Exchanged::partial;
}

bool TurnWorker::evict(TurnMemory& memory) {
  const Nanoseconds begun = now();
  const bool done = memory.evict();
  const double took = milliseconds(now() - begun);
  const Eviction last = memory.last_eviction();
  if (last.no_room && !std::exchange(said_no_room_, true))
    say("the host memory of this job has no room for the device memory that must be evicted now; the device "
        "memory stays on the GPU, and other jobs wait");
  if (last.copied + last.unchanged + last.uniform == Bytes{}) return done;
  const auto mebibytes_of = [](Bytes size) { return static_cast<unsigned long long>(size.count >> 20); };
  debug("evicted in %.1f ms, in MiB: %llu copied, %llu unchanged, %llu uniform", took,
        mebibytes_of(last.copied), mebibytes_of(last.unchanged), mebibytes_of(last.uniform));
  return done;
}

bool TurnWorker::restore_memory() {
  Memory* const mine = memory();
  if (mine == nullptr) return true;
  const Nanoseconds begun = now();
  const Bytes before = mine->use().resident;
  const bool done = mine->restore();
  const Bytes came = minus(mine->use().resident, before);
  if (came != Bytes{})
    debug("restored %llu MiB in %.1f ms", static_cast<unsigned long long>(came.count >> 20),
          milliseconds(now() - begun));
  if (done && paused_ != 0) {
    if (!std::holds_alternative<Closed>(phase_)) gate::hold();
    gate::resume(std::exchange(paused_, 0));
  }
  return done;
}

void TurnWorker::tend() {
  Memory* mine = memory();
  if (mine == nullptr) return;
  tend_often(*mine);
  if (now() - tended_ < kTend) return;
  mine->tend();
  if (Bytes host = mine->use().host; std::exchange(host_, host) != host) {
    debug("%llu MiB of host memory held", static_cast<unsigned long long>(host.count >> 20));
    outbox_.usage(false);
  }
  if (const Exchanges totals = totals_.read(); std::exchange(reported_, totals) != totals)
    outbox_.usage(false);
  for (Maintenance* part : parts_.maintenance) part->run(*mine);
  tended_ = now();
}

void TurnWorker::tend_often(TurnMemory& memory) {
  if (now() - tended_often_ < kTendOften) return;
  memory.tend_freed();
  const bool short_of_host = memory.watch_host();
  tended_often_ = now();
  if (!short_of_host || tended_often_ - wanted_home_ < kWantHome) return;
  wanted_home_ = tended_often_;
  outbox_.want_home();
}

// Checks whether the session is idle. If a session has no memory, the arbiter opens the session's gate
// without sending Restore, so the phase may change to Holding here, too.
void TurnWorker::watch() {
  if (std::holds_alternative<Plain>(phase_)) return;
  auto* mine = std::get_if<Holding>(&phase_);
  if (!gate::is_open()) {
    if (mine != nullptr) mine->idle.stop();
    return;
  }
  if (mine == nullptr) mine = &phase_.emplace<Holding>();
  if (parts_.submissions != nullptr) submission_ = parts_.submissions->longest();
  const gate::Activity before = gate::activity();
  const bool busy = before.inside || (mine->idle.must_ask(before.passes) && !parts_.contexts.done());
  if (auto idle = mine->idle.look(now(), before.passes, busy, gate::contended(slot_)))
    outbox_.post({.type = MessageType::idle, .epoch = epoch(), .span = *idle});
}

}  // namespace sharedgpu::session
