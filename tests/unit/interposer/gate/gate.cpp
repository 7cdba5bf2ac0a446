// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <sys/wait.h>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "interposer/gate/captures.h"
#include "interposer/gate/closing.h"
#include "interposer/gate/gate.h"

using namespace sharedgpu;
using namespace std::chrono_literals;

namespace {

std::atomic<int> wants{0};
std::atomic<bool> complete{true};

struct Listener final : gate::GateListener {
  void on_wait() override { ++wants; }
  bool all_resident() override { return complete; }
} listener;

// A lease page that the test controls, as the arbiter would.
class Arbiter {
 public:
  explicit Arbiter(bool open) {
    gate::arm(listener);
    gate::prepare_to_close();
    REQUIRE(writer_.create() == 0);
    writer_.set_open(open);
    REQUIRE(gate::install(writer_.fd()));
    if (open) gate::hold();
  }
  ~Arbiter() { gate::open_for_good(); }
  void set_open(bool open) { writer_.set_open(open); }

 private:
  LeasePageWriter writer_;
};

class Call final : public gate::Drain {
 public:
  explicit Call(std::function<void()> work = [] {}) : work_(std::move(work)) {}
  bool drain() override {
    work_();
    return ++drains_ > failures;
  }
  int failures = 0;  // number of drains that fail because they cannot wait for the GPU

 private:
  std::function<void()> work_;
  int drains_ = 0;
};

// From the first pause on, submissions read a page that the gate itself has made. The end of the test drops
// this page.
struct Pauses {
  ~Pauses() { gate::after_fork(); }
};

bool close_quietly() {
  Call nothing;
  return gate::close(nothing);
}

template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(1ms);
}

// Threads that each pass the gate once.
class Submitters {
 public:
  void add(int count = 1) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        gate::Pass pass;
        ++passed;
      });
    wait_until([] { return gate::wanted(); });
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  std::atomic<int> passed{0};

 private:
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("the gate is open before there is a session") {
  std::uint64_t before = gate::activity().passes;
  {
    gate::Pass outer;
    CHECK(gate::activity().inside);
    gate::Pass inner;
    CHECK(gate::activity().inside);
  }
  gate::Activity after = gate::activity();
  CHECK(!after.inside);
  CHECK(after.passes == before + 2);
}

TEST_CASE("a closed gate holds submissions until it opens") {
  Arbiter arbiter(true);
  arbiter.set_open(false);
  CHECK(close_quietly());
  CHECK(!gate::held());

  wants = 0;
  Submitters submitters;
  submitters.add(4);
  std::this_thread::sleep_for(50ms);
  CHECK(submitters.passed == 0);
  CHECK(wants >= 1);
  gate::hold();
  arbiter.set_open(true);
  submitters.join();
  CHECK(submitters.passed == 4);
  CHECK(!gate::wanted());
}

TEST_CASE("closing waits for the thread inside, and drains after it has left") {
  Arbiter arbiter(true);
  std::atomic<bool> inside{false};
  std::atomic<bool> leave{false};
  std::atomic<bool> left{false};
  std::thread thread([&] {
    gate::Pass pass;
    inside = true;
    wait_until([&] { return leave.load(); });
    left = true;
  });
  wait_until([&] { return inside.load(); });
  arbiter.set_open(false);
  bool drained_after = false;
  Call drain([&] { drained_after = left; });
  std::thread closer([&] { CHECK(gate::close(drain)); });
  std::this_thread::sleep_for(20ms);
  CHECK(gate::held());
  leave = true;
  closer.join();
  thread.join();
  CHECK(drained_after);
  CHECK(!gate::held());
}

TEST_CASE("if a gate is opened again while it is closing, the process keeps its turn") {
  Arbiter arbiter(true);
  std::atomic<bool> inside{false};
  std::atomic<bool> leave{false};
  std::thread thread([&] {
    gate::Pass pass;
    inside = true;
    wait_until([&] { return leave.load(); });
  });
  wait_until([&] { return inside.load(); });
  arbiter.set_open(false);
  std::atomic<bool> closed{true};
  std::thread closer([&] { closed = close_quietly(); });
  std::this_thread::sleep_for(5ms);
  arbiter.set_open(true);
  closer.join();
  CHECK(!closed);
  CHECK(gate::held());
  leave = true;
  thread.join();
}

TEST_CASE("a gate that opened without a Ready is drained all the same") {
  Arbiter arbiter(true);
  arbiter.set_open(false);
  CHECK(close_quietly());
  arbiter.set_open(true);
  CHECK(gate::held());
  { gate::Pass pass; }
  arbiter.set_open(false);
  CHECK(gate::held());
  int rounds = 0;
  Call drain([&] { ++rounds; });
  CHECK(gate::close(drain));
  CHECK(rounds == 1);
  CHECK(gate::close(drain));  // a second Revoke
  CHECK(rounds == 1);
}

