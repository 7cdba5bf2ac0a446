// SPDX-License-Identifier: GPL-2.0-or-later
// What a job came to, as JSON inside its AdminComment: how it is written, found again beside what others keep
// there, and merged over nodes. Pure; any thread.
//
// Nodes write it without knowing of each other, and what one has written may be overwritten. So each sees to
// it that its own share is there: the text names the nodes whose shares it holds, and a share that is there
// is not added again. docs/accounting.md is the format's page.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu {

// A GPU that was lost while the job was on it.
struct SummaryLoss {
  std::string node;
  std::string gpu;  // as `nvidia-smi -L` prints it
  std::string reason;
  auto operator<=>(const SummaryLoss&) const = default;
};

// Of one run of a job, on these nodes.
struct JobSummary {
  std::set<std::string> nodes;
  std::chrono::milliseconds lease{};
  std::chrono::milliseconds waited{};
  std::chrono::milliseconds overuse{};
  std::uint64_t handoffs = 0;
  std::uint64_t restored = 0;   // bytes copied to GPUs
  std::uint64_t evicted = 0;    // bytes copied from them
  std::uint64_t footprint = 0;  // the most bytes on any one node
  std::uint64_t resident = 0;   // the same
  std::set<std::string> backends;
  std::set<std::string> gpus;  // models
  std::set<SummaryLoss> gpu_losses;
  bool operator==(const JobSummary&) const = default;
};

std::string format_summary(const JobSummary& summary);
// Nothing where it is not what format_summary() makes.
std::optional<JobSummary> parse_summary(std::string_view json);

// `share` is of one node. What is in `comment` and not ours stays, byte for byte.
struct Merged {
  enum class Outcome : std::uint8_t {
    changed,   // `text` is to be written
    complete,  // the share is in there already
    refused,   // there is something under our name that is not ours, or no room
  };
  Outcome outcome = Outcome::refused;
  std::string text;
};
Merged add_share(std::string_view comment, const JobSummary& share);

// The summary in a comment, if there is one.
std::optional<JobSummary> find_summary(std::string_view comment);

// From when to when, in seconds since 1970; an end of 0 is not yet.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
// Of a job's runs, which do not overlap, the one that `seen` belongs to: the node's clock may be another.
std::optional<std::size_t> run_of(const std::vector<Span>& runs, Span seen);

}  // namespace sharedgpu
