// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/turns.h"

#include <algorithm>
#include <utility>

#include "interposer/gate/closing.h"
#include "interposer/gate/marks.h"
#include "interposer/session/log.h"
#include "interposer/session/session.h"

namespace sharedgpu::session {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kContendedLook = 1ms;
constexpr Nanoseconds kQuietLook = 50ms;
constexpr Nanoseconds kRetry = 2ms;  // the driver is still freeing what another process gave up
constexpr Nanoseconds kTend = 1s;
constexpr Nanoseconds kTendOften = 50ms;
constexpr Nanoseconds kWantHome = 1s;  // the arbiter may have died meanwhile

}  // namespace

// What is allowed has been told already. So of several orders to move memory up to that, one does.
void Turns::push(const Turn& turn) {
  {
    std::lock_guard lock(mutex_);
    const bool moves = turn.kind == Turn::Kind::restore || turn.kind == Turn::Kind::evict;
    if (moves && !queue_.empty() && queue_.back().kind == turn.kind && queue_.back().epoch == turn.epoch)
      return;
    queue_.push_back(turn);
  }
  wakeup_.raise();
}

void Turns::look() { wakeup_.raise(); }

void Turns::give_back() {
  const Epoch epoch{epoch_.load(std::memory_order_relaxed)};
  debug("turn %llu given back", static_cast<unsigned long long>(epoch.value));
  outbox_.post({.type = MessageType::give_back, .epoch = epoch});
}

bool Turns::pop(Turn& turn) {
  std::lock_guard lock(mutex_);
  if (queue_.empty()) return false;
  turn = queue_.front();
  queue_.erase(queue_.begin());
  return true;
}

void Turns::run() {
  for (;;) {
    std::uint32_t seen = wakeup_.seen();
    Turn turn;
    if (pop(turn)) {
      retry_ = false;
      obey(turn);
    } else if (retry_) {
      wakeup_.wait(seen, kRetry);
      tend();
      retry_ = false;
      obey(unfinished_);
    } else {
      tend();
      watch();
      wakeup_.wait(seen, gate::contended(slot_) ? kContendedLook : kQuietLook);
    }
  }
}

void Turns::obey(const Turn& turn) {
  switch (turn.kind) {
    case Turn::Kind::restore:
      if (restore()) {
        // From Ready on the page may open at any time, and then the lease is ours.
        gate::hold();
        debug("turn %llu ready", static_cast<unsigned long long>(turn.epoch.value));
        outbox_.post({.type = MessageType::ready, .epoch = turn.epoch});
      } else if (memory()->use().resident < memory()->allowed()) {
        unfinished_ = turn;
        retry_ = true;
      }
      break;
    case Turn::Kind::revoke:
      release(turn);
      break;
    case Turn::Kind::step:
      step(turn);
      break;
    case Turn::Kind::evict:
      if (memory() == nullptr || evict(*memory())) outbox_.usage(false);
      break;
    case Turn::Kind::go_plain:
      if (restore()) {
        gate::open_for_good(slot_);
        break;
      }
      unfinished_ = turn;
      retry_ = true;
      break;
  }
}

bool Turns::evict(Memory& memory) {
  const Nanoseconds begun = now();
  const bool done = memory.evict();
  const auto took = static_cast<double>((now() - begun).count()) / 1e6;
  const Eviction last = memory.last_eviction();
  if (last.no_room && !std::exchange(said_no_room_, true))
    say("this job's host memory (--mem) has no room for what should leave the GPU now; it stays there, and "
        "other jobs wait");
  if (last.copied + last.unchanged + last.uniform == Bytes{}) return done;
  const auto mebibytes_of = [](Bytes size) { return static_cast<unsigned long long>(size.count >> 20); };
  debug("evicted in %.1f ms, in MiB: %llu copied, %llu unchanged, %llu uniform", took,
        mebibytes_of(last.copied), mebibytes_of(last.unchanged), mebibytes_of(last.uniform));
  return done;
}

bool Turns::restore() {
  Memory* const mine = memory();
  if (mine == nullptr) return true;
  const Nanoseconds begun = now();
  const Bytes before = mine->use().resident;
  const bool done = mine->restore();
  const Bytes came = minus(mine->use().resident, before);
  if (came != Bytes{})
    debug("restored %llu MiB in %.1f ms", static_cast<unsigned long long>(came.count >> 20),
          static_cast<double>((now() - begun).count()) / 1e6);
  return done;
}

void Turns::release(const Turn& turn) {
  revoked_ = turn.since;
  if (drain_.close()) say_released(turn);
}

// The gate may be open where the arbiter that wanted this is gone: then the next one gave the lease back.
void Turns::step(const Turn& turn) {
  if (!gate::is_open() && drain_.step(memory())) say_released(turn);
}

void Turns::say_released(const Turn& turn) {
  Nanoseconds overuse = now() - revoked_;
  debug("turn %llu released, %.3f ms after Revoke", static_cast<unsigned long long>(turn.epoch.value),
        static_cast<double>(overuse.count()) / 1e6);
  outbox_.post({.type = MessageType::released,
                .epoch = turn.epoch,
                .order = turn.order,
                .span = overuse,
                .submission = submission_});
}

void Turns::tend() {
  Memory* mine = memory();
  if (mine == nullptr) return;
  tend_often(*mine);
  if (now() - tended_ < kTend) return;
  mine->tend();
  if (Bytes host = mine->use().host; std::exchange(host_, host) != host) {
    debug("%llu MiB of host memory held", static_cast<unsigned long long>(host.count >> 20));
    outbox_.usage(false);
  }
  borrowing().tend(*mine);
  if (auto* also = also_tend_.load(std::memory_order_acquire)) also();
  tended_ = now();
}

void Turns::tend_often(Memory& memory) {
  if (now() - tended_often_ < kTendOften) return;
  memory.tend_freed();
  const bool short_of_host = memory.watch_host();
  tended_often_ = now();
  if (!short_of_host || tended_often_ - wanted_home_ < kWantHome) return;
  wanted_home_ = tended_often_;
  outbox_.want_home();
}

void Turns::watch() {
  if (!gate::is_open()) {
    idle_watch_.stop();
    return;
  }
  if (auto* measure = measure_.load(std::memory_order_acquire)) submission_ = measure();
  const gate::Activity before = gate::activity();
  const bool busy = before.inside || (idle_watch_.must_ask(before.passes) && !idle());
  if (auto idle = idle_watch_.look(now(), before.passes, busy, gate::contended(slot_)))
    outbox_.post(
        {.type = MessageType::idle, .epoch = {epoch_.load(std::memory_order_relaxed)}, .span = *idle});
}

}  // namespace sharedgpu::session
