// SPDX-License-Identifier: Apache-2.0
// Tenants that try to prevent an honest tenant from getting its turn.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// A bench in which the sessions of settle() carry out the core's orders at once, unless work_on() or hang()
// delays them. Tenant 1, with session 1, is the honest tenant.
class Watched {
 public:
  Bench b;

  explicit Watched(Nanoseconds most = 10s)
      : b({}, {.fixed = 10s}, {}, OveruseRules{.most = most, .cancel = true}) {}

  void settle(std::uint64_t id, std::uint64_t tenant, unsigned size) {
    obeying_[id] = {.size = size};
    b.come(id, tenant);
    b.attach(id);
    b.grow(id, size, 0);
    obey();
    if (!b.open(id)) return;
    obeying_[id].resident = size;
    b.tell(id, size, size);
    obey();
  }
  void go(std::uint64_t id) {
    obeying_.erase(id);
    b.handle(SessionGone{.session = SessionId{id}});
    obey();
  }
  // After this call, the session's work on the GPU continues for `time` beyond the end of each turn.
  void work_on(std::uint64_t id, Nanoseconds time) { obeying_.at(id).works_on = time; }
  // With `hangs`, the session answers nothing until a later call without `hangs`.
  void hang(std::uint64_t id, bool hangs) {
    obeying_.at(id).hangs = hangs;
    obey();
  }
  void obey() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [id, its] : obeying_) {
        auto& orders = b.told[id].orders;
        if (orders.empty() || its.hangs || works(its, orders.front())) continue;
        any = true;
        const Message order = orders.front();
        orders.pop_front();
        carry_out(id, its, order);
      }
    }
  }
  // Lets this time pass; the core's timers fire meanwhile.
  void pass(Nanoseconds time) {
    const Nanoseconds end = b.now + time;
    while (b.timer && *b.timer < end) {
      b.pass_to_timer();
      obey();
    }
    b.pass(end - b.now);
    obey();
    closed_ = b.open(1) ? Nanoseconds{} : closed_ + time;
    longest_ = std::max(longest_, closed_);
    if (b.open(1)) ran_ += time;
  }
  // Lets a second pass. Then a survey shows the memory of tenant 1, and `there` MiB for each session in
  // `others`.
  void pass_second(const std::vector<std::uint64_t>& others, unsigned there) {
    pass(500ms);
    pass(500ms);
    GpuSurvey found{.unmanaged = {}, .limit = mebibytes(100), .reserve = mebibytes(20)};
    found.sessions[SessionId{1}] = mebibytes(obeying_.at(1).resident + 1);
    for (const std::uint64_t id : others) found.sessions[SessionId{id}] = mebibytes(there);
    b.handle(Surveyed{.gpu = kGpu, .found = found});
    obey();
  }
  Nanoseconds longest_wait() const { return longest_; }
  Nanoseconds ran() const { return ran_; }

 private:
  struct Memory {
    unsigned size = 0;
    unsigned resident = 0;
    bool hangs = false;
    Nanoseconds works_on{};
    std::optional<Nanoseconds> done = {};  // time at which the session's work ends
  };

  bool works(Memory& its, const Message& order) const {
    if (order.type != MessageType::revoke) return false;
    if (!its.done) its.done = b.now + its.works_on;
    if (b.now < *its.done) return true;
    its.done.reset();
    return false;
  }
  void carry_out(std::uint64_t id, Memory& its, const Message& order) {
    const auto at_most = [&](Bytes allowed) {
      return static_cast<unsigned>(std::min<std::uint64_t>(its.size, allowed.count >> 20));
    };
    if (order.type == MessageType::revoke) {
      b.release(id, true, Bench::use(its.size, its.resident));
    } else if (order.type == MessageType::evict) {
      its.resident = std::min(its.resident, at_most(order.as<Evict>().allowed));
      b.tell(id, its.size, its.resident);
    } else if (order.type == MessageType::restore) {
      its.resident = at_most(order.as<Restore>().allowed);
      if (its.resident == its.size) b.ready(id, its.size);
    }
  }

  std::map<std::uint64_t, Memory> obeying_;
  Nanoseconds closed_{};
  Nanoseconds longest_{};
  Nanoseconds ran_{};
};

