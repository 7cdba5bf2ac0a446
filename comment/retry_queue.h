// SPDX-License-Identifier: GPL-2.0-or-later
// Writes each entry of a spool into its job's record exactly once, despite failures.
//
// slurmctld sends the database an AdminComment only together with the job's end, and repeats both until the
// database acknowledges them. So an entry waits until the record has ended, is merged into the comment there,
// and is checked again later, because other nodes or slurmctld may have overwritten it. An entry leaves the
// spool once checks have found it in the record for a while.
//
// Uses no clock and no database of its own. Not thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "comment/spool.h"

namespace sharedgpu {

// One run of a job in the database.
struct JobRecord {
  Span span;  // its end is 0 until the database knows the end of the run
  std::uint32_t state = 0;
  std::string comment;
};

// Interface to the database. Errors are strings.
class JobRecords {
 public:
  virtual ~JobRecords() = default;
  // All runs of a job. Returns an empty list and sets `error` if the database does not answer.
  virtual std::vector<JobRecord> runs(std::uint32_t job, std::string& error) = 0;
  // Sets the comment of this run. Returns an empty string, or an error.
  virtual std::string write(std::uint32_t job, const JobRecord& run, const std::string& comment) = 0;
};

class RetryQueue {
 public:
  using Seconds = std::chrono::seconds;
  // `settle`: the time for which checks must have found an entry in its record.
  RetryQueue(Spool& spool, JobRecords& records, Seconds settle, std::function<void(const std::string&)> say)
      : spool_(spool), records_(records), settle_(settle), say_(std::move(say)) {}

  // Does the work due at `now`, in seconds since 1970. Returns true if entries remain.
  bool pass(std::int64_t now);
  // Returns true if the database knows that the run of this mark has ended.
  bool has_ended(const Spool::Mark& mark);

 private:
  struct Progress {
    std::int64_t due = 0;
    std::int64_t pause = 1;  // seconds until the next try
    std::int64_t found =
        0;  // since when every check has found the entry in the record; 0 if the last check did not find it
  };
  void attend(const std::string& name, Progress& progress, std::int64_t now);
  void later(Progress& progress, std::int64_t now, std::int64_t longest);
  void drop(const std::string& name, const std::string& why);

  Spool& spool_;
  JobRecords& records_;
  Seconds settle_;
  std::function<void(const std::string&)> say_;
  std::map<std::string, Progress> progress_;
  std::string trouble_;                            // the last reported error of the database
  std::string failed_;                             // the entry to which the database reported that error
  Progress database_;                              // retry times for the database
  std::minstd_rand dice_{std::random_device{}()};  // keeps nodes of one job from retrying in lockstep
};

}  // namespace sharedgpu
