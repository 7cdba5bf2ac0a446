// SPDX-License-Identifier: GPL-2.0-or-later
// Writes each entry of a spool into its job's record exactly once, despite failures.
//
// slurmctld sends an AdminComment to the database only together with the job's end, and repeats both until
// the database acknowledges them. So an entry waits until the database knows the end of the run. The entry is
// then merged into the comment in the database. Later checks show whether another node or slurmctld has
// overwritten the comment. If the entry is missing, it is merged again. The entry is removed from the spool
// when all checks in a certain period have found it in the comment.
//
// The caller provides the time and the access to the database. Not thread-safe.
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
  Span span;  // `end` is 0 until the database knows the end of the run
  std::uint32_t state = 0;
  std::string comment;           // AdminComment
  std::string system_comment{};  // SystemComment
};

// Interface to the database. Errors are strings.
class JobRecords {
 public:
  virtual ~JobRecords() = default;
  // Returns all runs of a job. Returns an empty list and sets `error` if the database does not answer.
  virtual std::vector<JobRecord> runs(std::uint32_t job, std::string& error) = 0;
  // Sets one field of `run`. Returns an empty string, or an error.
  virtual std::string write(std::uint32_t job, const JobRecord& run, CommentField field,
                            const std::string& text) = 0;
};

class RetryQueue {
 public:
  using Seconds = std::chrono::seconds;
  // `settle`: the time for which checks must find an entry in the job's comment before the entry is removed.
  // `field`: the field for summaries of jobs that have no summary yet.
  RetryQueue(Spool& spool, JobRecords& records, Seconds settle, CommentField field,
             std::function<void(const std::string&)> say)
      : spool_(spool), records_(records), settle_(settle), field_(field), say_(std::move(say)) {}

  // Does the work that is due at `now`, a time in seconds since 1970. Returns true if entries remain.
  bool pass(std::int64_t now);
  // Returns true if the database knows the end of the run to which this mark belongs.
  bool has_ended(const Spool::Mark& mark);

 private:
  struct Progress {
    std::int64_t due = 0;
    std::int64_t pause = 1;  // seconds until the next try
    std::int64_t found =
        0;  // time since which every check has found the entry; 0 if the last check did not find the entry
  };
  void attend(const std::string& name, Progress& progress, std::int64_t now);
  void later(Progress& progress, std::int64_t now, std::int64_t longest);
  void drop(const std::string& name, const std::string& why);

  Spool& spool_;
  JobRecords& records_;
  Seconds settle_;
  CommentField field_;
  std::function<void(const std::string&)> say_;
  std::map<std::string, Progress> progress_;
  std::string trouble_;                            // the last logged error of the database
  std::string failed_;                             // the entry for which the database returned `trouble_`
  Progress database_;                              // retry times for the database
  std::minstd_rand dice_{std::random_device{}()};  // keeps nodes of one job from retrying in lockstep
};

}  // namespace sharedgpu
