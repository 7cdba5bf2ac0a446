// SPDX-License-Identifier: Apache-2.0
// The lock file of exported memory shows whether an importer still has the memory open. Exporter and
// importers share the file. An importer locks one byte for each exported allocation that it has open.
//
// When a process dies, for any reason, the Linux kernel drops its locks, so no message is needed. The locks
// belong to the open file description (F_OFD_SETLK), and every process has an open file description of its
// own. Not thread-safe.
#pragma once

#include <cstdint>

#include "protocol/channel.h"

namespace sharedgpu::shared_memory {

class LockFile {
 public:
  // Exported allocations have numbers below this limit. The lock that shows that the exporter's process still
  // exists, and the locks that inherit() takes, are at bytes from this limit on.
  static constexpr std::uint64_t kMostExports = std::uint64_t{1} << 61;

  // For the exporter: creates the file. Returns false on failure.
  bool create();
  // Returns a new open file description, to be sent to one importer; empty on failure.
  UniqueFd for_importer() const;
  // For an importer: takes over the file that the exporter has sent.
  void adopt(UniqueFd file) { file_ = static_cast<UniqueFd&&>(file); }
  explicit operator bool() const { return static_cast<bool>(file_); }
  // Call this in the child of a fork. Otherwise the child's copy of the descriptor would keep the locks after
  // the parent's death.
  void drop() { file_.reset(); }

  // For the exporter: returns true if an importer has the allocation open.
  bool is_held(std::uint64_t number) const;

  // The following functions are for an importer.
  void hold(std::uint64_t number) const;
  void let_go(std::uint64_t number) const;
  bool exporter_lives() const;
  // Call this after the death of the exporter. Returns true if this importer must count the allocation as
  // pinned memory from now on. At any time, at most one importer counts it.
  bool inherit(std::uint64_t number) const;

 private:
  UniqueFd file_;
};

}  // namespace sharedgpu::shared_memory
