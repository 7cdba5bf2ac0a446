// SPDX-License-Identifier: GPL-2.0-or-later
#include "accounting/credit.h"

#include <algorithm>
#include <charconv>

namespace sharedgpu {

std::uint64_t StepCredit::seconds(std::chrono::nanoseconds lease) {
  if (lease <= std::chrono::nanoseconds::zero()) return 0;
  auto nearest = std::chrono::round<std::chrono::seconds>(lease).count();
  return static_cast<std::uint64_t>(std::max<decltype(nearest)>(nearest, 1));
}

bool StepCredit::is_due(std::uint64_t total) const { return !carried_ || total > settled_ + *carried_; }

void StepCredit::begin_poll(std::uint64_t total) {
  // Lease time never shrinks; if the arbiter's answer does, the books keep what they have.
  wanted_ = std::max(total > settled_ ? total - settled_ : 0, carried_.value_or(0));
  calls_ = 0;
}

std::optional<std::uint64_t> StepCredit::next_call() {
  if (calls_++ == carriers_call_) return wanted_;
  // While searching, a zero could hit the carrier and lose what it shows already.
  if (searching_) return std::nullopt;
  return 0;
}

bool StepCredit::end_poll(std::optional<std::uint64_t> shown) {
  if (shown != wanted_) {
    searching_ = true;
    carriers_call_ = calls_ == 0 ? 0 : (carriers_call_ + 1) % calls_;
    return false;
  }
  carried_ = wanted_;
  // Wrong tries may have credited other tasks: one more poll gives these their zeros.
  bool clean = !searching_;
  searching_ = false;
  return clean;
}

void StepCredit::carrier_ended() {
  settled_ += carried_.value_or(0);
  carried_.reset();
  carriers_call_ = 0;
}

std::optional<std::uint64_t> find_tres(std::string_view list, std::uint32_t id) {
  while (!list.empty()) {
    std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    std::uint32_t key = 0;
    std::uint64_t count = 0;
    const char* end = entry.data() + entry.size();
    auto [equals, bad_key] = std::from_chars(entry.data(), end, key);
    if (bad_key != std::errc{} || equals == end || *equals != '=' || key != id) continue;
    auto [rest, bad_count] = std::from_chars(equals + 1, end, count);
    if (bad_count == std::errc{} && rest == end) return count;
  }
  return std::nullopt;
}

}  // namespace sharedgpu
