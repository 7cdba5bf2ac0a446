// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "arbiter/daemon/arbiter.h"
#include "arbiter/daemon/connection.h"
#include "arbiter/daemon/log.h"

namespace sharedgpu {
namespace {

// Enough for each process of a large node; root's plugins and daemons are not counted.
constexpr unsigned kMostPerUser = 1024;
constexpr int kAcceptAtOnce = 16;
constexpr std::chrono::milliseconds kPauseWhenFull{100};

}  // namespace

Server::Server(asio::io_context& loop, const System& system, Arbiter& arbiter)
    : loop_(loop), system_(system), arbiter_(arbiter), descriptor_(loop), pause_(loop) {}

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
  if (Status identified = identify(system_, socket.get(), peer); !identified.ok()) {
    if (!is_shortage(identified.code())) return refuse(identified.message());
    if (arbiter_.may_log(peer.uid))
      log::warning(identified.message());  // no refusal: a refused session does not try again
    return;
  }

  auto& count = per_user_[peer.uid];
  if (!count) count = std::make_shared<unsigned>(0);
  if (peer.uid != 0 && *count >= kMostPerUser) {
    if (arbiter_.may_log(peer.uid))
      log::warning("uid " + std::to_string(peer.uid) + ": too many connections");
    return;  // no refusal: a refused session would run beside the others
  }
  ++*count;
  std::shared_ptr<void> place(nullptr, [count](void*) { --*count; });
  arbiter_.serve(std::make_shared<Connection>(loop_, std::move(socket), std::move(peer), std::move(place)));
}

}  // namespace sharedgpu