TEST_CASE("Processes that one after the other start, request the whole GPU and end starve nobody") {
  const unsigned jobs = GENERATE(3u, 4u);
  const int life = GENERATE(1, 2, 4, 8);  // seconds from one new session to the next; the newest `jobs` - 1
                                          // sessions are alive
  const unsigned there = GENERATE(0u, 2u, 80u);     // memory in MiB that each session really has on the GPU;
                                                    // each session reports 80 MiB
  const bool begins_small = GENERATE(false, true);  // each session first reports 1 MiB
  CAPTURE(jobs, life, there, begins_small);
  Watched w;
  w.settle(1, 1, 40);
  std::vector<std::uint64_t> live;
  std::uint64_t next = 100;
  for (int second = 0; second < 400; ++second) {
    if (second % life == 0) {
      const std::uint64_t id = next++;
      w.b.come(id, 2 + id % jobs);
      w.b.attach(id);
      w.b.want(id);
      if (begins_small) {
        w.b.say(id, Usage{.request = 1, .use = Bench::use(1, 0), .stuck = 0});
        w.b.tell(id, 1, 1);
      }
      w.b.say(id, Usage{.request = 2, .use = Bench::use(80, there), .stuck = 0});
      w.obey();
      live.push_back(id);
      if (live.size() >= jobs) {
        w.go(live.front());
        live.erase(live.begin());
      }
    }
    w.pass_second(live, there);
  }
  CHECK(w.longest_wait() <= 40s);
}

TEST_CASE(
    "Jobs whose processes take turns in not releasing the GPU keep it no longer than MaxOveruse allows") {
  const unsigned jobs = GENERATE(2u, 3u);
  const int life = GENERATE(10, 12, 20, 40);  // seconds that a session lasts at most; its job starts the next
                                              // session when it ends
  const unsigned size = GENERATE(20u, 30u, 45u);  // MiB that each session reports
  const unsigned there = GENERATE(0u, 1u);        // MiB that each session really has on the GPU; zero stands
                                                  // for `size`
  CAPTURE(jobs, life, size, there);
  const unsigned resident = there == 0 ? size : there;
  Watched w;
  w.settle(1, 1, 60);
  std::vector<std::uint64_t> live;
  std::multimap<int, std::uint64_t> killed_at;
  std::size_t responses = 0;
  std::uint64_t next = 100;
  const auto end = [&](std::uint64_t id) {
    if (std::erase(live, id) > 0) w.go(id);
  };
  for (int second = 0; second < 1000; ++second) {
    if (second % std::max(1, life / static_cast<int>(jobs)) == 0) {
      const std::uint64_t id = next++;
      w.b.come(id, 2 + id % jobs);
      w.b.attach(id);
      w.b.want(id);
      w.b.say(id, Usage{.request = 2, .use = Bench::use(size, resident), .stuck = 0});
      w.obey();
      live.push_back(id);
      if (live.size() > jobs) end(live.front());
    }
    w.pass_second(live, resident);
    for (; responses < w.b.overstays.size(); ++responses) {
      const Overstay& its = w.b.overstays[responses];
      if (its.response != Overstay::Response::cancel) continue;
      for (const std::uint64_t id : live)
        if (its.tenant == TenantId{2 + id % jobs}) killed_at.emplace(second + 31, id);
    }
    while (!killed_at.empty() && killed_at.begin()->first <= second) {
      end(killed_at.begin()->second);
      killed_at.erase(killed_at.begin());
    }
  }
  CHECK(w.longest_wait() <= 200s);
}

