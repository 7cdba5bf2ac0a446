// SPDX-License-Identifier: GPL-2.0-or-later
// Brings each entry of a spool into its job's record, once, whatever fails meanwhile.
//
// slurmctld tells the database of an AdminComment only together with the job's end, and tells it again where
// it does not know whether it was heard. So an entry waits until the record has ended, is merged into what is
// there, and is looked at again later: other nodes, or slurmctld, may have overwritten it. It leaves the
// spool when it was found in its place for a while.
//
// Knows no clock and no database; one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "comment/spool.h"

namespace sharedgpu {

// One run of a job, as the database has it.
struct JobRecord {
  Span span;  // its end is 0 while it runs, or while the database has not heard of it
  std::uint32_t state = 0;
  std::string comment;
};

// The database. Errors are texts.
class JobRecords {
 public:
  virtual ~JobRecords() = default;
  // All runs of a job. Empty with an `error`: nobody answers.
  virtual std::vector<JobRecord> runs(std::uint32_t job, std::string& error) = 0;
  // Sets the comment of this run. Returns an empty string, or what is wrong.
  virtual std::string write(std::uint32_t job, const JobRecord& run, const std::string& comment) = 0;
};

class RetryQueue {
 public:
  using Seconds = std::chrono::seconds;
  // `settle`: for how long an entry must have been found in its place.
  RetryQueue(Spool& spool, JobRecords& records, Seconds settle, std::function<void(const std::string&)> say)
      : spool_(spool), records_(records), settle_(settle), say_(std::move(say)) {}

  // Does what is due at `now`, in seconds since 1970. Returns whether entries are left.
  bool pass(std::int64_t now);
  // Whether the database knows that the run to which this belongs has ended.
  bool has_ended(const Spool::Mark& mark);

 private:
  struct Progress {
    std::int64_t due = 0;
    std::int64_t pause = 1;  // until the next try
    std::int64_t found = 0;  // since when it was seen in its place; 0: it was not
  };
  void attend(const std::string& name, Progress& progress, std::int64_t now);
  void later(Progress& progress, std::int64_t now, std::int64_t longest);
  void drop(const std::string& name, const std::string& why);

  Spool& spool_;
  JobRecords& records_;
  Seconds settle_;
  std::function<void(const std::string&)> say_;
  std::map<std::string, Progress> progress_;
  std::string trouble_;                            // with the database, as last said
  std::string failed_;                             // the entry that this was about
  Progress database_;                              // when it is tried again
  std::minstd_rand dice_{std::random_device{}()};  // nodes of one job shall not go on in step
};

}  // namespace sharedgpu
