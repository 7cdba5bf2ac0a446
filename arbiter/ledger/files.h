// SPDX-License-Identifier: Apache-2.0
// The files of a ledger: the current file PATH, and the older files PATH.1, PATH.2..., of which PATH.1 is the
// newest.
//
// Thread-safe. Errors are returned as Status.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "protocol/status.h"

namespace sharedgpu {

// The system calls on files. Tests override them to make each call fail. On failure each call returns -1 and
// sets errno.
struct FileCalls {
  virtual ~FileCalls() = default;
  // Opens the file close-on-exec, and does not follow a symbolic link at `path`. A new file can be accessed
  // only by its owner.
  virtual int open(const std::string& path, int flags);
  virtual ssize_t read(int file, void* bytes, std::size_t size);
  virtual ssize_t write(int file, const void* bytes, std::size_t size);
  virtual int link(const std::string& from, const std::string& to);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
};

// The numbers of the existing older files, newest first. Other files with the same prefix are ignored.
std::set<unsigned> older_files(const std::string& path);

inline std::string older_file(const std::string& path, unsigned number) {
  return path + "." + std::to_string(number);
}

enum class Extent {
  all_files,
  since_checkpoint,  // the newest file that begins with a whole checkpoint, and all newer files
};

// Appends the texts of the ledger's files to `texts`, oldest first. If an arbiter rotates the files during
// the call, no record is missing or read twice. If PATH cannot be read, fails and appends nothing. If an
// older file cannot be read, fails, but appends the texts of the other files.
Status read_ledger(const std::string& path, Extent extent, std::vector<std::string>& texts, FileCalls& calls);
Status read_ledger(const std::string& path, Extent extent, std::vector<std::string>& texts);

// Reads one file; `path` may be a symbolic link.
Status read_file(const std::string& path, std::string& text);

}  // namespace sharedgpu
