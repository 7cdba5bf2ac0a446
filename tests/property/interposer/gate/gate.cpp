// SPDX-License-Identifier: Apache-2.0
// Threads that submit, pass the gate again inside a pass, and capture streams at random, while an arbiter
// opens and closes the gate at random.
#include <rapidcheck.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "interposer/gate/captures.h"
#include "interposer/gate/closing.h"
#include "interposer/gate/gate.h"

using namespace sharedgpu;

namespace {

enum class Step { submit, nest, capture, rest };

struct Listener final : gate::GateListener {
  void on_wait() override {}
  bool all_resident() override { return true; }
} listener;

// Stands for the GPU: counts the submissions, and how many of them the last drain has waited for.
struct Gpu final : gate::Drain {
  std::atomic<std::uint64_t> submitted{0};
  std::uint64_t drained = 0;
  bool drain() override {
    drained = submitted.load();
    return true;
  }
};

void play(const std::vector<Step>& steps, Gpu& gpu) {
  for (Step step : steps) switch (step) {
      case Step::submit: {
        gate::Pass pass;
        ++gpu.submitted;
        break;
      }
      case Step::nest: {
        gate::Pass outer;
        gate::Pass inner;
        ++gpu.submitted;
        break;
      }
      case Step::capture: {
        {
          gate::Pass pass;
          gate::capture_began();
        }
        for (int i = 0; i < 3; ++i) {
          gate::Pass pass;
          ++gpu.submitted;
        }
        gate::capture_ended();
        break;
      }
      case Step::rest:
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        break;
    }
}

rc::Gen<std::vector<Step>> any_steps() {
  return rc::gen::container<std::vector<Step>>(
      rc::gen::element(Step::submit, Step::nest, Step::capture, Step::rest));
}

}  // namespace

TEST_CASE("nothing is submitted between the end of a drain and the next opening") {
  bool held = rc::check([] {
    const auto programs =
        *rc::gen::resize(40, rc::gen::container<std::vector<std::vector<Step>>>(3, any_steps()));
    const auto turns = *rc::gen::inRange(1, 6);
    // A session without memory gets no Restore, sends no Ready, and finds the gate open in its lease page.
    const auto surprises =
        *rc::gen::container<std::vector<bool>>(static_cast<std::size_t>(turns), rc::gen::arbitrary<bool>());
    const auto pause = std::chrono::microseconds(*rc::gen::inRange(0, 300));
    const auto count = *rc::gen::inRange<std::size_t>(1, 4);

    gate::arm(listener);
    gate::prepare_to_close();
    std::vector<LeasePageWriter> pages(count);
    auto open = [&](bool wanted) {
      for (LeasePageWriter& page : pages) page.set_open(wanted);
    };
    for (unsigned seat = 0; seat < count; ++seat) {
      RC_ASSERT(pages[seat].create() == 0);
      pages[seat].set_open(true);
      RC_ASSERT(gate::install(pages[seat].fd(), {seat}));
    }
    gate::hold();

    Gpu gpu;
    std::vector<std::thread> threads;
    for (const auto& steps : programs) threads.emplace_back([&] { play(steps, gpu); });
    bool quiet = true;
    for (int turn = 0; turn < turns; ++turn) {
      std::this_thread::sleep_for(pause);
      open(false);
      for (std::size_t revoke = 0; revoke < count; ++revoke) quiet = gate::close(gpu) && quiet;
      quiet = quiet && gpu.drained == gpu.submitted.load() && !gate::held();
      std::this_thread::sleep_for(pause);
      quiet = quiet && gpu.drained == gpu.submitted.load();
      if (!surprises[static_cast<std::size_t>(turn)]) gate::hold();
      open(true);
    }
    for (std::thread& thread : threads) thread.join();
    gate::after_fork();  // removes the lease page, and so opens the gate
    RC_ASSERT(quiet);
    RC_ASSERT(!gate::capturing());
    RC_ASSERT(!gate::wanted());
  });
  CHECK(held);
}

TEST_CASE("as time passes, the grace never shrinks, and grows at most in proportion to the time") {
  bool held = rc::check([](std::uint16_t seconds, std::uint16_t more) {
    auto elapsed = std::chrono::seconds(seconds);
    auto later = elapsed + std::chrono::milliseconds(more);
    RC_ASSERT(gate::grace(later) >= gate::grace(elapsed));
    RC_ASSERT(gate::grace(2 * later) <= 2 * gate::grace(later) + 1);
  });
  CHECK(held);
}
