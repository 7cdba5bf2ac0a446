// SPDX-License-Identifier: GPL-2.0-or-later
// The folder of pending AdminComments. The spool survives crashes of the processes that use it.
//
//   JOB                  a mark: an empty file that the SPANK plugin (spank/comment_marks.h) creates when the
//                        job's first step starts on this node; its timestamp records that time
//   JOB-BEGIN-NODE.json  an entry: the job's usage on the node, one line of JSON, written at the job's end
//   lock                 a file that the process which handles the entries has locked
//
// Entries are created and replaced atomically, by rename. Not thread-safe; safe between processes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comment/comment.h"

namespace sharedgpu {

struct SpoolEntry {
  std::uint32_t job = 0;
  Span seen;  // from the job's first step on the node to the time at which the node noticed the job's end; if
              // the node did not notice the end, both times are that of the first step
  JobSummary share;
};

std::string format_entry(const SpoolEntry& entry);
std::optional<SpoolEntry> parse_entry(std::string_view json);

class Spool {
 public:
  explicit Spool(std::string folder) : folder_(std::move(folder)) {}

  // A job that has run on this node, and the time of its first step here, in seconds since 1970.
  struct Mark {
    std::uint32_t job = 0;
    std::int64_t since = 0;
  };
  std::vector<Mark> marks() const;
  std::optional<Mark> mark_of(std::uint32_t job) const;
  void unmark(std::uint32_t job) const;

  // The file names of all entries, including entries that read() cannot read. Such entries stay in the folder
  // for manual inspection.
  std::vector<std::string> entries() const;
  std::optional<SpoolEntry> read(const std::string& name) const;
  // Returns an empty string, or an error. When the function returns, the entry is on disk.
  std::string write(const SpoolEntry& entry) const;
  void remove(const std::string& name) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace sharedgpu
