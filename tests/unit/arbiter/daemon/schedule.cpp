// SPDX-License-Identifier: Apache-2.0
// How the event loop's time is divided among users.
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

// Users with work of given durations.
struct Loop {
  asio::io_context loop{1};
  FaultySystem system;
  Schedule schedule{loop, system};
  std::map<uid_t, Nanoseconds> taken;
  bool ended = false;

  Loop() { system.time = 1h; }
  // Adds repeated work of the user. Each repetition takes the time `cost`.
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

TEST_CASE("All users get the same time, whatever the number of their connections and the cost of a message") {
  Loop users;
  for (int i = 0; i < 900; ++i) users.add(1, 20us);
  users.add(2, 20us);
  users.add(3, 5ms);
  users.run_for(1200ms);
  for (const auto& [user, time] : users.taken) {
    CHECK(time > 380ms);
    CHECK(time < 420ms);
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
  users.run_for(800ms);
  CHECK(users.taken[1] > 350ms);
}

TEST_CASE("A user gets two seconds at once and then a fifth of the time, even if it is the only user") {
  Loop users;
  users.add(1, 100us);
  users.loop.poll();
  CHECK(users.taken[1] >= 2s);
  CHECK(users.taken[1] < 2600ms);
  SECTION("others are served while it rests") {
    users.add(2, 100us);
    users.loop.poll();
    CHECK(users.taken[2] >= 2s);
    CHECK(users.taken[1] < 3300ms);
  }
  SECTION("it goes on when it has rested, as often as it wants") {
    for (int i = 0; i < 3; ++i) {
      const Nanoseconds before = users.taken[1];
      *users.system.time += 1s;
      while (users.taken[1] == before) users.loop.run_one();
      users.loop.poll();
      CHECK(users.taken[1] - before >= 190ms);
      CHECK(users.taken[1] - before < 300ms);
    }
  }
  users.ended = true;
}

TEST_CASE("Root gets all time that no other user wants") {
  Loop users;
  users.add(0, 100us);
  users.run_for(10s);
  CHECK(users.taken[0] > 9900ms);
}

TEST_CASE("A message during which the host was suspended does not delay its user's next message") {
  Loop users;
  users.schedule.add(1, [&] {
    *users.system.time += 1h;
    return false;
  });
  users.loop.poll();
  users.loop.restart();
  users.schedule.add(1, [&] {
    users.ended = true;
    return false;
  });
  users.loop.poll();
  CHECK(users.ended);
}

TEST_CASE("A user without messages leaves the next user a whole turn") {
  FairQueue<char> queue(10us);
  for (uid_t user = 1; user <= 3; ++user)
    for (int i = 0; i < 2; ++i) queue.add(user, 'x');
  CHECK(queue.take().first == 1);
  queue.rest(1);
  CHECK(queue.take().first == 2);
  CHECK(queue.charge(2, 9us));
  CHECK(queue.take().first == 2);
  queue.settle();
  queue.resume(1);
  CHECK(queue.take().first == 3);
  CHECK_FALSE(queue.charge(3, 10us));
  CHECK(queue.take().first == 1);
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
