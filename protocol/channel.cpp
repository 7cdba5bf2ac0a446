// SPDX-License-Identifier: Apache-2.0
#include "protocol/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "protocol/versions.h"

namespace sharedgpu {
namespace {

// The socket option SO_PASSRIGHTS determines whether a socket accepts descriptors. Its number is from
// asm-generic/socket.h of Linux 6.16; older kernels reject the option. At connect(), before the peer can
// send, Linux copies the option from the listening socket to the new socket.
#ifdef SO_PASSRIGHTS
constexpr int kPassRights = SO_PASSRIGHTS;
#else
constexpr int kPassRights = 83;
#endif

using Clock = std::chrono::steady_clock;

int make_socket(UniqueFd& socket) {
  socket.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return socket ? 0 : errno;
}

// Sets the timeout of connect() and send(); zero means no timeout.
int set_timeout(int socket, Nanoseconds timeout) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(timeout);
  const auto left = std::chrono::ceil<std::chrono::microseconds>(timeout - seconds);
  const timeval most = {.tv_sec = seconds.count(), .tv_usec = std::min<suseconds_t>(left.count(), 999'999)};
  return setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) == 0 ? 0 : errno;
}

}  // namespace

int make_address(const char* path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::size_t length = std::strlen(path);
  if (length == 0) return EINVAL;
  if (length >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path, length);
  return 0;
}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) reset(other.release());
  return *this;
}

int UniqueFd::release() {
  int fd = fd_;
  fd_ = -1;
  return fd;
}

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

void move_out_of_the_way(UniqueFd& fd) {
  for (int least : {960, 192, 3}) {
    int moved = fcntl(fd.get(), F_DUPFD_CLOEXEC, least);
    if (moved < 0) continue;
    fd.reset(moved);
    return;
  }
}

// The kernel admits peers that wait in connect() in the order of their calls. So this function uses a
// blocking connect(). A peer that called a non-blocking connect() repeatedly might find the queue full each
// time.
int Channel::connect(const char* path, Nanoseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  sockaddr_un address;
  if (int error = make_address(path, address)) return error;
  UniqueFd socket;
  if (int error = make_socket(socket)) return error;
  for (;;) {
    // The shortest possible timeout, since 0 would mean no timeout. The Linux kernel rounds this timeout up
    // to a timer tick.
    constexpr Nanoseconds kLeast = std::chrono::microseconds(1);
    if (int error = set_timeout(socket.get(), std::max<Nanoseconds>(end - Clock::now(), kLeast)))
      return error;
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) break;
    if (errno != EINTR) return errno;
  }
  if (int error = set_timeout(socket.get(), {})) return error;
  socket_ = static_cast<UniqueFd&&>(socket);
  return 0;
}

int Channel::wait(Nanoseconds patience) const {
  const Clock::time_point end = Clock::now() + patience;
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd entry = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    int ready = poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return errno;
    if (Clock::now() >= end) return ETIMEDOUT;
  }
}

int Channel::send(const Message& message, int fd) {
  Message spoken = message;
  spoken.version = version_;
  iovec part = {.iov_base = &spoken, .iov_len = sizeof spoken};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    packet.msg_control = control;
    packet.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  while (sendmsg(socket_.get(), &packet, MSG_NOSIGNAL) < 0)
    if (errno != EINTR) return errno;
  return 0;
}

