// SPDX-License-Identifier: GPL-2.0-or-later
#include "accounting/usage_writer.h"

#include <algorithm>
#include <charconv>

#include "protocol/split.h"

namespace sharedgpu {
namespace {

// Applies `combine` to each count of `a` and the same count of `b`.
template <class Combine>
StepCounts each(const StepCounts& a, const StepCounts& b, Combine combine) {
  return {.seconds = combine(a.seconds, b.seconds),
          .waited = combine(a.waited, b.waited),
          .restored = combine(a.restored, b.restored),
          .evicted = combine(a.evicted, b.evicted)};
}

StepCounts sum(const StepCounts& a, const StepCounts& b) {
  return each(a, b, [](std::uint64_t x, std::uint64_t y) { return x + y; });
}

}  // namespace

std::uint64_t UsageWriter::seconds(std::chrono::nanoseconds lease) {
  if (lease <= std::chrono::nanoseconds::zero()) return 0;
  auto nearest = std::chrono::round<std::chrono::seconds>(lease).count();
  return static_cast<std::uint64_t>(std::max<decltype(nearest)>(nearest, 1));
}

std::uint64_t UsageWriter::mebibytes(std::uint64_t bytes) {
  constexpr std::uint64_t kMebibyte = 1 << 20;
  if (bytes == 0) return 0;
  return std::max<std::uint64_t>((bytes + kMebibyte / 2) / kMebibyte, 1);
}

bool UsageWriter::is_due(const StepCounts& total) const {
  if (!reported_) return true;
  const StepCounts shown = sum(settled_, *reported_);
  const StepCounts more = each(total, shown, [](std::uint64_t a, std::uint64_t b) { return std::max(a, b); });
  return more != shown;
}

void UsageWriter::begin_poll(const StepCounts& total) {
  // Counts never shrink. If a count in the arbiter's answer is lower than before, Slurm's value stays.
  const StepCounts rest = each(
      total, settled_, [](std::uint64_t all, std::uint64_t part) { return all > part ? all - part : 0; });
  wanted_ = each(rest, reported_.value_or(StepCounts{}),
                 [](std::uint64_t a, std::uint64_t b) { return std::max(a, b); });
  calls_ = 0;
}

std::optional<StepCounts> UsageWriter::next_call() {
  const std::uint32_t call = calls_++;
  if (way_ == Way::every_call) return wanted_;
  if (way_ == Way::first_call) return call == 0 ? wanted_ : StepCounts{};
  if (call == reporting_call_) return wanted_;
  // During a search no zeros are written: a zero could overwrite the value of the reporting task, whose call
  // may have a new index.
  if (searching_ || !cleans_) return std::nullopt;
  return StepCounts{};
}

bool UsageWriter::is_too_much(const StepCounts& shown) const {
  return shown.seconds > wanted_.seconds || shown.waited > wanted_.waited ||
         shown.restored > wanted_.restored || shown.evicted > wanted_.evicted;
}

bool UsageWriter::end_poll(const std::optional<StepCounts>& shown) {
  if (shown != wanted_) {
    if (way_ == Way::every_call && shown && is_too_much(*shown)) way_ = Way::first_call;
    searching_ = true;
    reporting_call_ = calls_ == 0 ? 0 : (reporting_call_ + 1) % calls_;
    return false;
  }
  reported_ = wanted_;
  // Wrong trials may have written values for other tasks: one more poll sets these values to zero.
  cleans_ = searching_;
  searching_ = false;
  return !cleans_ || way_ != Way::search;
}

void UsageWriter::reporting_task_ended() {
  settled_ = sum(settled_, reported_.value_or(StepCounts{}));
  reported_.reset();
  reporting_call_ = 0;
  cleans_ = true;
}

std::optional<std::uint64_t> find_tres(std::string_view list, std::uint32_t id) {
  while (!list.empty()) {
    std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    std::uint32_t key = 0;
    const char* end = entry.data() + entry.size();
    auto [equals, bad_key] = std::from_chars(entry.data(), end, key);
    if (bad_key != std::errc{} || equals == end || *equals != '=' || key != id) continue;
    if (const auto count = parse_number<std::uint64_t>({equals + 1, end})) return count;
  }
  return std::nullopt;
}

}  // namespace sharedgpu
