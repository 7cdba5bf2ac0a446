// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "arbiter/daemon/arbiter.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/peers.h"

namespace sharedgpu {
namespace {

// The maximum time for accepting connections before the arbiter does other work. If all connections of a full
// queue are closed or refused, a few such periods empty the queue.
constexpr std::chrono::milliseconds kAcceptFor{1};
constexpr int kAcceptAtOnce = 1024;  // ends the loop even if the clock stands still
constexpr const char* kTooMany = "too many connections";
constexpr const char* kTooOften = "too many connections in a short time";
constexpr std::chrono::milliseconds kPauseWhenFull{100};

}  // namespace

// A peer that has connected and is not identified yet.
struct Server::Arrival {
  Channel channel;
  uid_t account = kNobody;
  std::shared_ptr<Admission::Place> place;
};

Server::Server(const Connection::Parts& parts, const System& system, Arbiter& arbiter, std::size_t places)
    : its_(parts),
      system_(system),
      arbiter_(arbiter),
      admission_(places),
      descriptor_(parts.loop),
      pause_(parts.loop) {}

void Server::start(UniqueFd listener) {
  refuse_descriptors(listener.get());
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
    last_.reset();
    const Nanoseconds end = system_.now() + kAcceptFor;
    for (int i = 0; i < kAcceptAtOnce && accept_one() && system_.now() < end; ++i) {
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return accept_some();
    arbiter_.complaints().add(kNobody, Cause::turned_away,
                              std::string("cannot accept connections: ") + std::strerror(errno), log::error);
    pause_.expires_after(kPauseWhenFull);
    pause_.async_wait([this](const asio::error_code& failure) {
      if (!failure) accept_some();
    });
  });
}

bool Server::accept_one() {
  UniqueFd socket(accept4(descriptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return false;
  arrive(Channel(std::move(socket)));
  errno = 0;
  return true;
}

// Returns the account of the peer. Looks up a process only once if it connects several times in a row.
uid_t Server::account_of_peer(const ucred& credentials) {
  if (!last_ || last_->pid != credentials.pid || last_->uid != credentials.uid)
    last_ = {.pid = credentials.pid,
             .uid = credentials.uid,
             .account = account_of(system_, credentials.pid, credentials.uid)};
  return last_->account;
}

bool Server::may_come(uid_t user) { return user == 0 || coming_.take(user, system_.now()); }

// Identifies the peer in its user's turn, because identifying takes time. Uses the turn of the peer's
// account, since one user with a range of subordinate uids can connect under many uids.
void Server::arrive(Channel channel) {
  if (channel.distrust() == 0 && channel.is_over()) return;
  const auto arrival = std::make_shared<Arrival>();
  arrival->channel = std::move(channel);
  ucred credentials = {};
  if (system_.credentials_of(arrival->channel.fd(), credentials)) {
    if (!may_come(credentials.uid)) return turn_away(*arrival, credentials.uid, kTooOften);
    arrival->account = account_of_peer(credentials);
    if (arrival->account != credentials.uid && !may_come(arrival->account))
      return turn_away(*arrival, arrival->account, kTooOften);
  }
  const auto rank = arrival->account == 0 ? Admission::Rank::root : Admission::Rank::newcomer;
  arrival->place = admission_.enter(arrival->account, rank);
  if (!arrival->place) return turn_away(*arrival, arrival->account, kTooMany);
  its_.schedule.add(arrival->account, [this, arrival] {
    let_in(*arrival);
    return false;
  });
}

void Server::let_in(Arrival& arrival) {
  Peer peer;
  if (Status identified = identify(system_, arrival.channel.fd(), peer); !identified.ok()) {
    // Closes the connection instead of refusing the peer, because a refused session does not retry.
    if (is_shortage(identified.code())) return turn_away(arrival, arrival.account, identified.message());
    return refuse(arrival, identified.message());
  }
  peer.account = arrival.account;
  const auto rank = arbiter_.is_of_job(peer) ? Admission::Rank::member : Admission::Rank::stranger;
  if (!admission_.settle(*arrival.place, rank)) return turn_away(arrival, arrival.account, kTooMany);
  constexpr int kSendBuffer = 16 << 10;  // limits the kernel memory of peers that do not read
  setsockopt(arrival.channel.fd(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  arbiter_.serve(std::make_shared<Connection>(its_, UniqueFd(arrival.channel.release()), std::move(peer),
                                              std::move(arrival.place)));
}

void Server::refuse(Arrival& arrival, const std::string& reason) {
  Refused refused;
  std::strncpy(refused.reason, reason.c_str(), sizeof refused.reason - 1);
  arrival.channel.send(Message::of(refused));
  its_.closer.close(arrival.account, std::move(arrival.channel), std::move(arrival.place));
}

// Closes the connection without a refusal, so that the peer retries: a refused session would use the GPU
// without the arbiter, beside the other tenants.
void Server::turn_away(Arrival& arrival, uid_t user, const std::string& why) {
  arbiter_.complaints().add(arrival.account, Cause::turned_away, "uid " + std::to_string(user) + ": " + why);
  its_.closer.close(arrival.account, std::move(arrival.channel), std::move(arrival.place));
}

}  // namespace sharedgpu
