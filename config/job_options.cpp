// SPDX-License-Identifier: Apache-2.0
#include "config/job_options.h"

#include <cstdint>
#include <optional>

#include "config/quantities.h"
#include "protocol/backend_names.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

std::string set_memory(GivenOptions& given, std::string_view text) {
  auto size = parse_size(text);
  if (!size || *size == Bytes{}) return "a size with a unit (such as 512M or 8GiB)";
  given.job.memory = *size;
  return {};
}

std::optional<std::uint32_t> parse_share(std::string_view text) {
  if (!text.empty() && text.back() == '%') text.remove_suffix(1);
  auto percent = parse_number<std::uint32_t>(text);
  return percent && *percent >= 1 && *percent <= 100 ? percent : std::nullopt;
}

std::string set_share(GivenOptions& given, std::string_view text) {
  constexpr char kHint[] = "REQUEST or REQUEST:LIMIT in percent, 1 to 100 (such as 25 or 25:50)";
  std::size_t colon = text.find(':');
  auto request = parse_share(text.substr(0, colon));
  if (!request) return kHint;
  std::optional<std::uint32_t> limit = 0;  // no limit
  if (colon != text.npos) limit = parse_share(text.substr(colon + 1));
  if (!limit) return kHint;
  if (*limit != 0 && *limit < *request) return "possible: the limit is below the request";
  given.job.share_request = *request;
  given.job.share_limit = *limit;
  return {};
}

std::string set_priority(GivenOptions& given, std::string_view text) {
  auto priority = parse_number<std::int32_t>(text);
  if (!priority || *priority < -kHighestPriority || *priority > kHighestPriority)
    return "a number from -1000 to 1000";
  given.job.priority = *priority;
  return {};
}

// [DAYS-]HOURS:MINUTES:SECONDS or MINUTES:SECONDS, in Slurm's format.
std::optional<Nanoseconds> parse_clock(std::string_view text) {
  std::uint64_t days = 0;
  if (std::size_t dash = text.find('-'); dash != text.npos) {
    auto number = parse_number<std::uint32_t>(text.substr(0, dash));
    if (!number || *number > 3650) return std::nullopt;
    days = *number;
    text.remove_prefix(dash + 1);
  }
  std::uint64_t seconds = 0;
  int fields = 0;
  for (bool more = true; more; ++fields) {
    std::size_t colon = text.find(':');
    auto number = parse_number<std::uint32_t>(text.substr(0, colon));
    if (!number || *number > 999'999 || fields == 3 || (fields > 0 && *number > 59)) return std::nullopt;
    seconds = seconds * 60 + *number;
    more = colon != text.npos;
    if (more) text.remove_prefix(colon + 1);
  }
  bool whole = days > 0 ? fields == 3 : fields >= 2;
  if (!whole) return std::nullopt;
  return std::chrono::seconds(days * 86'400 + seconds);
}

std::string set_deadline(GivenOptions& given, std::string_view text) {
  auto time = parse_clock(text);
  if (!time) time = parse_time(text);
  if (!time || *time <= Nanoseconds{}) return "a time with a unit (such as 33ms or 2s) or HH:MM:SS";
  given.job.deadline = *time;
  return {};
}

std::string set_gpus(GivenOptions& given, std::string_view text) {
  auto gpus = parse_number<std::uint32_t>(text);
  if (!gpus || *gpus < 1 || *gpus > GpuList::kMost)
    return "a number from 1 to " + std::to_string(GpuList::kMost);
  given.job.gpus = *gpus;
  return {};
}

std::string set_backend(GivenOptions& given, std::string_view text) {
  if (parse_backend(text, given.job.backend)) {
    given.job.backend_given = 1;
    return {};
  }
  return "swap, managed or native";
}

std::string set_summary(GivenOptions& given, std::string_view text) {
  if (text != "yes" && text != "no") return "yes or no";
  given.summary = text == "yes";
  return {};
}

}  // namespace

const std::array<OptionInfo, kOptionCount> kOptions = {{
    {"memory", "SIZE",
     "GPU memory that the job may allocate on each node, such as 8GiB (default: all that the GPU has)",
     "Limit on the device memory that it may allocate", set_memory},
    {"share", "REQUEST[:LIMIT]",
     "percent of GPU time that the job gets while others want the GPU, and the most that it may get "
     "(default: its units' part of the GPU, no limit)",
     "Percent of GPU time", set_share},
    {"priority", "N",
     "from -1000 to 1000; jobs with a higher one go first (default 0; more where the site allows it)",
     "Higher goes first", set_priority},
    {"deadline", "TIME", "time limit for each piece of its GPU work, such as 33ms; see docs/usage.md",
     "Time limit for each piece of its work; the command reports which ones it met", set_deadline},
    {"backend", "swap|managed|native",
     "how GPU memory is shared: moved to host memory between turns, as the driver's managed memory, or not "
     "at all (default swap)",
     "swap, managed or native", set_backend},
    {"gpus", "N", "GPUs of each node that the job spans; it holds all of them at once or none (default 1)",
     "GPUs that it spans (default 1)", set_gpus},
    {"summary", "yes|no",
     "whether the job ends with a line on its stderr about its GPU time, waiting and moved memory",
     "yes: end with a line on stderr about GPU time, waiting and moved memory", set_summary},
}};

std::string set_option(GivenOptions& given, std::size_t index, std::string_view value) {
  const std::string problem = kOptions[index].set(given, value);
  if (!problem.empty()) return given.name(index) + ": '" + std::string(value) + "' is not " + problem;
  given.texts[index] = value;
  return {};
}

}  // namespace sharedgpu
