// SPDX-License-Identifier: Apache-2.0
// The lock file of exported memory, which shows whether an importer still has it open. Exporter and importers
// share the file and lock one byte per exported allocation.
//
// The kernel drops the locks of a process that dies, in whatever way, so no message is needed. The locks
// belong to the open file description (F_OFD_SETLK), and every process has its own. Not thread-safe.
#pragma once

#include <cstdint>

#include "protocol/channel.h"

namespace sharedgpu::shared_memory {

class LockFile {
 public:
  // Exported allocations have numbers below this limit. The bytes from the limit on are for the exporter's
  // own lock and for the importers that inherit.
  static constexpr std::uint64_t kMostExports = std::uint64_t{1} << 61;

  // For the exporter: creates the file. Returns false on failure.
  bool create();
  // A new open file description, to be sent to one importer; empty on failure.
  UniqueFd for_importer() const;
  // For the importer: takes over the file that was sent.
  void adopt(UniqueFd file) { file_ = static_cast<UniqueFd&&>(file); }
  explicit operator bool() const { return static_cast<bool>(file_); }
  // Call it in the child of a fork, whose copy of the descriptor would keep the locks.
  void drop() { file_.reset(); }

  // For the exporter: returns true if an importer holds the allocation.
  bool is_held(std::uint64_t number) const;

  // The following functions are for an importer.
  void hold(std::uint64_t number) const;
  void let_go(std::uint64_t number) const;
  bool exporter_lives() const;
  // Called after the death of the exporter: returns true if this process is the one that now counts the
  // allocation.
  bool inherit(std::uint64_t number) const;

 private:
  UniqueFd file_;
};

}  // namespace sharedgpu::shared_memory
