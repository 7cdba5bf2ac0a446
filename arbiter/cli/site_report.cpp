// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/site_report.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

enum ReportColumn {
  job_id,
  user,
  account,
  partition,
  end,
  elapsed,
  allocated,
  in,
  out,
  nodes,
  comment,
  system_comment,
  columns
};

// Returns the count of one TRES in a list such as "cpu=2,gres/sharedgpu=1"; 0 if the TRES is missing, nullopt
// if its count is not a number.
std::optional<std::uint64_t> count_of(std::string_view list, std::string_view tres) {
  for (std::string_view entry : split(list, ','))
    if (entry.starts_with(tres) && entry.substr(tres.size()).starts_with('='))
      return parse_number<std::uint64_t>(entry.substr(tres.size() + 1));
  return 0;
}

// Returns the summary in a job's comment (docs/accounting.md), or nullopt if there is none or the summary
// does not cover `nodes` nodes. Other programs may have added text before the summary, and other fields to
// its JSON object.
std::optional<SiteReport::Sums> summary_in(std::string_view text, std::uint64_t nodes) {
  const auto parsed = [](std::string_view json) { return nlohmann::json::parse(json, nullptr, false); };
  auto comment = parsed(text);
  const std::size_t ours = text.rfind(R"({"sharedgpu":)");  // the summary may follow text that is not JSON
  if (!comment.is_object() && ours != text.npos) comment = parsed(text.substr(ours));
  if (!comment.is_object() || !comment.contains("sharedgpu")) return std::nullopt;
  const auto& job = comment["sharedgpu"];
  const auto number = [&](const char* name) {
    return job.contains(name) && job[name].is_number() ? job[name].get<double>() : 0.0;
  };
  if (!job.is_object() || number("version") != 1 || !job.contains("nodes") || job["nodes"].size() != nodes)
    return std::nullopt;
  return SiteReport::Sums{.lease_seconds = number("lease_seconds"),
                          .waited_seconds = number("waiting_seconds"),
                          .swap_mebibytes = (number("restored_bytes") + number("evicted_bytes")) / (1 << 20)};
}

}  // namespace

bool SiteReport::add(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, kSacctDelimiter);
  if (fields.size() < columns) return false;
  const std::string_view id = fields[job_id];
  const std::string_view job = id.substr(0, id.find('.'));
  if (!parse_number<std::uint64_t>(job)) return false;
  if (job != id) {
    if (counts_ == nullptr || job != job_) return true;
    const auto lease = count_of(fields[in], "gres/sharedgpu_lease");
    const auto waited = count_of(fields[out], "gres/sharedgpu_lease");
    const auto moved_in = count_of(fields[in], "gres/sharedgpu_swap");
    const auto moved_out = count_of(fields[out], "gres/sharedgpu_swap");
    if (!lease || !waited || !moved_in || !moved_out) return false;
    if (fields[in].find("gres/sharedgpu_lease=") != std::string_view::npos) untold_yet_ = false;
    counts_->lease_seconds += static_cast<double>(*lease);
    counts_->waited_seconds += static_cast<double>(*waited);
    counts_->swap_mebibytes += static_cast<double>(*moved_in + *moved_out);
    return true;
  }
  counts_ = nullptr;
  job_ = job;
  untold_ += std::exchange(untold_yet_, false) ? 1 : 0;
  const auto units = count_of(fields[allocated], "gres/sharedgpu");
  const auto seconds = parse_number<std::uint64_t>(fields[elapsed]);
  if (!units || !seconds) return false;
  // All times have the format "2026-11-22T14:30:00", so they can be compared as text. A running job has
  // "Unknown".
  const bool has_ended = !fields[end].empty() && fields[end].front() <= '9';
  if (*units == 0 || !has_ended || fields[end] < since_ || fields[end] >= until_) return true;
  counts_ = &sums_[{.user = std::string(fields[user]),
                    .account = std::string(fields[account]),
                    .partition = std::string(fields[partition])}];
  ++counts_->jobs;
  counts_->unit_seconds += *units * *seconds;
  const std::uint64_t all_nodes = parse_number<std::uint64_t>(fields[nodes]).value_or(0);
  auto summary = summary_in(fields[comment], all_nodes);
  if (!summary) summary = summary_in(fields[system_comment], all_nodes);
  untold_yet_ = !summary;
  if (!summary) return true;
  counts_->lease_seconds += summary->lease_seconds;
  counts_->waited_seconds += summary->waited_seconds;
  counts_->swap_mebibytes += summary->swap_mebibytes;
  counts_ = nullptr;  // the summary includes the job's steps
  return true;
}

}  // namespace sharedgpu::cli
