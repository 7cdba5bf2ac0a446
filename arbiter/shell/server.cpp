// SPDX-License-Identifier: Apache-2.0
#include "arbiter/shell/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "arbiter/shell/arbiter.h"
#include "arbiter/shell/clock.h"
#include "arbiter/shell/connection.h"
#include "arbiter/shell/log.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::minutes kNotePause{1};  // between two notes of one user
constexpr int kAcceptAtOnce = 16;
constexpr std::chrono::milliseconds kPauseWhenFull{100};

}  // namespace

Server::Server(asio::io_context& loop, Arbiter& arbiter)
    : loop_(loop), arbiter_(arbiter), descriptor_(loop), pause_(loop) {}

void Server::start(UniqueFd listener) {
  descriptor_.assign(listener.release());
  accept_some();
}

void Server::stop() {
  pause_.cancel();
  descriptor_.close();
}

void Server::accept_some() {
  descriptor_.async_wait(asio::posix::descriptor_base::wait_read, [this](const asio::error_code& error) {
    if (error) return;
    for (int i = 0; i < kAcceptAtOnce && accept_one(); ++i) {
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return accept_some();
    log::error(std::string("cannot accept connections: ") + std::strerror(errno));
    pause_.expires_after(kPauseWhenFull);
    pause_.async_wait([this](const asio::error_code& failure) {
      if (!failure) accept_some();
    });
  });
}

bool Server::accept_one() {
  UniqueFd socket(accept4(descriptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return false;
  let_in(std::move(socket));
  errno = 0;
  return true;
}

void Server::let_in(UniqueFd socket) {
  auto refuse = [&socket](const std::string& reason) {
    Refused refused;
    std::strncpy(refused.reason, reason.c_str(), sizeof refused.reason - 1);
    Channel(std::move(socket)).send(Message::of(refused));
  };
  Peer peer;
  bool passes = false;
  if (std::string reason = identify(socket.get(), peer, passes); !reason.empty()) {
    if (!passes) return refuse(reason);
    log::warning(reason);  // and no more: to a session that comes back a refusal is for good
    return;
  }

  // Root's plugins and daemons are not counted.
  User& user = users_[peer.uid];
  const Nanoseconds at = now();
  if (peer.uid != 0 && (*user.connections >= kMostPerUser || !user.arrivals.take(at))) {
    if (user.noted != Nanoseconds{} && at - user.noted < kNotePause) return;
    user.noted = at;
    log::warning("uid " + std::to_string(peer.uid) + ": too many connections, or too often");
    return;  // it may try again: a refusal would make a session that comes back run beside the others
  }
  ++*user.connections;
  std::shared_ptr<void> place(nullptr, [count = user.connections](void*) { --*count; });
  arbiter_.serve(std::make_shared<Connection>(loop_, std::move(socket), std::move(peer), std::move(place)));
}

}  // namespace sharedgpu
