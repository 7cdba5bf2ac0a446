// SPDX-License-Identifier: Apache-2.0
// What sacct tells of jobs that held sharedgpu units, added up as a site bills it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu::cli {

// The columns that sacct is asked for, in the order in which SiteReport reads them.
inline constexpr char kSacctColumns[] =
    "JobIDRaw,User,Account,Partition,End,ElapsedRaw,AllocTRES,TRESUsageInTot,TRESUsageOutTot";

class SiteReport {
 public:
  // Jobs that ended in [since, until) count, as sacct writes times; so a job is in one report, whole.
  SiteReport(std::string since, std::string until) : since_(std::move(since)), until_(std::move(until)) {}

  // A line of `sacct --parsable2`: a job's, then those of its steps. False: it is none.
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
    std::uint64_t lease_seconds = 0;
    std::uint64_t waited_seconds = 0;
    std::uint64_t swap_mebibytes = 0;  // both ways
  };
  const std::map<Who, Sums>& sums() const { return sums_; }

 private:
  std::string since_;
  std::string until_;
  std::map<Who, Sums> sums_;
  std::string job_;         // whose steps may follow
  Sums* counts_ = nullptr;  // where they count; null: they do not
};

}  // namespace sharedgpu::cli