TEST_CASE("a gate with several pages is open when all of them are") {
  gate::arm(listener);
  gate::prepare_to_close();
  LeasePageWriter first;
  LeasePageWriter second;
  REQUIRE(first.create() == 0);
  REQUIRE(second.create() == 0);
  first.set_open(true);
  REQUIRE(gate::install(first.fd(), {0}));
  gate::hold();
  CHECK(gate::is_open());
  // A second page that is closed when it is installed closes the gate. Submissions wait, too.
  REQUIRE(gate::install(second.fd(), {1}));
  CHECK(!gate::is_open());
  CHECK(close_quietly());
  Submitters submitters;
  auto all_pass = [&](int wanted) {
    submitters.join();
    CHECK(submitters.passed == wanted);
  };
  submitters.add();
  second.set_open(true);
  all_pass(1);
  // Each of the two pages can close the gate. Threads that call is_open() see the closed gate at once; all
  // other threads see it after close().
  for (LeasePageWriter* page : {&first, &second}) {
    page->set_open(false);
    CHECK(!gate::is_open());
    int rounds = 0;
    Call drain([&] { ++rounds; });
    CHECK(gate::close(drain));
    CHECK(rounds == 1);
    CHECK(gate::close(drain));  // the Revoke of the other session
    CHECK(rounds == 1);
    submitters.passed = 0;
    submitters.add();
    std::this_thread::sleep_for(20ms);
    CHECK(submitters.passed == 0);
    page->set_open(true);
    all_pass(1);
  }
  // If two pages are opened one after the other, the gate opens with the second page.
  first.set_open(false);
  second.set_open(false);
  CHECK(close_quietly());
  submitters.passed = 0;
  submitters.add();
  first.set_open(true);
  std::this_thread::sleep_for(20ms);
  CHECK(submitters.passed == 0);
  second.set_open(true);
  all_pass(1);
  // The smallest backlog limit that an oversubscribed page states applies; 0 states none.
  auto look = [] { gate::contended({0}); };
  look();
  CHECK(!gate::oversubscribed());
  first.set_oversubscribed(true);
  look();
  CHECK(gate::oversubscribed());
  CHECK(gate::queue() == 0ns);
  second.set_oversubscribed(true, 5ms);
  look();
  CHECK(gate::queue() == 5ms);
  first.set_oversubscribed(true, 3ms);
  look();
  CHECK(gate::queue() == 3ms);
  first.set_oversubscribed(false, 3ms);
  look();
  CHECK(gate::queue() == 5ms);
  second.set_oversubscribed(false);
  look();
  CHECK(!gate::oversubscribed());
  CHECK(gate::queue() == 0ns);
  // Each page states separately whether other tenants wait.
  second.set_contended(true);
  CHECK(!gate::contended({0}));
  CHECK(gate::contended({1}));
  // After the end of one session, only the other session's page opens and closes the gate.
  second.set_open(false);
  CHECK(close_quietly());
  gate::open_for_good({1});
  CHECK(gate::is_open());
  first.set_open(false);
  CHECK(close_quietly());
  CHECK(!gate::is_open());
  gate::after_fork();  // as in the child of a fork: one open page of the gate replaces all lease pages
  CHECK(gate::is_open());
}

TEST_CASE("a paused gate holds submissions, and the listener is not told") {
  Arbiter arbiter(true);
  const Pauses pauses;
  const std::uint32_t pause = gate::pause();
  REQUIRE(pause != 0);
  CHECK(gate::paused());
  CHECK(!gate::is_open());
  CHECK(gate::pause() == 0);  // 0, since the gate is paused
  CHECK(close_quietly());
  wants = 0;
  Submitters submitters;
  submitters.add(3);
  std::this_thread::sleep_for(60ms);
  CHECK(submitters.passed == 0);
  CHECK(wants == 0);
  gate::hold();
  gate::resume(pause);
  submitters.join();
  CHECK(!gate::paused());
  CHECK(gate::is_open());
  CHECK(wants == 0);
}

TEST_CASE("a pause waits for the thread inside, and ends at once if it is resumed") {
  Arbiter arbiter(true);
  const Pauses pauses;
  std::atomic<bool> inside{false};
  std::atomic<bool> leave{false};
  std::thread thread([&] {
    gate::Pass pass;
    inside = true;
    wait_until([&] { return leave.load(); });
  });
  wait_until([&] { return inside.load(); });
  const std::uint32_t pause = gate::pause();
  std::atomic<bool> closed{true};
  std::thread closer([&] { closed = close_quietly(); });
  std::this_thread::sleep_for(5ms);
  gate::resume(pause);
  closer.join();
  CHECK(!closed);
  CHECK(gate::held());
  leave = true;
  thread.join();
}

