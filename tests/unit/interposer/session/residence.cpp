// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/residence.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

using namespace sharedgpu;
using namespace std::chrono_literals;
using session::Argument;
using session::KernelUse;
using session::Residence;

namespace {

constexpr Bytes kHandle = mebibytes(64);

// Operands of one handle each, at the addresses 1, 2, 3...; the window holds `window` of them.
class FakeAway final : public AwayMemory {
 public:
  FakeAway(unsigned count, unsigned window, Bytes size) : window_(window), size_(size) {
    for (unsigned i = 1; i <= count; ++i) away_[i] = i > window;
  }
  std::vector<AwayHandle> operands(CUdeviceptr address) override {
    const auto found = away_.find(address);
    if (found == away_.end()) return {};
    return {{found->first, size_, found->second}};
  }
  std::vector<AwayHandle> within(CUdeviceptr /*address*/, Bytes /*size*/) const override { return {}; }
  std::vector<AwayHandle> handles() const override {
    std::vector<AwayHandle> all;
    for (const auto& [address, is_away] : away_) all.push_back({address, size_, is_away});
    return all;
  }
  Bytes growth(Bytes, Nanoseconds) const override { return {}; }
  Bytes excess() const override { return {}; }
  Bytes window() const override { return {in_window() * size_.count}; }
  Bytes room() const override { return {(window_ - in_window()) * size_.count}; }
  bool exchange(const std::vector<CUdeviceptr>& out, const std::vector<CUdeviceptr>& in) override {
    for (const CUdeviceptr each : out) away_.at(each) = true;
    for (const CUdeviceptr each : in) away_.at(each) = false;
    CHECK(in_window() <= window_);
    return true;
  }
  bool is_away(CUdeviceptr address) const { return away_.at(address); }

 private:
  unsigned in_window() const {
    return static_cast<unsigned>(std::ranges::count_if(away_, [](const auto& each) { return !each.second; }));
  }
  const unsigned window_;
  const Bytes size_;
  std::map<CUdeviceptr, bool> away_;
};

KernelUse use_of(std::uintptr_t kernel, std::vector<CUdeviceptr> operands) {
  KernelUse use{.kernel = kernel, .arguments = {}};
  for (const CUdeviceptr each : operands)
    use.arguments.push_back({static_cast<std::uint32_t>(8 * use.arguments.size()), each});
  return use;
}

// An exchange of one handle of 64 MiB takes 1.84 ms.
session::ExchangeResult result_of(bool complete, Nanoseconds took = 1840us, Bytes entered = kHandle) {
  return {.outcome = complete ? session::Exchanged::complete : session::Exchanged::partial,
          .took = took,
          .entered = entered};
}

struct Launches {
  explicit Launches(Bytes size = kHandle) : memory(8, 4, size) {}
  FakeAway memory;
  session::ExchangeTotals totals;
  Residence residence{memory, totals};
  Nanoseconds now = 1s;

  Residence::Choice choose(const KernelUse& use) { return residence.choose({&use, 1}, now); }
  // Launches the kernel, which takes `away` if an operand is away, and otherwise `here`.
  Residence::Choice launch(const KernelUse& use, Nanoseconds away, Nanoseconds here) {
    Residence::Choice choice = choose(use);
    const session::ExchangeChoice& change = choice.exchange;
    if (!change.in.empty())
      residence.exchanged(change, result_of(memory.exchange(change.out, change.in)), now);
    const bool any = std::ranges::any_of(
        use.arguments, [&](const Argument& argument) { return memory.is_away(argument.address); });
    if (choice.timed) residence.ran(choice, any ? away : here);
    return choice;
  }
};

bool nothing_moves(const Residence::Choice& choice) {
  return choice.exchange.in.empty() && choice.exchange.out.empty();
}

}  // namespace

TEST_CASE("a launch whose operands are on the GPU moves nothing", "[residence]") {
  Launches t;
  const Residence::Choice choice = t.choose(use_of(1, {1, 2}));
  CHECK(nothing_moves(choice));
  REQUIRE(choice.operands.size() == 2);
  CHECK(choice.operands.front().size == kHandle);
  CHECK(choice.operands.front().away == Bytes{});
}

TEST_CASE("a launch counts as slowed by the learned cost of its operands that stay away", "[residence]") {
  Launches t;
  t.launch(use_of(1, {5}), 2ms, 0ms);  // timed; 2 ms for 64 MiB are less than two exchanges
  CHECK(t.totals.read().slowed == 2ms);
  t.launch(use_of(1, {6}), 2ms, 0ms);
  CHECK(t.totals.read().slowed == 4ms);
  t.launch(use_of(1, {1}), 2ms, 0ms);  // this operand is on the GPU
  t.launch(use_of(2, {1}), 2ms, 0ms);
  CHECK(t.totals.read().slowed == 4ms);
}