TEST_CASE("Jobs whose work continues long after their turns do not keep others from their turns") {
  const unsigned jobs = GENERATE(2u, 3u);
  const unsigned size = GENERATE(21u, 45u);
  const auto time = GENERATE(1s, 9s, 25s, 60s);
  CAPTURE(jobs, size, time.count());
  Watched w(5min);
  for (unsigned job = 0; job < jobs; ++job) {
    w.settle(10 + job, 10 + job, size);
    w.work_on(10 + job, time + job * time / 3);
  }
  w.settle(1, 1, 80);
  for (int half = 0; half < 4000; ++half) w.pass(500ms);
  CHECK(w.longest_wait() <= jobs * (2 * time + 20s));
}

TEST_CASE("Jobs that hang, or are stopped, in their turns delay others no longer than MaxOveruse allows") {
  const bool stop = GENERATE(false, true);
  const unsigned size = GENERATE(21u, 45u);
  const auto period = GENERATE(8s, 15s, 40s);
  CAPTURE(stop, size, period.count());
  Watched w(1min);
  for (const std::uint64_t id : {2, 3}) w.settle(id, id, size);
  w.settle(1, 1, 80);
  const auto hang = [&](std::uint64_t id, bool hangs) {
    if (stop) w.b.handle(Looked{.session = SessionId{id}, .stopped = hangs});
    w.hang(id, hangs);
  };
  std::uint64_t hangs = 0;
  Nanoseconds since{};
  const auto is_ended = [&w] {
    return std::any_of(w.b.overstays.begin(), w.b.overstays.end(), [](const Overstay& its) {
      return its.tenant != TenantId{1} && its.response == Overstay::Response::cancel;
    });
  };
  for (int half = 0; half < 4000 && !is_ended(); ++half) {
    const std::uint64_t other = hangs == 2 ? 3 : 2;
    if (w.b.open(other) && w.b.now - since >= period) {
      hang(other, true);
      if (hangs != 0) hang(hangs, false);
      hangs = other;
      since = w.b.now;
    }
    w.pass(500ms);
  }
  CHECK(w.longest_wait() <= 150s);
}

TEST_CASE("Tenants that always report a lack of host memory do not keep others from their turns") {
  const unsigned jobs = GENERATE(1u, 2u, 4u, 8u);
  CAPTURE(jobs);
  Watched w;
  w.settle(1, 1, 90);
  for (unsigned job = 0; job < jobs; ++job) w.settle(10 + job, 10 + job, 90);
  for (int second = 0; second < 1000; ++second) {
    for (std::uint64_t id = 10; id < 10 + jobs; ++id)
      if (!w.b.open(id)) w.b.say(id, Want{.host_short = 1});
    w.obey();
    w.pass(500ms);
    w.pass(500ms);
  }
  CHECK(w.longest_wait() <= (jobs + 2) * 10s);
  CHECK(w.ran() >= 750s / (jobs + 1));
}

TEST_CASE("The next process of a recalled tenant is recalled no sooner") {
  const auto life = GENERATE(1000ms, 5000ms, 9500ms);
  CAPTURE(life.count());
  Watched w;
  w.settle(1, 1, 90);
  std::uint64_t id = 100;
  w.settle(id, 2, 90);
  Nanoseconds ran{};
  for (int i = 0; i < 2000; ++i) {
    if (!w.b.open(id)) w.b.say(id, Want{.host_short = 1});
    w.obey();
    if (w.b.open(id)) ran += 500ms;
    w.pass(500ms);
    if (ran < life) continue;
    ran = {};
    w.go(id);
    w.settle(++id, 2, 90);
  }
  CHECK(w.ran() >= 375s);
}

TEST_CASE("A recall is over after a while, however long turns are") {
  Watched w;
  w.settle(1, 1, 90);
  w.settle(2, 2, 90);
  w.b.handle(RulesSet{.node = {.policy = w.b.policy.get(), .turns = {.fixed = 1h}}});
  w.b.say(2, Want{.host_short = 1});
  w.obey();
  REQUIRE(w.b.open(2));
  w.pass(29s);
  CHECK(w.b.open(2));
  w.pass(2s);
  CHECK(w.b.open(1));
}

}  // namespace
}  // namespace sharedgpu
