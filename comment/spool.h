// SPDX-License-Identifier: GPL-2.0-or-later
// The folder of what is still to be written into AdminComments. It survives whoever works on it.
//
//   JOB                  empty: the job has been on this node, since the file's time; what it came to is
//   known
//                        when it has ended (the SPANK plugin makes it, spank/comments.h)
//   JOB-BEGIN-NODE.json  what it came to on that node, one line of JSON
//   lock                 held by the one who writes
//
// Files appear and change whole, by rename. One thread at a time in a process; processes side by side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comment/comment.h"

namespace sharedgpu {

struct SpoolEntry {
  std::uint32_t job = 0;
  Span seen;  // from the first step on the node to when its end there was noticed
  JobSummary share;
};

std::string format_entry(const SpoolEntry& entry);
std::optional<SpoolEntry> parse_entry(std::string_view json);

class Spool {
 public:
  explicit Spool(std::string folder) : folder_(std::move(folder)) {}

  // A job that has been here, and since when.
  struct Mark {
    std::uint32_t job = 0;
    std::int64_t since = 0;
  };
  std::vector<Mark> marks() const;
  std::optional<Mark> mark_of(std::uint32_t job) const;
  void unmark(std::uint32_t job) const;

  // Names of files. An entry that cannot be read is not one of them: it stays for a person to look at.
  std::vector<std::string> entries() const;
  std::optional<SpoolEntry> read(const std::string& name) const;
  // Returns an empty string, or what is wrong. On disk when it returns.
  std::string write(const SpoolEntry& entry) const;
  void remove(const std::string& name) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace sharedgpu