TEST_CASE("only the number of the present pause ends it") {
  Arbiter arbiter(true);
  const Pauses pauses;
  const std::uint32_t first = gate::pause();
  gate::resume(first);
  CHECK(gate::is_open());
  const std::uint32_t second = gate::pause();
  CHECK(second != first);
  gate::resume(first);
  CHECK(gate::paused());
  CHECK(!gate::is_open());
  gate::resume(second);
  CHECK(gate::is_open());
  gate::resume(second);
  CHECK(gate::is_open());
}

TEST_CASE("a gate that the arbiter closes during a pause stays closed after it, and the listener is told") {
  Arbiter arbiter(true);
  const Pauses pauses;
  const std::uint32_t pause = gate::pause();
  CHECK(close_quietly());
  wants = 0;
  std::atomic<int> passed{0};
  std::thread thread([&] {
    gate::Pass pass;
    ++passed;
  });
  wait_until([] { return gate::wanted(); });
  arbiter.set_open(false);
  gate::hold();
  gate::resume(pause);
  CHECK(close_quietly());  // the Revoke
  wait_until([] { return wants != 0; });
  CHECK(passed == 0);
  gate::hold();
  arbiter.set_open(true);
  thread.join();
  CHECK(passed == 1);
}

TEST_CASE("a capture that has begun before a pause passes the gate, and the pause waits for its end") {
  Arbiter arbiter(true);
  const Pauses pauses;
  gate::capture_began();
  const std::uint32_t pause = gate::pause();
  bool capturing_at_drain = true;
  Call drain([&] { capturing_at_drain = gate::capturing(); });
  std::thread closer([&] { CHECK(gate::close(drain)); });
  for (int i = 0; i < 10; ++i) gate::Pass pass;
  gate::capture_ended();
  closer.join();
  CHECK(!capturing_at_drain);
  gate::hold();
  gate::resume(pause);
}

TEST_CASE("a pause closes the gate of several pages, and outlives a reconnect") {
  const Pauses pauses;
  gate::arm(listener);
  gate::prepare_to_close();
  LeasePageWriter first;
  LeasePageWriter second;
  LeasePageWriter third;
  for (LeasePageWriter* page : {&first, &second, &third}) {
    REQUIRE(page->create() == 0);
    page->set_open(true);
  }
  REQUIRE(gate::install(first.fd(), {0}));
  REQUIRE(gate::install(second.fd(), {1}));
  gate::hold();
  const std::uint32_t pause = gate::pause();
  CHECK(!gate::is_open());
  CHECK(close_quietly());
  first.set_open(false);
  first.set_open(true);
  CHECK(!gate::is_open());
  // The arbiter has restarted: one session gets a new page, and the other session stays without an arbiter.
  REQUIRE(gate::install(third.fd(), {0}));
  CHECK(!gate::is_open());
  gate::open_for_good({1});
  CHECK(!gate::is_open());
  third.set_open(false);
  gate::resume(pause);
  CHECK(!gate::is_open());
  third.set_open(true);
  CHECK(gate::is_open());
  gate::hold();
}

