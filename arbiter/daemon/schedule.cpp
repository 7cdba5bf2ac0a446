// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/schedule.h"

#include <algorithm>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <memory>

namespace sharedgpu {
namespace {

constexpr std::chrono::microseconds kTurn{500};
// After this much time of users' work, the event loop handles timers, new connections and ended processes.
constexpr std::chrono::microseconds kPass{500};
// The minimum charge for a piece of work. The minimum covers the wakeup for a message, which is not measured
// and takes longer than the answer. The minimum also ends a user's turn if the clock stands still.
constexpr std::chrono::microseconds kLeastCost{10};
// The maximum charge for a piece of work. If a piece of work takes longer, the host was stalled, and the user
// is not charged for that.
constexpr std::chrono::milliseconds kMostCounted{10};

}  // namespace

Schedule::Schedule(asio::io_context& loop, const System& system)
    : loop_(loop), system_(system), waiting_(kTurn) {}

void Schedule::add(uid_t user, Work work) {
  waiting_.add(user, std::move(work));
  pass_soon();
}

void Schedule::pass_soon() {
  if (std::exchange(pass_is_due_, true)) return;
  asio::post(loop_, [this] { pass(); });
}

void Schedule::pass() {
  pass_is_due_ = false;
  Nanoseconds left = kPass;
  while (!waiting_.empty() && left > Nanoseconds{}) left -= serve_one(left);
  waiting_.settle();
  if (!waiting_.empty()) pass_soon();
}

// Does the next piece of work, and repeats it while it returns true, until its user's turn ends or the time
// `left` has passed. Returns the time taken.
Nanoseconds Schedule::serve_one(Nanoseconds left) {
  auto [user, work] = waiting_.take();
  Nanoseconds taken{};
  for (bool more = true; more;) {
    const Nanoseconds began = system_.now();
    more = work();
    const Nanoseconds cost = std::max<Nanoseconds>(system_.now() - began, kLeastCost);
    taken += cost;
    const bool goes_on = waiting_.charge(user, std::min<Nanoseconds>(cost, kMostCounted)) && taken < left;
    if (!more || goes_on) continue;
    waiting_.add(user, std::move(work));
    break;
  }
  charge(user, taken);
  return taken;
}

void Schedule::charge(uid_t user, Nanoseconds time) {
  if (user == 0) return;
  const std::chrono::duration<double> counted = std::min<Nanoseconds>(time, kMostCounted);
  const Nanoseconds rest = seconds_.charge(user, counted.count(), system_.now());
  if (rest <= Nanoseconds{}) return;
  waiting_.rest(user);
  const auto timer = std::make_shared<asio::steady_timer>(loop_, rest);
  timer->async_wait([this, user, timer](const asio::error_code& error) {
    if (error) return;
    waiting_.resume(user);
    pass_soon();
  });
}

}  // namespace sharedgpu
