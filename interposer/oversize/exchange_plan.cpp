// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/exchange_plan.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

namespace sharedgpu {

namespace {

// A handle comes in early only if the next need of each handle that leaves for it is more than this many
// times as distant. With a smaller ratio it is better to wait, since a later exchange may find handles whose
// next need is even more distant. With 2 instead of 4, programs move up to 8% more bytes
// (build/bench/bench_eviction_order).
constexpr std::uint64_t kLater = 4;

struct Ranked {
  std::uint64_t handle;
  Bytes size;
  std::uint64_t next;   // NeedOrder::next()
  std::uint64_t since;  // NeedOrder::since() if the handle has no next need; otherwise zero
};

Ranked ranked(const NeedOrder& order, const Candidate& each) {
  const std::uint64_t next = order.next(each.handle);
  return {each.handle, each.size, next, next == NeedOrder::kNever ? order.since(each.handle) : 0};
}

bool needed_sooner(const Ranked& a, const Ranked& b) {
  return std::tie(a.next, a.since, a.handle) < std::tie(b.next, b.since, b.handle);
}

// The handles on the GPU that may leave, sorted by their next need. The handle that is needed last is at the
// end.
class Leavers {
 public:
  explicit Leavers(std::vector<Ranked> handles) : handles_(std::move(handles)) {
    std::ranges::sort(handles_, needed_sooner);
    for (const Ranked& each : handles_) total_ += each.size;
  }
  Bytes total() const { return total_; }

  // Makes handles of at least `room` bytes leave, beginning with the handle that is needed last. Only handles
  // whose next need is after `before` may leave. A chosen handle stays if the other chosen handles make
  // enough room. Returns the bytes of the handles that leave. If there are too few handles, no handle leaves,
  // and the result is nullopt.
  std::optional<Bytes> leave(Bytes room, std::uint64_t before) {
    Bytes found;
    auto first = handles_.end();
    while (found < room) {
      if (first == handles_.begin() || std::prev(first)->next <= before) return std::nullopt;
      found += (--first)->size;
    }
    const std::vector<Ranked> chosen(first, handles_.end());
    handles_.erase(first, handles_.end());
    total_ -= found;
    // The chosen handles that are needed soonest may stay.
    for (const Ranked& each : chosen) {
      const bool stays = found - each.size >= room;
      (stays ? handles_ : left_).push_back(each);
      if (!stays) continue;
      found -= each.size;
      total_ += each.size;
    }
    return found;
  }
  // The handles that leave. `free`: the room that would stay unused. Handles that fit into this room stay
  // after all.
  std::vector<std::uint64_t> left(Bytes free) const {
    std::vector<std::uint64_t> handles;
    for (const Ranked& each : left_) {
      if (each.size <= free)
        free -= each.size;
      else
        handles.push_back(each.handle);
    }
    return handles;
  }

 private:
  std::vector<Ranked> handles_;
  std::vector<Ranked> left_;
  Bytes total_;
};

// The needed handles with their ranks, sorted by address. A handle's rank is its position in `needed`.
std::vector<std::pair<std::uint64_t, std::size_t>> by_address(std::span<const std::uint64_t> needed) {
  std::vector<std::pair<std::uint64_t, std::size_t>> sorted;
  for (std::size_t i = 0; i < needed.size(); ++i) sorted.emplace_back(needed[i], i);
  std::ranges::sort(sorted);
  return sorted;
}

}  // namespace

Plan plan(const NeedOrder& order, std::span<const Candidate> candidates,
          std::span<const std::uint64_t> needed, Bytes free, Bytes most) {
  const auto ranks = by_address(needed);
  std::vector<std::pair<std::size_t, Candidate>> missing;  // needed handles that are away, with their ranks
  std::vector<Ranked> may_leave;
  std::vector<Ranked> may_come;
  for (const Candidate& each : candidates) {
    const auto rank = std::ranges::lower_bound(ranks, std::pair(each.handle, std::size_t{0}));
    const bool is_needed = rank != ranks.end() && rank->first == each.handle;
    if (is_needed && each.on_gpu) continue;
    if (is_needed)
      missing.emplace_back(rank->second, each);
    else
      (each.on_gpu ? may_leave : may_come).push_back(ranked(order, each));
  }
  std::ranges::sort(missing, {}, [](const auto& each) { return each.first; });
  Leavers leavers(std::move(may_leave));

  Plan result;
  Bytes entering;
  for (const auto& [rank, each] : missing) {
    if (entering + each.size > free + leavers.total()) continue;
    entering += each.size;
    result.in.push_back(each.handle);
  }
  const auto make_room = [&](Bytes size, std::uint64_t before) {
    const std::optional<Bytes> left = leavers.leave(minus(size, free), before);
    if (left) free = free + *left - size;
    return left.has_value();
  };
  make_room(entering, 0);

  // Until an order is learned, future needs are unknown.
  if (!order.learned()) may_come.clear();
  std::ranges::sort(may_come, needed_sooner);
  for (const Ranked& each : may_come) {
    if (each.next == NeedOrder::kNever || entering + each.size > most) break;
    if (!make_room(each.size, each.next * kLater)) break;
    entering += each.size;
    result.in.push_back(each.handle);
  }
  // Later choices may have made enough room that a handle chosen earlier need not leave.
  result.out = leavers.left(free);
  return result;
}

}  // namespace sharedgpu
