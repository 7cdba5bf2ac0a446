// SPDX-License-Identifier: Apache-2.0
// One end of a Unix seqpacket connection that carries Messages. Each Message carries at most one descriptor.
//
// Not thread-safe: each received message may change the version that send() uses. No exceptions; errors are
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

// Moves the descriptor to a high number if one is free. Low numbers belong to the program: it uses 0 to 2 for
// standard streams, allocates descriptors from 0 up, and may close all low numbers.
void move_out_of_the_way(UniqueFd& fd);

class Channel {
 public:
  Channel() = default;
  explicit Channel(UniqueFd socket) : socket_(static_cast<UniqueFd&&>(socket)) {}

  // Connects to `path`. Returns 0 or an errno value: EAGAIN if an arbiter listens but its queue stayed full
  // for `patience`, ENAMETOOLONG if the path does not fit sun_path.
  int connect(const char* path, Nanoseconds patience = {});
  // Waits until receive() has a result, at most for `patience`. Returns 0, ETIMEDOUT after this time, or
  // another errno value.
  int wait(Nanoseconds patience) const;
  // Sends one message, and the descriptor `fd` with the message unless `fd` is -1. Never raises SIGPIPE.
  // Returns 0 or an errno value.
  int send(const Message& message, int fd = -1);
  // Waits for one message. `fd` receives the descriptor that came with the message, or stays empty. Returns 0
  // or an errno value: ECONNRESET if the peer has closed the connection, EPROTO if the peer sent anything but
  // a Message, EPROTONOSUPPORT if the peer's version is too old, EMFILE if this process has too many open
  // descriptors to receive another one. Later calls of send() use the lower of the two ends' versions, even
  // if the peer's version is too old.
  int receive(Message& message, UniqueFd& fd);
  // Makes this end accept no descriptors. Call this if the peer is untrusted: an untrusted peer could pass a
  // descriptor that takes very long to close (a TCP socket with SO_LINGER, a file of a FUSE server).
  //
  // Call distrust() before receive_plain(). Returns 0 or an errno value.
  int distrust();
  // Does the same as receive(), but never waits and accepts no descriptor: if the next message carries a
  // descriptor, returns EBADMSG and leaves the message in the queue.
  int receive_plain(Message& message);
  // Returns true if the peer has closed the connection, and all its messages have been read. Closing the
  // socket then takes no time. Call distrust() first.
  bool is_over() const;
  // Refuses all further messages and discards the unread messages. Call this before closing the socket of an
  // untrusted peer: closing may take long if an unread message carries a descriptor, and with unread messages
  // the peer finds ECONNRESET before the last messages to it. Returns false if an unread message carries a
  // descriptor; this message and all later messages then stay queued.
  bool discard_unread();

  int fd() const { return socket_.get(); }
  // The highest version that both ends understand; this end's version until the first message has arrived.
  std::uint16_t version() const { return version_; }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  void close() { socket_.reset(); }
  // Gives up ownership of the socket.
  int release() { return socket_.release(); }
  // Forgets the descriptor without closing it. Call this if other code has closed the descriptor: its number
  // may belong to another file now.
  void abandon() { socket_.release(); }
  void move_out_of_the_way() { sharedgpu::move_out_of_the_way(socket_); }

 private:
  struct Received {
    ssize_t size = 0;
    int flags = 0;
    bool ended = false;  // the peer has closed the connection, and all its messages have been read
  };
  int receive_bare(Message& message, int how, Received& received) const;
  int accept(Message& message, ssize_t size, int flags);

  UniqueFd socket_;
  std::uint16_t version_ = kProtocolVersion;  // the lower of the two ends' versions
};

// Sets `address` to that of a socket at `path`. Returns 0, EINVAL if the path is empty, or ENAMETOOLONG.
int make_address(const char* path, sockaddr_un& address);

// Makes the Linux kernel refuse descriptors from peers that connect later, if the kernel supports this (Linux
// 6.16).
void refuse_descriptors(int listener);

// Binds and listens at `path`. A socket at `path` on which no process listens belonged to a dead arbiter, and
// is replaced. No other file is replaced. The socket has mode 0666, because every user may send messages to
// the arbiter. Returns 0 or an errno value; EADDRINUSE if another arbiter listens at `path`.
int listen_at(const char* path, UniqueFd& socket);

}  // namespace sharedgpu
