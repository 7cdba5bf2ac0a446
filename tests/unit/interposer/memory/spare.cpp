// SPDX-License-Identifier: Apache-2.0
// Other threads of an oversized process allocate, pin and free memory while an exchange keeps device memory
// of handles that have left, or while one of the threads asks for a larger window.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kPiece = kibibytes(128);  // size of a handle
constexpr Bytes kWindow{6 * kPiece.count};

// Calls a function before one of the waits for a copy, and when addresses are reserved.
class Observed final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  CUresult wait(Lane lane) override {
    if (waits != 0 && --waits == 0) before_wait();
    return FakeDevice::wait(lane);
  }
  CUresult reserve(CUdeviceptr* base, Bytes size) override {
    if (before_reserve) before_reserve();
    return FakeDevice::reserve(base, size);
  }
  unsigned waits = 0;  // before_wait is called before this wait, counted from 1; 0: before none
  std::function<void()> before_wait;
  std::function<void()> before_reserve;
};

// A process whose window of six handles is full, with `away` bytes beyond the window.
struct Full : WorldOn<Observed> {
  explicit Full(Bytes away) {
    books.limit = kWindow.count;
    books.beyond_limit = gibibytes(1).count;
    memory.set_allowed(gibibytes(1));
    for (CUdeviceptr& each : here) REQUIRE(memory.allocate(&each, kPiece) == CUDA_SUCCESS);
    REQUIRE(memory.allocate(&beyond, away) == CUDA_SUCCESS);
  }
  AwayMemory& exchanges = *memory.away_memory();
  CUdeviceptr here[6] = {};
  CUdeviceptr beyond = 0;

  // Moves the first `count` handles out of the window. Before the last of them has left, another thread
  // begins `action`. If the sleep is too short for this thread, the test may miss a fault, but reports none
  // wrongly.
  void leave(unsigned count, const std::function<void()>& action) {
    std::thread other;
    device.waits = count;
    device.before_wait = [&] {
      other = std::thread(action);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
    CHECK(exchanges.exchange({here, here + count}, {}));
    other.join();
    CHECK(device.misuse() == "");
  }
};

}  // namespace

TEST_CASE("memory that is allocated during an exchange gets no room that is still in use", "[spare]") {
  Full t(kPiece);
  CUdeviceptr fresh = 0;
  CUresult result = CUDA_ERROR_UNKNOWN;
  t.leave(2, [&] { result = t.memory.allocate(&fresh, kPiece); });
  CHECK(result == CUDA_SUCCESS);
  CHECK(t.device.most_physical() <= kWindow);
}

TEST_CASE("memory that is pinned during an exchange gets no room that is still in use", "[spare]") {
  Full t(kPiece);
  CUresult result = CUDA_ERROR_UNKNOWN;
  Bytes in_use;
  t.leave(2, [&] {
    result = t.memory.pin(kPiece);
    in_use = t.device.physical();
  });
  CHECK(result == CUDA_SUCCESS);
  CHECK(in_use + kPiece <= kWindow);
}

TEST_CASE("memory that is freed during an exchange counts until the GPU has room for others", "[spare]") {
  Full t(kPiece);
  Bytes counted;
  Bytes in_use;
  t.leave(3, [&] {
    t.memory.free_unused(t.here[0]);
    t.memory.free_unused(t.here[1]);
    counted = t.memory.use().swappable;
    in_use = t.device.physical();
  });
  CHECK(counted == Bytes{5 * kPiece.count});
  CHECK(in_use <= counted);
}

// The arbiter may refuse the larger window.
TEST_CASE("while a thread asks for a larger window, memory of other threads does not use it", "[spare]") {
  Full t(kPiece);
  std::atomic<bool> reserved{false};
  std::atomic<bool> asked{false};
  std::atomic<bool> ended{false};
  CUresult result = CUDA_ERROR_UNKNOWN;
  t.device.before_reserve = [&] {
    if (reserved.exchange(true)) return;
    while (!asked) std::this_thread::yield();
  };
  std::thread other([&] {
    CUdeviceptr fresh = 0;
    result = t.memory.allocate(&fresh, kPiece);
    ended = true;
  });
  while (!reserved) std::this_thread::yield();
  t.books.when_asked = [&] {
    if (t.memory.use().swappable <= kWindow) return;
    asked = true;
    while (!ended) std::this_thread::yield();
  };
  CUdeviceptr own = 0;
  CHECK(t.memory.allocate(&own, kPiece) == CUDA_SUCCESS);
  other.join();
  CHECK(result == CUDA_SUCCESS);
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.exchanges.window() == kWindow);
  CHECK(t.device.most_physical() <= kWindow);
  CHECK(t.device.misuse() == "");
}
