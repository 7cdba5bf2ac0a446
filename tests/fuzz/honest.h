// SPDX-License-Identifier: Apache-2.0
// A well-behaved tenant. The arbiter must serve this tenant, whatever other peers do.
//
// Used by one thread only.
#pragma once

#include <cerrno>
#include <cstdio>
#include <optional>
#include <variant>

#include "fuzzed_daemon.h"
#include "simulation/session.h"

namespace sharedgpu::fuzz {

class Honest : private simulation::Process {
 public:
  explicit Honest(Daemon& daemon) : daemon_(daemon) {
    pid_ = daemon.host.start(kHonestUser, cgroup_of(kHonestJob, "0")).pid;
  }

  // Connects to the arbiter, for the first time or again.
  void come() {
    channel_ = Channel(connect(daemon_.settings.socket, pid_));
    if (!channel_) return;
    Hello hello;
    hello.resuming = session_.has_value();
    hello.epoch = session_ ? session_->epoch : Epoch{};
    if (!session_) session_.emplace();
    say(hello);
    say(Attach{.gpu = kGpus[0], .total = gibibytes(1), .name = {}});
    if (hello.resuming != 0) say(Usage{.request = 0, .use = session_->use, .stuck = 0});
    daemon_.run();
    listen();
  }
  // Call this if the ledger has lost records at a restart of the arbiter. The arbiter may then serve the
  // tenant as a new tenant, or refuse it.
  void be_forgotten() { is_forgotten_ = true; }
  bool is_forgotten() const { return is_forgotten_; }
  // Allocates so much memory that the tenant may have to take turns with other tenants.
  void settle() { grow(mebibytes(400)); }
  // Reads the messages of the arbiter, and obeys.
  void listen() {
    if (!channel_) return;
    Message message;
    UniqueFd descriptor;
    int failure = 0;
    while (channel_ && (failure = channel_.receive(message, descriptor)) == 0) {
      session_->receive(message);
      attached_ = attached_ || message.type == MessageType::attached;
      if (message.type == MessageType::memory_view) viewed_ = message.as<MemoryView>().request;
      if (message.type == MessageType::verdict) take(message.as<Verdict>());
      if (message.type == MessageType::refused) be_refused(message.as<Refused>());
    }
    if (failure != 0 && failure != EAGAIN) channel_.close();
    while (channel_ && session_->begin_order()) obey();
  }
  // The arbiter must answer queries at once. It must answer requests for memory as soon as surveys have shown
  // that other peers have no memory on the GPU.
  void check() {
    is_surveyed_ = true;
    for (int tries = 0; !channel_ || !attached_; ++tries) {
      require(tries < 10, "an honest process is not served");
      if (!channel_) come();
      wait(1s);
    }
    constexpr std::uint64_t kQuestion = 17;
    viewed_ = 0;
    say(MemoryQuery{.request = kQuestion});
    daemon_.run();
    listen();
    require(viewed_ == kQuestion, "an honest session has no answer");
    for (int tries = 0; surveys_ < kSurveys; ++tries) {
      require(tries < 200, "the arbiter does not look at the GPUs");
      wait(1s);
    }
    grow(mebibytes(1));
  }
  void come_again() {
    if (!channel_) come();
  }

 private:
  void grow(Bytes more) {
    session_->use.swappable += more;
    say(Usage{.request = ++requests_, .use = session_->use, .stuck = 0});
    for (int tries = 0; answered_ != requests_; ++tries) {
      require(tries < 600, "an honest session waits for memory for ever");
      wait(1s);
      if (channel_) continue;  // if the connection was lost, the request is sent again
      come();
      say(Usage{.request = requests_, .use = session_->use, .stuck = 0});
    }
  }
  void take(const Verdict& verdict) {
    if (is_forgotten_) return;
    require(verdict.granted != 0, "an honest session was refused memory");
    answered_ = verdict.request;
    session_->take(verdict);
  }
  // The tenant is refused if the host cannot identify its process.
  void be_refused(const Refused& refused) const {
    if (is_forgotten_ || !daemon_.host.is_well()) return;
    std::fprintf(stderr, "refused: %s\n", refused.reason);
    require(false, "an honest session is refused");
  }
  void wait(Nanoseconds time) {
    daemon_.host.advance(time);
    daemon_.run();
    if (is_surveyed_ && answer_survey(daemon_.host, pid_, session_->use.resident)) ++surveys_;
    daemon_.run();
    listen();
  }
  void obey() {
    for (simulation::Piece piece; !piece.finished;) {
      piece = simulation::carry_out(*session_, *this, gibibytes(1));
      if (piece.report) std::visit([this](const auto& report) { say(report); }, *piece.report);
    }
  }
  Nanoseconds drain(simulation::Session&, MessageType) override { return {}; }
  bool waits(const simulation::Session& session) const override { return session.use.swappable != Bytes{}; }

  template <class Body>
  void say(const Body& body) {
    if (!channel_) return;
    ++messages;
    if (channel_.send(Message::of(body)) != 0) channel_.close();
  }

  Daemon& daemon_;
  pid_t pid_ = 0;
  Channel channel_;
  std::optional<simulation::Session> session_;
  bool attached_ = false, is_surveyed_ = false, is_forgotten_ = false;
  std::uint64_t viewed_ = 0, requests_ = 0, answered_ = 0;
  static constexpr int kSurveys = 4;  // false reports of other peers have no effect after this number of
                                      // surveys
  int surveys_ = 0;
};

}  // namespace sharedgpu::fuzz