int Channel::receive(Message& message, UniqueFd& fd) {
  iovec part = {.iov_base = &message, .iov_len = sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  ssize_t size;
  // If the peer closes the connection while messages to it are unread, the kernel reports ECONNRESET once,
  // before it delivers the messages that the peer has sent. The last of these messages may be Refused.
  bool was_reset = false;
  while ((size = recvmsg(socket_.get(), &packet, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
    if (errno != EINTR) return errno;
  }
  // Closes every descriptor but the first, so that a peer that sends more cannot fill the descriptor table of
  // this process.
  fd.reset();
  for (cmsghdr* header = CMSG_FIRSTHDR(&packet); header != nullptr; header = CMSG_NXTHDR(&packet, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int received;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof received);
      if (fd)
        ::close(received);
      else
        fd.reset(received);
    }
  }
  if (size == 0) return ECONNRESET;
  if ((packet.msg_flags & MSG_CTRUNC) != 0 && !fd) return EMFILE;
  return accept(message, size, packet.msg_flags);
}

// With SO_PASSCRED, the kernel adds the sender's credentials to every message, even to an empty message, but
// not to the end of the connection. So receive_bare() can tell an empty message from the end of the
// connection.
int Channel::distrust() {
  constexpr int kOn = 1;
  return setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) == 0 ? 0 : errno;
}

int Channel::receive_plain(Message& message) {
  Received received;
  if (const int error = receive_bare(message, MSG_PEEK, received)) return error;
  if (received.ended) return ECONNRESET;
  if ((received.flags & MSG_CTRUNC) != 0) return EBADMSG;
  if (const int error = receive_bare(message, 0, received)) return error;
  return accept(message, received.size, received.flags);
}

bool Channel::is_over() const {
  Message first;
  Received received;
  return receive_bare(first, MSG_PEEK, received) == 0 && received.ended;
}

bool Channel::discard_unread() {
  distrust();
  shutdown(socket_.get(), SHUT_RD);
  for (;;) {
    Message unread;
    Received received;
    if (receive_bare(unread, MSG_PEEK, received) != 0 || received.ended) return true;
    if ((received.flags & MSG_CTRUNC) != 0) return false;
    receive_bare(unread, 0, received);
  }
}

// Receives without waiting. The control buffer has room only for the sender's credentials. If the message
// carries descriptors, the kernel sets MSG_CTRUNC: with MSG_PEEK it leaves the descriptors in the queue,
// otherwise it closes them.
int Channel::receive_bare(Message& message, int how, Received& received) const {
  iovec part = {.iov_base = &message, .iov_len = sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  while ((received.size = recvmsg(socket_.get(), &packet, how | MSG_DONTWAIT)) < 0)
    if (errno != EINTR) return errno;
  received.flags = packet.msg_flags;
  received.ended = received.size == 0 && packet.msg_controllen == 0;
  return 0;
}

// Checks that the received bytes are a valid message, and sets `version_` to the lower of the two ends'
// versions.
int Channel::accept(Message& message, ssize_t size, int flags) {
  const bool whole = size == sizeof message && (flags & MSG_TRUNC) == 0;
  if (!whole || message.magic != kProtocolMagic) return EPROTO;
  version_ = std::min(message.version, kProtocolVersion);
  if (message.version < kOldestVersion) return EPROTONOSUPPORT;
  clear_what_was_added_since(message);
  return 0;
}

void refuse_descriptors(int listener) {
  constexpr int kOff = 0;
  setsockopt(listener, SOL_SOCKET, kPassRights, &kOff, sizeof kOff);
}

// The length of the queue of connections that the arbiter has yet to accept. One user may have made and
// dropped many connections, which stand in the queue ahead of another user's connection. The arbiter handles
// each dropped connection in about 10 microseconds. A peer that finds the queue full waits in connect().
constexpr int kMostInQueue = 128;

int listen_at(const char* path, UniqueFd& socket) {
  sockaddr_un address;
  if (int error = make_address(path, address)) return error;
  struct stat info = {};
  if (lstat(path, &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) return EEXIST;
    Channel probe;
    int error = probe.connect(path);
    if (error == 0 || error == EAGAIN) return EADDRINUSE;
    if (unlink(path) != 0) return errno;
  }
  if (int error = make_socket(socket)) return error;
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return errno;
  if (chmod(path, 0666) != 0 || listen(socket.get(), kMostInQueue) != 0) return errno;
  return 0;
}

}  // namespace sharedgpu
