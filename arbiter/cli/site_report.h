// SPDX-License-Identifier: Apache-2.0
// Sums up sacct's records of jobs with sharedgpu units, as a site bills them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu::cli {

// The columns to request from sacct, in the order in which SiteReport reads them.
inline constexpr char kSacctColumns[] =
    "JobIDRaw,User,Account,Partition,End,ElapsedRaw,AllocTRES,TRESUsageInTot,TRESUsageOutTot,NNodes,"
    "AdminComment,SystemComment";
// The separator to request between columns. Comments may contain sacct's own separator, "|".
inline constexpr char kSacctDelimiter = '\x1f';

class SiteReport {
 public:
  // Counts jobs that ended in [since, until), so that each job is in exactly one report. Times have the
  // format of sacct.
  SiteReport(std::string since, std::string until) : since_(std::move(since)), until_(std::move(until)) {}

  // Adds a line of `sacct --parsable2` with the columns and the delimiter above. The lines of a job's steps
  // must follow the line of the job. Returns false if the line cannot be parsed. The totals of a job come
  // from its summary if the summary includes all nodes of the job, otherwise from the sum over its steps. The
  // sum is less exact: each of several concurrent steps on a GPU counts the full time, and steps that died
  // with their node are missing.
  bool add(std::string_view line);

  struct Who {
    std::string user;
    std::string account;
    std::string partition;
    auto operator<=>(const Who&) const = default;
  };
  struct Sums {
    std::uint64_t jobs = 0;          // a requeued job counts once for each run
    std::uint64_t unit_seconds = 0;  // sum of units times seconds over all jobs
    double lease_seconds = 0;
    double waited_seconds = 0;
    double swap_mebibytes = 0;  // MiB evicted plus MiB restored
  };
  const std::map<Who, Sums>& sums() const { return sums_; }
  // Returns the number of counted jobs for which neither AdminComment, SystemComment nor the steps have lease
  // times.
  std::uint64_t untold() const { return untold_ + (untold_yet_ ? 1 : 0); }

 private:
  std::string since_;
  std::string until_;
  std::map<Who, Sums> sums_;
  std::string job_;  // the job of the last line; lines of its steps may follow
  // The sums to which the steps of the current job are added; null if its steps do not count.
  Sums* counts_ = nullptr;
  std::uint64_t untold_ = 0;
  bool untold_yet_ = false;  // true if the current job counts, and has neither a summary nor yet a lease time
};

}  // namespace sharedgpu::cli
