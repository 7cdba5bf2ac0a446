// SPDX-License-Identifier: Apache-2.0
// The files of a ledger: PATH, and the older ones PATH.1, PATH.2..., of which PATH.1 is the newest.
//
// Any thread; errors are values.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "protocol/status.h"

namespace sharedgpu {

// The calls on files, so that tests can make each of them fail. They return -1 and set errno.
struct FileCalls {
  virtual ~FileCalls() = default;
  // The descriptor is close-on-exec; a link at `path` is not followed; a new file is its owner's alone.
  virtual int open(const std::string& path, int flags);
  virtual ssize_t read(int file, void* bytes, std::size_t size);
  virtual ssize_t write(int file, const void* bytes, std::size_t size);
  virtual int link(const std::string& from, const std::string& to);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
};

// The numbers of the older files that there are, the newest first. Other files whose names begin the same are
// left alone.
std::set<unsigned> older_files(const std::string& path);

inline std::string older_file(const std::string& path, unsigned number) {
  return path + "." + std::to_string(number);
}

enum class Extent {
  all_files,
  since_checkpoint,  // the newest file, and older ones until one begins with a whole checkpoint
};

// Appends the texts of the ledger's files to `texts`, oldest first. While an arbiter rotates them no record
// is missing or read twice. Fails without a text where PATH cannot be read; where an older file cannot be,
// fails with the texts of the others.
Status read_ledger(const std::string& path, Extent extent, std::vector<std::string>& texts, FileCalls& calls);
Status read_ledger(const std::string& path, Extent extent, std::vector<std::string>& texts);

// Reads one file, which may be a link.
Status read_file(const std::string& path, std::string& text);

}  // namespace sharedgpu
