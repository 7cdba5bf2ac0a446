// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/connection.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <cerrno>
#include <cstring>

namespace sharedgpu {
namespace {

constexpr std::size_t kMostWaiting = 256;
constexpr char kDoesNotReadNorOthers[] = "it does not read its messages, nor do others of its user";

// The reason why a message could not be sent. Empty if the peer has closed the connection.
std::string reason_of(int failure) {
  return failure == EPIPE || failure == ECONNRESET ? "" : std::strerror(failure);
}

}  // namespace

Connection::Connection(const Parts& parts, UniqueFd socket, Peer peer,
                       std::shared_ptr<Admission::Place> place)
    : its_(parts),
      descriptor_(parts.loop),
      channel_(std::move(socket)),
      peer_(std::move(peer)),
      place_(std::move(place)) {}

void Connection::start(OnMessage on_message, OnClosed on_closed) {
  on_message_ = std::move(on_message);
  on_closed_ = std::move(on_closed);
  if (const int failure = channel_.distrust()) return close(std::strerror(failure));
  asio::error_code error;
  descriptor_.assign(channel_.fd(), error);
  if (error) return close(error.message());
  receive_in_turn();  // usually the first message has already arrived
}

void Connection::receive_in_turn() {
  its_.schedule.add(peer_.account, [self = shared_from_this()] { return self->receive(); });
}

void Connection::await_message() {
  descriptor_.async_wait(asio::posix::descriptor_base::wait_read,
                         [self = shared_from_this()](const asio::error_code& error) {
                           if (!error) self->receive_in_turn();
                         });
}

// Handles one message. Returns true if another message may have arrived.
bool Connection::receive() {
  if (!channel_) return false;
  Message message;
  if (const int failure = channel_.receive_plain(message)) {
    receive_failed(failure);
    return false;
  }
  on_message_(message);
  return static_cast<bool>(channel_);
}

void Connection::receive_failed(int failure) {
  switch (failure) {
    case EAGAIN:
      return await_message();
    case ECONNRESET:
      return close({});
    case EBADMSG:
      return close("it sent file descriptors, which is not allowed");
    case EPROTONOSUPPORT:
      return refuse_version();
    default:
      return close(std::strerror(failure));
  }
}

// Sends Refused before it closes the connection: a refused peer continues without the arbiter. A peer whose
// connection is closed without Refused would reconnect forever.
void Connection::refuse_version() {
  send(Message::of(
      Refused{.reason = "the arbiter is newer, and no longer supports this version of the protocol"}));
  close("it uses too old a version of the protocol");
}

void Connection::send(const Message& message, int fd) {
  if (!channel_) return;
  if (queue_.empty()) {
    int failure = channel_.send(message, fd);
    if (failure == 0) return;
    if (failure != EAGAIN && failure != EWOULDBLOCK) return close(reason_of(failure));
  }
  if (!may_wait(fd)) return close(kDoesNotRead);
  UniqueFd copy(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (fd >= 0 && !copy) return close(std::strerror(errno));
  if (place_ && !place_->add_waiting()) return close(kDoesNotReadNorOthers);
  queue_.push_back(Waiting{.message = message, .fd = std::move(copy)});
  write_some();
}

bool Connection::may_wait(int fd) const {
  const auto has_fd = [](const Waiting& waiting) { return static_cast<bool>(waiting.fd); };
  return queue_.size() < kMostWaiting && (fd < 0 || std::none_of(queue_.begin(), queue_.end(), has_fd));
}

bool Connection::send_now(const Message& message, int fd) {
  return channel_ && queue_.empty() && channel_.send(message, fd) == 0;
}

bool Connection::has_unread() const {
  int unread = 0;
  return !queue_.empty() || (ioctl(channel_.fd(), SIOCOUTQ, &unread) == 0 && unread > 0);
}

bool Connection::is_closed() const {
  pollfd its{.fd = channel_.fd(), .events = 0, .revents = 0};
  return !channel_ || (poll(&its, 1, 0) == 1 && (its.revents & POLLHUP) != 0);
}

void Connection::write_some() {
  if (writing_ || queue_.empty() || !channel_) return;
  writing_ = true;
  descriptor_.async_wait(asio::posix::descriptor_base::wait_write,
                         [self = shared_from_this()](const asio::error_code& error) {
                           self->writing_ = false;
                           if (error || !self->channel_) return;
                           self->flush();
                           self->write_some();
                         });
}

void Connection::flush() {
  while (!queue_.empty()) {
    int failure = channel_.send(queue_.front().message, queue_.front().fd.get());
    if (failure == EAGAIN || failure == EWOULDBLOCK) return;
    if (failure != 0) return close(reason_of(failure));
    queue_.pop_front();
    if (place_) place_->remove_waiting(1);
  }
}

void Connection::refuse(const std::string& reason) {
  Refused refused;
  std::strncpy(refused.reason, reason.c_str(), sizeof refused.reason - 1);
  send(Message::of(refused));
  close(reason);
}

void Connection::close(const std::string& reason) {
  if (!channel_) return;
  auto executor = descriptor_.get_executor();
  descriptor_.release();
  if (place_) place_->remove_waiting(queue_.size());
  queue_.clear();
  its_.closer.close(peer_.account, std::move(channel_), place_);
  asio::post(executor, [self = shared_from_this(), reason] {
    self->on_message_ = nullptr;
    if (OnClosed told = std::exchange(self->on_closed_, nullptr)) told(reason);
  });
}

}  // namespace sharedgpu
