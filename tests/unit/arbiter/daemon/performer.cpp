// SPDX-License-Identifier: Apache-2.0
// Tests when the performer carries out actions of the core.
#include "arbiter/daemon/performer.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <utility>

#include "host.h"

namespace sharedgpu::test {
namespace {

// A performer with sessions of one user, on a loop that the test runs.
struct Stage {
  TemporaryFolder folder;
  asio::io_context loop{1};
  Schedule schedule{loop, kHostSystem};
  Closer closer{loop, kHostSystem, schedule};
  FigureBook figures;
  Journal journal{loop, kHostSystem, figures, settings()};
  Tenants tenants;
  Complaints complaints{loop, kHostSystem};
  SessionTable sessions;
  std::map<SessionId, int> looks;  // number of polls of the process of each session
  Performer performer{loop,
                      schedule,
                      kHostSystem,
                      sessions,
                      tenants,
                      complaints,
                      {.timer_fired = [] {},
                       .poll_process = [this](SessionId id) { ++looks[id]; },
                       .tell_gang = [](const TellGang&) {}}};

  Stage() {
    REQUIRE(journal.open([](const Record&) {}).ok());
  }
  ~Stage() {
    for (const auto& [id, session] : sessions.all()) session.client->connection().close({});
    run();
  }
  Settings settings() const {
    Settings settings;
    settings.state_dir = folder.path;
    return settings;
  }
  void come(SessionId id) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd of_peer(ends[0]);
    Peer peer;
    peer.account = kUser;
    auto connection =
        std::make_shared<Connection>(Connection::Parts{.loop = loop, .schedule = schedule, .closer = closer},
                                     UniqueFd(ends[1]), std::move(peer), std::shared_ptr<Admission::Place>());
    sessions.add(id, {.client = std::make_shared<Client>(std::move(connection)),
                      .page = {},
                      .death = asio::posix::stream_descriptor(loop)});
  }
  void ask_for_look(SessionId id) { performer.perform(journal.write_down({Look{.session = id}})); }
  void run() {
    loop.restart();
    while (loop.poll() > 0) {
    }
  }
};

TEST_CASE("However often a poll of a process is requested, at most one poll is queued") {
  constexpr SessionId kOne{1}, kOther{2};
  Stage its;
  its.come(kOne);
  its.come(kOther);
  for (int i = 0; i < 100; ++i) its.ask_for_look(kOne);
  its.ask_for_look(kOther);
  CHECK(its.looks.empty());
  its.run();
  CHECK(its.looks == std::map<SessionId, int>{{kOne, 1}, {kOther, 1}});
  its.ask_for_look(kOne);
  its.run();
  CHECK(its.looks[kOne] == 2);
}

}  // namespace
}  // namespace sharedgpu::test
