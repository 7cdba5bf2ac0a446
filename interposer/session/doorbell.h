// SPDX-License-Identifier: Apache-2.0
// Wakes the service thread out of poll(2), by a pipe; and how to know that a descriptor is still ours.
//
// We are guests in the program's table of descriptors. A program that closes all that it sees closes ours
// too, and gives their numbers to files of its own: nothing may then be read, written or closed there.
#pragma once

#include <sys/types.h>

#include <mutex>

#include "protocol/channel.h"

namespace sharedgpu::session {

// Which file a descriptor stood for. Pipes and sockets have a number of their own, eventfds do not.
class FileIdentity {
 public:
  FileIdentity() = default;
  explicit FileIdentity(int fd);
  // Whether `fd` is open and stands for that file.
  bool is(int fd) const;

 private:
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Safe from all threads.
class Doorbell {
 public:
  Doorbell() = default;
  ~Doorbell() { drop(); }
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // Makes the pipe, or makes it anew. Returns 0 or an errno value.
  int open();
  bool intact() const;
  // Becomes readable when the bell rings; -1 where there is none.
  int fd() const;
  // Never waits.
  void ring();
  void silence();

 private:
  bool is_intact() const { return identity_.is(reading_.get()) && identity_.is(writing_.get()); }
  void drop();

  mutable std::mutex mutex_;
  UniqueFd reading_;
  UniqueFd writing_;
  FileIdentity identity_;  // of both ends
};

}  // namespace sharedgpu::session
