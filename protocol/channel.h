// SPDX-License-Identifier: Apache-2.0
// One end of a Unix seqpacket connection that carries Messages, and at most one descriptor with each.
//
// For one thread at a time: what is received says which version is to be sent. No exceptions; errors are
// errno values. Every descriptor made or received here is close-on-exec.
#pragma once

#include <sys/types.h>

#include "protocol/messages.h"

struct sockaddr_un;

namespace sharedgpu {

inline constexpr char kDefaultSocket[] = "/run/sharedgpu/sharedgpud.sock";

// A descriptor that is closed when it goes out of scope.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Gives the descriptor a high number where one can be had: programs make theirs from 0 up, close all they
// see, and take 0 to 2 for standard streams whatever they are.
void move_out_of_the_way(UniqueFd& fd);

class Channel {
 public:
  Channel() = default;
  explicit Channel(UniqueFd socket) : socket_(static_cast<UniqueFd&&>(socket)) {}

  // Connects to `path`. Waits at most `patience` where an arbiter listens but too many others wait for it,
  // and returns EAGAIN then. Otherwise 0 or an errno value: ENAMETOOLONG where the path does not fit
  // sun_path.
  int connect(const char* path, Nanoseconds patience = {});
  // Waits until receive() has something to say, at most `patience`. Returns 0, ETIMEDOUT, or an errno value.
  int wait(Nanoseconds patience) const;
  // Sends one message, with `fd` if it is not -1. Never raises SIGPIPE. Returns 0 or an errno value.
  int send(const Message& message, int fd = -1);
  // Waits for one message. `fd` receives the descriptor that came with it, or stays empty. Returns 0, an
  // errno value, ECONNRESET where the peer has closed, EPROTO where it sent something else than a Message,
  // EPROTONOSUPPORT where that is of a version that is no longer understood, or EMFILE where this process has
  // no room for the descriptor. From then on send() speaks as the peer does, also to one that is too old.
  int receive(Message& message, UniqueFd& fd);
  // For a peer that is not trusted. It has no reason to pass a descriptor, and may do so to harm: closing one
  // takes as long as its owner likes (a TCP socket with SO_LINGER, a file of a FUSE server). So none is
  // taken.
  //
  // Must be called before receive_plain(). Returns 0 or an errno value.
  int distrust();
  // As receive(), but never waits. Returns EBADMSG where the next message carries a descriptor, and leaves
  // that message where it is.
  int receive_plain(Message& message);
  // True if the peer has closed and nothing that it sent is left: closing the socket takes no time. After
  // distrust().
  bool is_over() const;
  // Refuses all further messages and discards those that have not been read, unless nobody could have sent a
  // descriptor. False: one of them carries one. It is left there with all that follow, and closing the socket
  // may take long.
  bool discard_unread();

  int fd() const { return socket_.get(); }
  // That both ends understand, as far as the peer has said which it speaks.
  std::uint16_t version() const { return version_; }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  void close() { socket_.reset(); }
  // Gives the socket away.
  int release() { return socket_.release(); }
  // Forgets the descriptor: somebody else has closed it, and its number may be another file's.
  void abandon() { socket_.release(); }
  void move_out_of_the_way() { sharedgpu::move_out_of_the_way(socket_); }

 private:
  struct Received {
    ssize_t size = 0;
    int flags = 0;
    bool ended = false;  // the peer has closed, and all its messages have been read
  };
  bool refuses_descriptors() const;
  int receive_bare(Message& message, int how, Received& received) const;
  int accept(Message& message, ssize_t size, int flags);

  UniqueFd socket_;
  std::uint16_t version_ = kProtocolVersion;  // the lower of both ends'
};

// The address of a socket at `path`. Returns 0, EINVAL where that is empty, or ENAMETOOLONG.
int make_address(const char* path, sockaddr_un& address);

// Peers that connect from now on cannot send descriptors, where the kernel can refuse them (Linux 6.16).
void refuse_descriptors(int listener);

// Binds and listens at `path`, replacing a stale socket of a dead arbiter (one that nobody accepts on) but
// nothing else. Mode 0666: every user may talk to the arbiter. Returns 0 or an errno value; EADDRINUSE where
// another arbiter listens there.
int listen_at(const char* path, UniqueFd& socket);

}  // namespace sharedgpu
