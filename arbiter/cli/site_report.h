// SPDX-License-Identifier: Apache-2.0
// The records that sacct has of jobs with sharedgpu units, added up as a site bills them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu::cli {

// The columns that sacct is asked for, in the order in which SiteReport reads them.
inline constexpr char kSacctColumns[] =
    "JobIDRaw,User,Account,Partition,End,ElapsedRaw,AllocTRES,TRESUsageInTot,TRESUsageOutTot,NNodes,"
    "AdminComment";

class SiteReport {
 public:
  // Jobs that ended in [since, until) count, as sacct writes times; so a job is in one report, whole.
  SiteReport(std::string since, std::string until) : since_(std::move(since)), until_(std::move(until)) {}

  // A line of `sacct --parsable2`: a job's, then those of its steps. False: it is none. What a job came to is
  // taken from its AdminComment, where all its nodes have told of it: steps side by side hold a GPU together,
  // and of those that died with their node Slurm keeps nothing. Else it is the sum of its steps.
  bool add(std::string_view line);

  struct Who {
    std::string user;
    std::string account;
    std::string partition;
    auto operator<=>(const Who&) const = default;
  };
  struct Sums {
    std::uint64_t jobs = 0;          // runs: a requeued job counts with each
    std::uint64_t unit_seconds = 0;  // units held, times seconds
    double lease_seconds = 0;
    double waited_seconds = 0;
    double swap_mebibytes = 0;  // both ways
  };
  const std::map<Who, Sums>& sums() const { return sums_; }
  // Jobs of which sacct has neither.
  std::uint64_t untold() const { return untold_ + (untold_yet_ ? 1 : 0); }

 private:
  std::string since_;
  std::string until_;
  std::map<Who, Sums> sums_;
  std::string job_;         // whose steps may follow
  Sums* counts_ = nullptr;  // where they count; null: they do not
  std::uint64_t untold_ = 0;
  bool untold_yet_ = false;  // of that job
};

}  // namespace sharedgpu::cli