TEST_CASE("a launch whose operand comes in before it is not slowed", "[residence]") {
  Launches t;
  t.launch(use_of(1, {5, 1}), 10s, 1ms);
  const Nanoseconds before = t.totals.read().slowed;
  CHECK(t.launch(use_of(1, {5, 1}), 10s, 1ms).exchange.in == std::vector<CUdeviceptr>{5});
  CHECK(t.totals.read().slowed == before);
}

TEST_CASE("words that are no addresses of the memory have no effect", "[residence]") {
  Launches t;
  const Residence::Choice choice = t.choose(use_of(1, {100, 0, ~0ull}));
  CHECK(nothing_moves(choice));
  CHECK(choice.operands.empty());
}

TEST_CASE("an operand that two arguments name counts once", "[residence]") {
  Launches t;
  CHECK(t.choose(use_of(1, {3, 3})).operands.size() == 1);
}

TEST_CASE("a kernel is tried with its operand away, and if it is slow, the operand comes in", "[residence]") {
  Launches t;
  const Residence::Choice trial = t.launch(use_of(1, {5, 1}), 10s, 1ms);
  CHECK(nothing_moves(trial));
  CHECK(trial.timed);
  const Residence::Choice next = t.launch(use_of(1, {5, 1}), 10s, 1ms);
  CHECK(next.exchange.in == std::vector<CUdeviceptr>{5});
  REQUIRE(next.exchange.out.size() == 1);
  CHECK(next.exchange.out.front() != 1);  // an operand of the same launch stays
  CHECK_FALSE(t.memory.is_away(5));
  for (const KernelCosts::Operand& operand : next.operands) CHECK(operand.away == Bytes{});
}

// Returns the number of launches until the operand comes in; 0: it does not come in within 100 launches.
// While the operand is away, each launch takes 2 ms longer.
int launches_until_in(Launches& t) {
  for (int launches = 1; launches <= 100; ++launches) {
    const Residence::Choice choice = t.launch(use_of(1, {5}), 2ms, 0ms);
    if (!choice.exchange.in.empty()) return launches;
  }
  return 0;
}

TEST_CASE("an exchange that takes long once does not keep operands away", "[residence]") {
  const session::ExchangeChoice other{.out = {}, .in = {4}};
  Launches usual;
  Launches created;
  created.residence.exchanged(other, result_of(true, 40ms), created.now);
  const int launches = launches_until_in(usual);
  CHECK(launches > 1);
  CHECK(launches_until_in(created) == launches);
}

TEST_CASE("if all exchanges take long, operands come in later", "[residence]") {
  const session::ExchangeChoice other{.out = {}, .in = {4}};
  Launches usual;
  Launches slow;
  for (int i = 0; i < 8; ++i) slow.residence.exchanged(other, result_of(true, 10ms), slow.now);
  CHECK(launches_until_in(slow) > launches_until_in(usual));
}

// Two threads may choose the same exchange. The second exchange finds the handles in the window, and ends at
// once.
TEST_CASE("an exchange that finds its handles in the window does not make exchanges seem fast",
          "[residence]") {
  const session::ExchangeChoice other{.out = {}, .in = {4}};
  Launches usual;
  Launches second;
  second.residence.exchanged(other, result_of(true, 5us, {}), second.now);
  CHECK(launches_until_in(second) == launches_until_in(usual));
}

TEST_CASE("an operand of which a kernel touches little stays away", "[residence]") {
  Launches t;
  for (int i = 0; i < 20; ++i) CHECK(nothing_moves(t.launch(use_of(1, {6}), 2us, 1us)));
  CHECK(t.memory.is_away(6));
}

TEST_CASE("operands of a graph that were never tried come in, and are not timed", "[residence]") {
  Launches t;
  const KernelUse uses[] = {use_of(1, {5}), use_of(2, {6, 1})};
  const Residence::Choice choice = t.residence.choose(uses, t.now);
  CHECK_FALSE(choice.timed);
  CHECK(choice.operands.empty());
  CHECK(choice.exchange.in.size() == 2);
  CHECK(choice.exchange.out.size() == 2);
}

TEST_CASE("no more comes in than the window can hold", "[residence]") {
  Launches t;
  const KernelUse uses[] = {use_of(1, {1, 2, 5, 6}), use_of(2, {7, 8})};
  const Residence::Choice choice = t.residence.choose(uses, t.now);
  CHECK(choice.exchange.in.size() == 2);
  CHECK(choice.exchange.out.size() == 2);
}

