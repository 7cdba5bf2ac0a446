// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/need_order.h"

#include <algorithm>
#include <bit>

namespace sharedgpu {

namespace {

// Needs of several streams overtake each other, and a program leaves out or inserts single needs. So a need
// is predicted if it is at most this far from the expected position.
constexpr std::uint64_t kNear = 8;
// A place in the past is another present if so many needs in a row are the same. One need alone proves
// little: it may be an exception within the order.
constexpr std::size_t kShortestMatch = 2;
constexpr std::size_t kLongestMatch = 256;
// A handle may have been needed very often. The newest of its needs are compared.
constexpr int kMostPlaces = 16;
// So many cycles predict the next need. One of them alone may have left it out.
constexpr int kCycles = 2;
// The order counts if half of the last needs were predicted.
constexpr unsigned kLastNeeds = 16;
constexpr unsigned kEnough = 8;
constexpr std::uint32_t kEveryNeed = (1u << kLastNeeds) - 1;

}  // namespace

void NeedOrder::note(std::uint64_t handle) {
  gone_.erase(handle);
  if (!log_.empty() && log_.back().handle == handle) return;
  const bool found = follow(handle);
  places_.emplace(handle, end());
  log_.push_back({handle, found ? present_ : 0});
  if (log_.size() > kMostNeeds) drop_oldest();
}

void NeedOrder::forget(std::uint64_t handle) {
  if (first_after(handle, 0)) gone_.insert(handle);
}

bool NeedOrder::learned() const {
  return present_ != 0 && static_cast<unsigned>(std::popcount(predicted_ & kEveryNeed)) >= kEnough;
}

std::uint64_t NeedOrder::next(std::uint64_t handle) const {
  if (gone_.contains(handle)) return kNever;
  if (!learned()) {
    const std::uint64_t age = since(handle);
    return age == kNever ? kNever : age + 1;
  }
  std::uint64_t distance = kNever;
  Position from = present_;
  for (int i = 0; i < kCycles && from >= first_; ++i) {
    if (const std::optional<Position> found = first_after(handle, from))
      distance = std::min(distance, *found - from);
    from = log_[from - first_].alike;
  }
  return distance;
}

std::uint64_t NeedOrder::since(std::uint64_t handle) const {
  const auto after = places_.lower_bound({handle, end()});
  if (after == places_.begin() || std::prev(after)->first != handle) return kNever;
  return end() - 1 - std::prev(after)->second;
}

std::vector<std::uint64_t> NeedOrder::upcoming(std::size_t count) const {
  std::vector<std::uint64_t> needs;
  if (!learned()) return needs;
  for (Position each = present_ + 1; each < end() && needs.size() < count; ++each)
    if (!gone_.contains(at(each))) needs.push_back(at(each));
  return needs;
}

std::optional<NeedOrder::Position> NeedOrder::first_after(std::uint64_t handle, Position after) const {
  const auto found = places_.lower_bound({handle, after + 1});
  if (found == places_.end() || found->first != handle) return std::nullopt;
  return found->second;
}

std::size_t NeedOrder::match(Position place) const {
  const std::size_t most = std::min<std::size_t>(kLongestMatch - 1, place - first_);
  std::size_t length = 0;
  while (length < most && at(place - 1 - length) == at(end() - 1 - length)) ++length;
  return length + 1;
}

std::optional<NeedOrder::Position> NeedOrder::best_place(std::uint64_t handle, std::size_t& longest) const {
  std::optional<Position> best;
  auto place = places_.lower_bound({handle, end()});
  for (int i = 0; i < kMostPlaces && longest < kLongestMatch && place != places_.begin(); ++i) {
    --place;
    if (place->first != handle) break;
    const std::size_t length = match(place->second);
    if (length <= longest) continue;
    longest = length;
    best = place->second;
  }
  return best;
}

bool NeedOrder::is_near(std::uint64_t handle) const {
  if (present_ == 0) return false;
  const std::optional<Position> found = first_after(handle, present_ - std::min(present_, kNear));
  return found && *found <= present_ + kNear;
}

bool NeedOrder::follow(std::uint64_t handle) {
  predicted_ = predicted_ << 1 | (is_near(handle) ? 1 : 0);
  if (present_ != 0 && present_ + 1 < end() && at(present_ + 1) == handle) {
    ++present_;
    return true;
  }
  std::size_t length = kShortestMatch - 1;
  if (const std::optional<Position> place = best_place(handle, length)) {
    present_ = *place;
    // From this place, these needs would have been predicted.
    if (length >= kEnough) predicted_ |= length < kLastNeeds ? (1u << length) - 1 : kEveryNeed;
    return true;
  }
  const std::optional<Position> ahead = present_ != 0 ? first_after(handle, present_) : std::nullopt;
  if (!ahead || *ahead > present_ + kNear) return false;
  present_ = *ahead;
  return true;
}

void NeedOrder::drop_oldest() {
  const std::uint64_t handle = log_.front().handle;
  places_.erase({handle, first_});
  log_.pop_front();
  ++first_;
  if (!first_after(handle, 0)) gone_.erase(handle);
  if (present_ < first_) present_ = 0;
}

}  // namespace sharedgpu
