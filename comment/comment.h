// SPDX-License-Identifier: GPL-2.0-or-later
// The summary of a job's usage, which is JSON in the job's AdminComment. These functions format it, find it
// among other text, and merge the shares of several nodes. Pure; any thread.
//
// Each node adds its own share of the job's usage to the summary. Nodes write independently and may overwrite
// each other's comments, so each node makes sure that the summary includes its share. The summary names the
// nodes whose shares it includes, so that no share is added twice. docs/accounting.md documents the format.
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
  std::string gpu;  // the GPU's UUID, in the form that `nvidia-smi -L` prints
  std::string reason;
  auto operator<=>(const SummaryLoss&) const = default;
};

// The usage of one run of a job on the nodes in `nodes`.
struct JobSummary {
  std::set<std::string> nodes;
  std::chrono::milliseconds lease{};
  std::chrono::milliseconds waited{};
  std::chrono::milliseconds overuse{};
  std::uint64_t handoffs = 0;
  std::uint64_t restored = 0;   // bytes copied to GPUs
  std::uint64_t evicted = 0;    // bytes copied from GPUs
  std::uint64_t footprint = 0;  // the largest footprint on one node, in bytes
  std::uint64_t resident = 0;   // the maximum resident memory on one node, in bytes
  std::set<std::string> backends;
  std::set<std::string> gpus;  // models of the GPUs
  std::set<SummaryLoss> gpu_losses;
  bool operator==(const JobSummary&) const = default;
};

std::string format_summary(const JobSummary& summary);
// Returns nullopt if `json` is not in the format of format_summary().
std::optional<JobSummary> parse_summary(std::string_view json);

// The fields of a job's record in Slurm's database that can hold the summary.
enum class CommentField : std::uint8_t { admin, system };
// Returns the field for the summary of a job with these two comments. This is `preferred`, unless the other
// field has a summary or AdminComment belongs to jobstats. The programs that read jobstats' data cannot read
// an AdminComment to which other text was added, so an AdminComment of jobstats never gets a summary.
CommentField field_for(std::string_view admin, std::string_view system, CommentField preferred);

// Merges the share of one node into `comment`. Preserves other text in `comment` byte for byte.
struct Merged {
  enum class Outcome : std::uint8_t {
    changed,   // write `text`
    complete,  // nothing to write: `comment` includes the share
    refused,   // the value of `sharedgpu` has another format, or the comment would become too long
  };
  Outcome outcome = Outcome::refused;
  std::string text;
};
Merged add_share(std::string_view comment, const JobSummary& share);

// Returns the summary in a comment; nullopt if there is none.
std::optional<JobSummary> find_summary(std::string_view comment);

// A time span in seconds since 1970; `end` is 0 if the time span has not ended.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
// Returns the index of the run that a node has seen during the time span `seen`. The runs of a job do not
// overlap, but the node's clock may differ from the database's.
std::optional<std::size_t> run_of(const std::vector<Span>& runs, Span seen);

}  // namespace sharedgpu
