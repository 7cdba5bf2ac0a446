// SPDX-License-Identifier: Apache-2.0
// A pipe that wakes the service thread from poll(2), and a check that a descriptor is still ours.
//
// The descriptor table belongs to the program. A program that closes all descriptors closes ours too, and the
// numbers are reused for its own files: we must not read, write or close those.
#pragma once

#include <sys/types.h>

#include <mutex>

#include "protocol/channel.h"

namespace sharedgpu::session {

// The file that a descriptor referred to. Pipes and sockets have an inode of their own, eventfds do not.
class FileIdentity {
 public:
  FileIdentity() = default;
  explicit FileIdentity(int fd);
  // Returns true if `fd` is open and refers to that file.
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
  // The descriptor to poll, which is readable after ring(); -1 if there is no pipe.
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
  FileIdentity identity_;  // the pipe's identity, the same for both ends
};

}  // namespace sharedgpu::session
