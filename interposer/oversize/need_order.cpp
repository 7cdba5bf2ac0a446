// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/need_order.h"

#include <algorithm>
#include <bit>

namespace sharedgpu {

namespace {

// The order between the needs of several streams varies, and a program may leave out or insert single needs.
// So a need is predicted if it is at most this far from the expected position.
constexpr std::uint64_t kNear = 8;
// The present corresponds to a past position if at least this many needs in a row are the same. One need
// alone proves little: it may be an exception within the order.
constexpr std::size_t kShortestMatch = 2;
constexpr std::size_t kLongestMatch = 256;
// A handle may have been needed very often. Only this many of its newest needs are compared.
constexpr std::size_t kMostPlaces = 16;
// The number of past cycles that predict the next need. A single cycle may have left a need out.
constexpr int kCycles = 2;
// The order counts as learned only if at least kEnough of the last kLastNeeds needs were predicted.
constexpr unsigned kLastNeeds = 16;
constexpr unsigned kEnough = 8;
constexpr std::uint32_t kEveryNeed = (1u << kLastNeeds) - 1;

}  // namespace

void NeedOrder::Positions::drop_first() {
  if (++dropped_ <= all_.size() / 2) return;
  // Copies the vector, since erase() would keep the unused capacity.
  all_ = std::vector<Position>(all_.begin() + static_cast<std::ptrdiff_t>(dropped_), all_.end());
  dropped_ = 0;
}

std::optional<NeedOrder::Position> NeedOrder::Positions::first_after(Position after) const {
  const auto found = std::ranges::upper_bound(all(), after);
  return found == all().end() ? std::nullopt : std::optional(*found);
}

void NeedOrder::note(std::uint64_t handle) {
  if (!log_.empty() && log_.back().handle == handle) return;
  Positions& its = needs_[handle];
  const bool found = follow(handle, its);
  its.add(end());
  log_.push_back({handle, found ? present_ : 0});
  if (log_.size() > kMostNeeds) drop_oldest();
}

bool NeedOrder::learned() const {
  return present_ != 0 && static_cast<unsigned>(std::popcount(predicted_ & kEveryNeed)) >= kEnough;
}

std::uint64_t NeedOrder::next(std::uint64_t handle) const {
  const Positions* const its = find(handle);
  if (its == nullptr) return kNever;
  if (!learned()) return end() - its->last();
  std::uint64_t distance = kNever;
  Position from = present_;
  for (int i = 0; i < kCycles && from >= first_; ++i) {
    if (const std::optional<Position> found = its->first_after(from))
      distance = std::min(distance, *found - from);
    from = at(from).alike;
  }
  return distance;
}

std::uint64_t NeedOrder::since(std::uint64_t handle) const {
  const Positions* const its = find(handle);
  return its != nullptr ? end() - 1 - its->last() : kNever;
}

const NeedOrder::Positions* NeedOrder::find(std::uint64_t handle) const {
  const auto found = needs_.find(handle);
  return found != needs_.end() ? &found->second : nullptr;
}

bool NeedOrder::is_near(const Positions& needs) const {
  if (present_ == 0) return false;
  const std::optional<Position> found = needs.first_after(present_ - std::min(present_, kNear));
  return found && *found <= present_ + kNear;
}

std::size_t NeedOrder::match(Position place) const {
  const std::size_t most = std::min<std::size_t>(kLongestMatch - 1, place - first_);
  std::size_t length = 0;
  while (length < most && at(place - 1 - length).handle == at(end() - 1 - length).handle) ++length;
  return length + 1;
}

std::optional<NeedOrder::Position> NeedOrder::best_place(const Positions& needs, std::size_t& longest) const {
  std::optional<Position> best;
  const auto all = needs.all();
  const auto newest = all.last(std::min(kMostPlaces, all.size()));
  for (auto place = newest.rbegin(); place != newest.rend() && longest < kLongestMatch; ++place) {
    const std::size_t length = match(*place);
    if (length <= longest) continue;
    longest = length;
    best = *place;
  }
  return best;
}

bool NeedOrder::follow(std::uint64_t handle, const Positions& needs) {
  predicted_ = predicted_ << 1 | (is_near(needs) ? 1 : 0);
  if (present_ != 0 && present_ + 1 < end() && at(present_ + 1).handle == handle) {
    ++present_;
    return true;
  }
  std::size_t length = kShortestMatch - 1;
  if (const std::optional<Position> place = best_place(needs, length)) {
    present_ = *place;
    // From this position, these needs would have been predicted.
    if (length >= kEnough) predicted_ |= length < kLastNeeds ? (1u << length) - 1 : kEveryNeed;
    return true;
  }
  const std::optional<Position> ahead = present_ != 0 ? needs.first_after(present_) : std::nullopt;
  if (!ahead || *ahead > present_ + kNear) return false;
  present_ = *ahead;
  return true;
}

void NeedOrder::drop_oldest() {
  const auto found = needs_.find(log_.front().handle);
  found->second.drop_first();
  if (found->second.empty()) needs_.erase(found);
  log_.pop_front();
  ++first_;
  if (present_ < first_) present_ = 0;
}

}  // namespace sharedgpu
