// SPDX-License-Identifier: Apache-2.0
// The loop's time, divided among users.
#include "arbiter/daemon/schedule.h"

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <catch2/catch.hpp>
#include <map>
#include <optional>

#include "systems.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// Users whose work takes as long as they say.
struct Loop {
  asio::io_context loop{1};
  FaultySystem system;
  Schedule schedule{loop, system};
  std::map<uid_t, Nanoseconds> taken;
  bool ended = false;

  Loop() { system.time = 1h; }
  // Work of that user that comes again and again, and takes so long each time.
  void add(uid_t user, Nanoseconds cost) {
    schedule.add(user, [this, user, cost] {
      *system.time += cost;
      taken[user] += cost;
      return !ended;
    });
  }
  void run_for(Nanoseconds time) {
    loop.restart();
    const Nanoseconds end = *system.time + time;
    while (*system.time < end) loop.poll_one();
    ended = true;
    while (loop.poll_one() > 0) {
    }
  }
};

TEST_CASE("Users get the same time, however many connections they have and however long a message takes") {
  Loop users;
  for (int i = 0; i < 900; ++i) users.add(1, 20us);
  users.add(2, 20us);
  users.add(3, 5ms);
  users.run_for(10s);
  for (const auto& [user, time] : users.taken) {
    CHECK(time > 3200ms);
    CHECK(time < 3500ms);
  }
}

TEST_CASE("A user that comes late waits for one turn of each other user") {
  Loop users;
  for (uid_t user = 1; user <= 10; ++user)
    for (int i = 0; i < 50; ++i) users.add(user, 50us);
  while (*users.system.time < 1h + 1s) users.loop.poll_one();
  const Nanoseconds came = *users.system.time;
  std::optional<Nanoseconds> served;
  users.schedule.add(99, [&] {
    served = *users.system.time;
    return false;
  });
  users.run_for(1s);
  REQUIRE(served);
  CHECK(*served - came < 2 * 10 * 550us + 2ms);
}

TEST_CASE("A user that owes time for a long message owes nothing when nobody else waits") {
  Loop users;
  users.schedule.add(1, [&] {
    *users.system.time += 1s;
    return false;
  });
  users.loop.poll();
  users.add(1, 100us);
  users.add(2, 100us);
  users.run_for(1s);
  CHECK(users.taken[1] > 400ms);
}

TEST_CASE("Work that never ends leaves time for the loop's other work, even if the clock stands still") {
  Loop users;
  users.add(1, 0ns);
  int others = 0;
  for (int i = 0; i < 10; ++i) {
    asio::post(users.loop, [&] { ++others; });
    users.loop.poll_one();
    users.loop.poll_one();
  }
  CHECK(others >= 9);
  users.ended = true;
  users.loop.poll();
}

}  // namespace
}  // namespace sharedgpu::test