TEST_CASE("exceeds_window() counts the operands that are needed on the GPU", "[residence]") {
  Launches t;  // the window holds 4 handles
  const auto exceeds = [&](const std::vector<KernelUse>& uses) {
    return t.residence.exceeds_window(uses, t.now);
  };
  CHECK_FALSE(exceeds({}));
  CHECK_FALSE(exceeds({use_of(1, {1, 2}), use_of(2, {5, 6})}));
  CHECK_FALSE(exceeds({use_of(1, {1, 2}), use_of(2, {5, 6}), use_of(3, {6, 5, 100})}));
  CHECK(exceeds({use_of(1, {1, 2}), use_of(2, {5, 6}), use_of(3, {7})}));
  // An operand of which a kernel touches little is not needed on the GPU, unless another kernel needs it
  // there.
  t.launch(use_of(3, {7}), 2us, 1us);
  CHECK_FALSE(exceeds({use_of(1, {1, 2}), use_of(2, {5, 6}), use_of(3, {7})}));
  CHECK(exceeds({use_of(1, {1, 2}), use_of(2, {5, 6}), use_of(3, {7}), use_of(4, {7})}));
  // For a while after an exchange that failed, no exchange is tried, so the window counts as large enough.
  t.residence.exchanged({}, result_of(false), t.now);
  CHECK_FALSE(exceeds({use_of(1, {1, 2, 5, 6, 7})}));
  t.now += 1s;
  CHECK(exceeds({use_of(1, {1, 2, 5, 6, 7})}));
}

TEST_CASE("after an exchange that was given up there is a pause, which doubles", "[residence]") {
  Launches t;
  const KernelUse uses[] = {use_of(1, {5}), use_of(2, {6})};
  const auto chosen = [&] { return !t.residence.choose(uses, t.now).exchange.in.empty(); };
  const auto gave_up = [&] { t.residence.exchanged({}, result_of(false), t.now); };
  REQUIRE(chosen());
  gave_up();
  CHECK_FALSE(chosen());
  t.now += 999ms;
  CHECK_FALSE(chosen());
  t.now += 1ms;
  CHECK(chosen());
  gave_up();
  t.now += 1999ms;
  CHECK_FALSE(chosen());
  t.now += 1ms;
  CHECK(chosen());
  for (int i = 0; i < 20; ++i) gave_up();
  t.now += 60s;
  CHECK(chosen());
  t.residence.exchanged({}, result_of(true), t.now);
  gave_up();
  t.now += 1s;
  CHECK(chosen());
}

TEST_CASE("after a launch that did not end, no launch is timed for a while", "[residence]") {
  Launches t;
  Residence::Choice choice = t.choose(use_of(1, {7}));
  REQUIRE(choice.timed);
  t.residence.did_not_end(choice, {}, t.now);
  CHECK_FALSE(t.choose(use_of(2, {7})).timed);
  CHECK(nothing_moves(t.choose(use_of(1, {7}))));
  t.now += 1s;
  choice = t.choose(use_of(3, {7}));
  CHECK(choice.timed);
  t.residence.did_not_end(choice, {}, t.now);
  t.now += 1s;
  CHECK_FALSE(t.choose(use_of(4, {7})).timed);
  t.now += 1s;
  choice = t.choose(use_of(5, {7}));
  REQUIRE(choice.timed);
  // A kernel that has run for 5 s and has not ended is assumed to need its operands on the GPU.
  t.residence.did_not_end(choice, 5s, t.now);
  CHECK(t.choose(use_of(5, {7})).exchange.in == std::vector<CUdeviceptr>{7});
}

TEST_CASE("memory that must be on the GPU comes in", "[residence]") {
  Launches t;
  const session::ExchangeChoice choice = t.residence.choose(t.memory.operands(7));
  CHECK(choice.in == std::vector<CUdeviceptr>{7});
  CHECK(choice.out.size() == 1);
  CHECK(t.residence.choose(t.memory.operands(1)).in.empty());
  CHECK(t.residence.choose(std::vector<AwayHandle>{}).in.empty());
}

TEST_CASE("handles leave for other memory that must be on the GPU", "[residence]") {
  Launches t;
  t.launch(use_of(1, {1}), 10s, 1ms);
  CHECK(t.residence.leavers(kHandle).size() == 1);
  CHECK(t.residence.leavers(kHandle).front() != 1);
  CHECK(t.residence.leavers(kHandle + Bytes{1}).size() == 2);
  CHECK(t.residence.leavers({4 * kHandle.count}).size() == 4);
  CHECK(t.residence.leavers({5 * kHandle.count}).empty());
}

TEST_CASE("in a cyclic sweep the handles that are needed last leave", "[residence]") {
  Launches t(mebibytes(512));  // an exchange brings in a single handle
  unsigned moved = 0;
  constexpr unsigned kSweeps = 40;
  for (unsigned sweep = 0; sweep < kSweeps; ++sweep)
    for (CUdeviceptr operand = 1; operand <= 8; ++operand) {
      const Residence::Choice choice = t.launch(use_of(1, {operand}), 10s, 1ms);
      if (sweep >= kSweeps / 2) moved += static_cast<unsigned>(choice.exchange.in.size());
    }
  // If the least recently used handle always left, all 8 handles would move in each sweep. The best order
  // moves 4 or 5 handles.
  CHECK(moved <= 6 * kSweeps / 2);
}