TEST_CASE("the child of a fork during a pause has an open gate") {
  Arbiter arbiter(true);
  const Pauses pauses;
  const std::uint32_t pause = gate::pause();
  CHECK(close_quietly());
  const pid_t child = fork();
  if (child == 0) {
    gate::after_fork();
    bool good = gate::is_open() && !gate::paused();
    { gate::Pass pass; }
    const std::uint32_t own = gate::pause();
    good = good && own != 0 && !gate::is_open();
    gate::resume(own);
    _exit(good && gate::is_open() ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(gate::paused());
  gate::hold();
  gate::resume(pause);
  CHECK(gate::is_open());
}

TEST_CASE("a capture passes the closed gate, and is waited for") {
  Arbiter arbiter(true);
  gate::capture_began();
  arbiter.set_open(false);
  bool capturing_at_drain = true;
  Call drain([&] { capturing_at_drain = gate::capturing(); });
  std::thread closer([&] { CHECK(gate::close(drain)); });
  for (int i = 0; i < 100; ++i) {
    gate::Pass pass;
    CHECK(gate::held());
  }
  gate::capture_ended();
  closer.join();
  CHECK(!capturing_at_drain);
}

TEST_CASE("a drain that needs the program's next submission ends") {
  Arbiter arbiter(true);
  arbiter.set_open(false);
  std::atomic<int> rounds{0};
  std::atomic<bool> submitted{false};
  Call drain([&] {
    ++rounds;
    wait_until([&] { return submitted.load(); });
  });
  std::thread closer([&] { CHECK(gate::close(drain)); });
  std::thread thread([&] {
    gate::Pass pass;
    submitted = true;
  });
  thread.join();
  closer.join();
  // A drain also waits for work that passed the closed gate.
  CHECK(rounds == 2);
}

TEST_CASE("a step lets waiting threads pass, drains, and then lets no thread pass") {
  Arbiter arbiter(true);
  arbiter.set_open(false);
  CHECK(close_quietly());
  std::atomic<int> passed{0};
  std::thread thread([&] {
    for (int i = 0; i < 5; ++i) {
      gate::Pass pass;
      ++passed;
    }
  });
  wait_until([] { return gate::wanted(); });
  int before_drain = 0;
  Call drain([&] { before_drain = passed; });
  while (passed < 5) {
    CHECK(gate::step(drain));
    CHECK(!gate::held());
    const int after = passed;
    CHECK(before_drain == after);
    std::this_thread::sleep_for(5ms);
    CHECK(passed == after);
  }
  thread.join();
  // No thread waits at the gate.
  CHECK(gate::step(drain));
  CHECK(!gate::held());
}

TEST_CASE("a step whose drain needs the program's next submission ends") {
  Arbiter arbiter(true);
  arbiter.set_open(false);
  CHECK(close_quietly());
  std::atomic<int> passed{0};
  std::thread thread([&] {
    for (int i = 0; i < 2; ++i) {
      gate::Pass pass;
      ++passed;
    }
  });
  wait_until([] { return gate::wanted(); });
  Call drain([&] {
    if (passed > 0) wait_until([&] { return passed == 2; });
  });
  while (passed < 2) CHECK(gate::step(drain));
  thread.join();
}

TEST_CASE("a step that finds the gate open leaves it open") {
  Arbiter arbiter(true);
  arbiter.set_open(false);
  CHECK(close_quietly());
  arbiter.set_open(true);
  Call nothing;
  CHECK(!gate::step(nothing));
  CHECK(gate::held());
}

TEST_CASE("a step lets no thread pass while memory is missing") {
  Arbiter arbiter(true);
  complete = false;
  arbiter.set_open(false);
  CHECK(close_quietly());
  std::atomic<bool> passed{false};
  std::thread thread([&] {
    gate::Pass pass;
    passed = true;
  });
  wait_until([] { return gate::wanted(); });
  Call nothing;
  CHECK(gate::step(nothing));
  CHECK(!passed);
  complete = true;
  while (!passed) CHECK(gate::step(nothing));
  thread.join();
}

TEST_CASE("the grace for a drain that does not end grows ever more slowly") {
  CHECK(gate::grace(-1ms) == 0);
  CHECK(gate::grace(0ms) == 0);
  CHECK(gate::grace(499ms) == 0);
  CHECK(gate::grace(500ms) == 1);
  CHECK(gate::grace(509ms) == 1);
  CHECK(gate::grace(510ms) == 2);
  CHECK(gate::grace(540ms) == 3);
  CHECK(gate::grace(1500ms) == 11);
  CHECK(gate::grace(1h) == 600);
}

TEST_CASE("marks of threads that ended serve new threads, and their counts stay") {
  std::uint64_t before = gate::activity().passes;
  for (int i = 0; i < 200; ++i) std::thread([] { gate::Pass pass; }).join();
  gate::Activity after = gate::activity();
  CHECK(after.passes == before + 400);
  CHECK(!after.inside);
}

TEST_CASE("the child of a fork has an open gate and none of its parent's threads") {
  Arbiter arbiter(true);
  std::atomic<bool> inside{false};
  std::atomic<bool> leave{false};
  std::thread thread([&] {
    gate::Pass pass;
    gate::capture_began();
    inside = true;
    wait_until([&] { return leave.load(); });
    gate::capture_ended();
  });
  wait_until([&] { return inside.load(); });
  arbiter.set_open(false);
  pid_t child = fork();
  if (child == 0) {
    gate::after_fork();
    bool alone = !gate::activity().inside && !gate::capturing() && !gate::wanted();
    { gate::Pass pass; }
    _exit(alone && LeasePage::is_open(gate::page().gate.load()) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(!LeasePage::is_open(gate::page().gate.load()));
  leave = true;
  thread.join();
}

TEST_CASE("a drain that could not wait is tried again before the gate is released") {
  Arbiter arbiter(true);
  { gate::Pass pass; }
  arbiter.set_open(false);
  int rounds = 0;
  Call drain([&] { ++rounds; });
  drain.failures = 3;
  CHECK(gate::close(drain));
  CHECK(rounds == 4);
  CHECK(!gate::held());
}

TEST_CASE("a thread's own stream counts as long as the thread lives") {
  CHECK(!gate::activity().own_streams);
  std::thread([] {
    { gate::Pass pass; }
    CHECK(!gate::activity().own_streams);
    {
      gate::Pass pass;
      pass.to_own_stream();
    }
    CHECK(gate::activity().own_streams);
  }).join();
  CHECK(!gate::activity().own_streams);
}
