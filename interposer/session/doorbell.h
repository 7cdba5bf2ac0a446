// SPDX-License-Identifier: Apache-2.0
// A pipe that wakes the service thread from poll(2), and a check whether a descriptor still refers to the
// interposer's own file.
//
// The descriptor table belongs to the program. A program that closes all descriptors also closes the
// interposer's, and reuses their numbers for its own files. The interposer must not read, write or close the
// program's files.
#pragma once

#include <sys/types.h>

#include <mutex>

#include "protocol/channel.h"

namespace sharedgpu::session {

// Identifies the file that a descriptor referred to at construction. This works for pipes and sockets, but
// not for eventfds, which all share one inode.
class FileIdentity {
 public:
  FileIdentity() = default;
  explicit FileIdentity(int fd);
  // Returns true if `fd` is open and refers to the same file.
  bool is(int fd) const;

 private:
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Thread-safe.
class Doorbell {
 public:
  Doorbell() = default;
  ~Doorbell() { drop(); }
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // Creates the pipe, or replaces it. Returns 0 or an errno value.
  int open();
  bool intact() const;
  // The descriptor to poll, which becomes readable when ring() is called; -1 if there is no pipe.
  int fd() const;
  // Does not block.
  void ring();
  void silence();

 private:
  bool is_intact() const { return identity_.is(reading_.get()) && identity_.is(writing_.get()); }
  void drop();

  mutable std::mutex mutex_;
  UniqueFd reading_;
  UniqueFd writing_;
  FileIdentity identity_;  // identifies the pipe; both ends have the same identity
};

}  // namespace sharedgpu::session
