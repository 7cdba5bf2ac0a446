// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/turns.h"

#include <algorithm>

#include "interposer/gate/control.h"
#include "interposer/session/log.h"
#include "interposer/session/session.h"

namespace sharedgpu::session {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kContendedLook = 2ms;
constexpr Nanoseconds kQuietLook = 50ms;
constexpr Nanoseconds kRetry = 2ms;  // the driver is still freeing what another process gave up
constexpr Nanoseconds kTend = 1s;

}  // namespace

void Turns::push(const Turn& turn) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(turn);
  }
  wakeup_.raise();
}

void Turns::look() { wakeup_.raise(); }

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
      wakeup_.wait(seen, gate::contended(seat_) ? kContendedLook : kQuietLook);
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
      if (memory() == nullptr || memory()->evict()) outbox_.usage(false);
      break;
    case Turn::Kind::go_plain:
      if (restore()) {
        gate::open_for_good(seat_);
        break;
      }
      unfinished_ = turn;
      retry_ = true;
      break;
  }
}

bool Turns::restore() { return memory() == nullptr || memory()->restore(); }

void Turns::release(const Turn& turn) {
  revoked_ = turn.since;
  if (drain_.close()) say_released(turn);
}

// The gate may be open where the arbiter that wanted this is gone: then the next one gave the lease back.
void Turns::step(const Turn& turn) {
  if (!gate::is_open() && drain_.step(memory())) say_released(turn);
}

void Turns::say_released(const Turn& turn) {
  // A thread may be allocating: from here on it takes no room that the arbiter gives to others.
  if (Memory* mine = memory()) mine->set_allowed(std::min(mine->allowed(), mine->use().resident));
  Nanoseconds overuse = now() - revoked_;
  debug("turn %llu released, %.3f ms after Revoke", static_cast<unsigned long long>(turn.epoch.value),
        static_cast<double>(overuse.count()) / 1e6);
  outbox_.post({.type = MessageType::released, .epoch = turn.epoch, .order = turn.order, .span = overuse});
}

void Turns::tend() {
  Memory* mine = memory();
  if (mine == nullptr || now() - tended_ < kTend) return;
  mine->tend();
  borrowing().tend(*mine);
  if (auto* also = also_tend_.load(std::memory_order_acquire)) also();
  tended_ = now();
}

// A per-thread default stream can be asked by its thread alone: taken for busy as long as that lives.
bool Turns::idle() { return !gate::activity().own_streams && contexts_.idle(); }

void Turns::watch() {
  if (!gate::is_open()) {
    idle_watch_.stop();
    return;
  }
  const gate::Activity before = gate::activity();
  const bool busy = before.inside || (idle_watch_.must_ask(before.passes) && !idle());
  if (auto idle = idle_watch_.look(now(), before.passes, busy, gate::contended(seat_)))
    outbox_.post(
        {.type = MessageType::idle, .epoch = {epoch_.load(std::memory_order_relaxed)}, .span = *idle});
}

}  // namespace sharedgpu::session
