// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/exchange_plan.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>

namespace sharedgpu {

namespace {

// A handle comes in early only for handles whose next need is this many times as far away: an exchange before
// the later need would find handles whose next need is even later. With 2 instead of 4, programs move up to
// 8% more bytes (build/bench/bench_eviction_order).
constexpr std::uint64_t kLater = 4;

struct Ranked {
  std::uint64_t handle;
  Bytes size;
  std::uint64_t next;   // NeedOrder::next()
  std::uint64_t since;  // NeedOrder::since()
};

bool needed_sooner(const Ranked& a, const Ranked& b) {
  return std::tie(a.next, a.since, a.handle) < std::tie(b.next, b.since, b.handle);
}

// The handles on the GPU that may leave. The handle that is needed last is at the end.
class Leavers {
 public:
  explicit Leavers(std::vector<Ranked> handles) : handles_(std::move(handles)) {
    std::ranges::sort(handles_, needed_sooner);
    for (const Ranked& each : handles_) total_ += each.size;
  }
  Bytes total() const { return total_; }

  // Adds handles of at least `room` bytes to `out`, the handle that is needed last first. No handle is added
  // without which there would be enough room, and none whose next need is not after `before`. Returns the
  // bytes of the added handles, or nothing if there are too few handles; then none is added.
  std::optional<Bytes> leave(Bytes room, std::uint64_t before, std::vector<std::uint64_t>& out) {
    Bytes found;
    std::size_t first = handles_.size();
    while (found < room) {
      if (first == 0 || handles_[first - 1].next <= before) return std::nullopt;
      found += handles_[--first].size;
    }
    std::size_t stays = first;
    for (std::size_t i = first; i < handles_.size(); ++i) {
      const Ranked each = handles_[i];
      if (found - each.size >= room) {
        found -= each.size;
        handles_[stays++] = each;
      } else {
        out.push_back(each.handle);
      }
    }
    handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(stays), handles_.end());
    total_ -= found;
    return found;
  }

 private:
  std::vector<Ranked> handles_;
  Bytes total_;
};

// The needed handles with their ranks, sorted by address, each once.
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
  std::vector<std::pair<std::size_t, Ranked>> missing;  // needed handles that are away, with their ranks
  std::vector<Ranked> may_leave;
  std::vector<Ranked> may_come;
  for (const Candidate& each : candidates) {
    const auto rank = std::ranges::lower_bound(ranks, std::pair(each.handle, std::size_t{0}));
    const bool is_needed = rank != ranks.end() && rank->first == each.handle;
    if (is_needed && each.on_gpu) continue;
    const Ranked ranked{each.handle, each.size, order.next(each.handle), order.since(each.handle)};
    if (is_needed)
      missing.emplace_back(rank->second, ranked);
    else
      (each.on_gpu ? may_leave : may_come).push_back(ranked);
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
    const std::optional<Bytes> left = leavers.leave(minus(size, free), before, result.out);
    if (left) free = free + *left - size;
    return left.has_value();
  };
  make_room(entering, 0);

  // Before an order is learned, nothing is known about coming needs.
  if (!order.learned()) return result;
  std::ranges::sort(may_come, needed_sooner);
  for (const Ranked& each : may_come) {
    if (each.next == NeedOrder::kNever || entering + each.size > most ||
        !make_room(each.size, each.next * kLater))
      break;
    entering += each.size;
    result.in.push_back(each.handle);
  }
  return result;
}

}  // namespace sharedgpu
