// SPDX-License-Identifier: Apache-2.0
// Random programs with managed memory, some of them larger than the GPU, under a random arbiter and a driver
// that fails now and then: no byte is lost, and no more memory than was granted may be on the GPU.
#include "interposer/memory/managed_memory.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/unit/interposer/memory/support/fake_managed_device.h"
#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

enum class ManagedAction { allocate, free, write, evict, restore, exchange, limit, tend, fail, starve };

struct ManagedMove {
  ManagedAction action;
  std::uint32_t number;
};

std::ostream& operator<<(std::ostream& out, const ManagedMove& move) {
  return out << "{" << static_cast<int>(move.action) << ", " << move.number << "}";
}

rc::Gen<ManagedMove> any_managed_move() {
  using A = ManagedAction;
  const auto action = rc::gen::weightedElement<A>({{5, A::allocate},
                                                   {3, A::free},
                                                   {4, A::write},
                                                   {4, A::evict},
                                                   {4, A::restore},
                                                   {6, A::exchange},
                                                   {1, A::limit},
                                                   {3, A::tend},
                                                   {2, A::fail},
                                                   {1, A::starve}});
  return rc::gen::map(rc::gen::pair(action, rc::gen::arbitrary<std::uint32_t>()),
                      [](const std::pair<A, std::uint32_t>& pair) {
                        return ManagedMove{pair.first, pair.second};
                      });
}

constexpr Bytes kGpu = mebibytes(1);

class ManagedModel {
 public:
  ManagedModel() {
    books_.memory = &memory_;
    books_.limit = kGpu.count / 2;
    books_.beyond_limit = kGpu.count;
  }

  void take(const ManagedMove& move) {
    const std::uint32_t n = move.number;
    switch (move.action) {
      case ManagedAction::allocate:
        return allocate({1 + n % kibibytes(600).count});
      case ManagedAction::free:
        return free(n);
      case ManagedAction::write:
        return write(n);
      case ManagedAction::evict:
        memory_.set_allowed({n % kGpu.count});
        static_cast<void>(memory_.evict());
        return;
      case ManagedAction::restore:
        memory_.set_allowed({n % kGpu.count});
        static_cast<void>(memory_.restore());
        return;
      case ManagedAction::exchange:
        return exchange(n);
      case ManagedAction::limit:
        books_.limit = kGpu.count / (1 + n % 4);
        books_.beyond_limit = n / 4 % 3 * (kGpu.count / 2);
        return;
      case ManagedAction::tend:
        memory_.tend_freed();
        return memory_.tend();
      case ManagedAction::fail:
        return device_.fail_call(1 + n % 16, CUDA_ERROR_UNKNOWN, n % 3);
      case ManagedAction::starve:
        budget_.left = n % 2 == 0 ? gibibytes(1) : Bytes{n % 300000};
        return;
    }
  }

  void check() const {
    const auto [use, beyond] = memory_.reading();
    RC_ASSERT(device_.misuse() == "");
    Bytes here;
    Bytes away;
    Bytes on_gpu;
    Bytes promised;
    Bytes held;
    for (const Handle& handle : memory_.handles()) {
      RC_ASSERT(handle.away <= device_.is_kept_on_host(handle.address));
      RC_ASSERT(handle.promised <= (handle.away && !handle.host_pages));
      (handle.away ? away : here) += handle.size;
      if (handle.mapped && !handle.away) on_gpu += handle.size;
      if (handle.promised) promised += handle.size;
      if (handle.host_pages && !handle.away) held += handle.size;
    }
    RC_ASSERT(here <= use.swappable);
    RC_ASSERT(here + away == use.swappable + beyond);
    RC_ASSERT(on_gpu <= use.resident);
    RC_ASSERT(use.footprint() <= kGpu);
    RC_ASSERT(use.host == held);
    RC_ASSERT(budget_.uncharged() == promised);
    for (const Block& block : blocks_)
      RC_ASSERT(block.seed == 0 || holds(block.address, block.size, block.seed));
  }

  void finish() {
    device_.fail_call(0);
    budget_.left = gibibytes(1);
    memory_.set_allowed(kGpu);
    RC_ASSERT(memory_.restore());
    check();
    for (const Block& block : blocks_) RC_ASSERT(memory_.free(block.address) == CUDA_SUCCESS);
    blocks_.clear();
    check();
    RC_ASSERT(memory_.use().footprint() == Bytes{});
    RC_ASSERT(device_.reserved() == Bytes{} || failed_);
  }

 private:
  struct Block {
    CUdeviceptr address = 0;
    Bytes size;
    unsigned seed = 0;  // 0: never written
  };

  void allocate(Bytes size) {
    CUdeviceptr address = 0;
    if (memory_.allocate(&address, size) == CUDA_SUCCESS) blocks_.push_back({address, size});
    failed_ |= device_.has_failed();
  }
  void free(std::uint32_t n) {
    if (blocks_.empty()) return;
    const auto block = blocks_.begin() + n % blocks_.size();
    if (memory_.free(block->address) == CUDA_SUCCESS) blocks_.erase(block);
    failed_ |= device_.has_failed();
  }
  void write(std::uint32_t n) {
    if (blocks_.empty()) return;
    Block& block = blocks_[n % blocks_.size()];
    block.seed = 1 + n % 1000;
    fill(block.address, block.size, block.seed);
  }
  void exchange(std::uint32_t n) {
    std::vector<CUdeviceptr> out{n};
    std::vector<CUdeviceptr> in{n};
    for (const Handle& handle : memory_.handles()) {
      n = n * 1664525 + 1013904223;
      if (n >> 28 != 0) (handle.away == (n >> 28 < 15) ? in : out).push_back(handle.address);
    }
    const bool all = memory_.away_memory()->exchange(out, in);
    for (const Handle& handle : memory_.handles())
      RC_ASSERT(!all || !handle.away || std::ranges::find(in, handle.address) == in.end());
  }

  FakeManagedDevice device_;
  FakeBudget budget_;
  FakeBooks books_;
  ManagedMemory memory_{device_, budget_, books_, small_sizes()};
  std::vector<Block> blocks_;
  bool failed_ = false;
};

}  // namespace

TEST_CASE("a program with managed memory keeps every byte, and no more than its window on the GPU") {
  CHECK(rc::check([] {
    ManagedModel model;
    const auto moves = *rc::gen::scale(3, rc::gen::container<std::vector<ManagedMove>>(any_managed_move()));
    for (const ManagedMove& move : moves) {
      model.take(move);
      model.check();
    }
    model.finish();
  }));
}
