// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/site_report.h"

#include <charconv>
#include <optional>

#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

enum Column { job_id, user, account, partition, end, elapsed, allocated, in, out, columns };

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

// The count of one TRES in a list such as "cpu=2,gres/sharedgpu=1"; 0 where it is not there, nothing where it
// is no number.
std::optional<std::uint64_t> count_of(std::string_view list, std::string_view tres) {
  for (std::string_view entry : split(list, ','))
    if (entry.starts_with(tres) && entry.substr(tres.size()).starts_with('='))
      return number(entry.substr(tres.size() + 1));
  return 0;
}

}  // namespace

bool SiteReport::add(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, '|');
  if (fields.size() != columns) return false;
  const std::string_view id = fields[job_id];
  const std::string_view job = id.substr(0, id.find('.'));
  if (!number(job)) return false;
  if (job != id) {
    if (counts_ == nullptr || job != job_) return true;
    const auto lease = count_of(fields[in], "gres/sharedgpu_lease");
    const auto waited = count_of(fields[out], "gres/sharedgpu_lease");
    const auto moved_in = count_of(fields[in], "gres/sharedgpu_swap");
    const auto moved_out = count_of(fields[out], "gres/sharedgpu_swap");
    if (!lease || !waited || !moved_in || !moved_out) return false;
    counts_->lease_seconds += *lease;
    counts_->waited_seconds += *waited;
    counts_->swap_mebibytes += *moved_in + *moved_out;
    return true;
  }
  counts_ = nullptr;
  job_ = job;
  const auto units = count_of(fields[allocated], "gres/sharedgpu");
  const auto seconds = number(fields[elapsed]);
  if (!units || !seconds) return false;
  // Times of the same form: "2026-11-22T14:30:00". A job that runs has "Unknown".
  const bool has_ended = !fields[end].empty() && fields[end].front() <= '9';
  if (*units == 0 || !has_ended || fields[end] < since_ || fields[end] >= until_) return true;
  counts_ = &sums_[{.user = std::string(fields[user]),
                    .account = std::string(fields[account]),
                    .partition = std::string(fields[partition])}];
  ++counts_->jobs;
  counts_->unit_seconds += *units * *seconds;
  return true;
}

}  // namespace sharedgpu::cli
