// SPDX-License-Identifier: Apache-2.0
// Fakes around a SwapMemory in tests: the grants of an arbiter, a host budget, a host system, and small
// sizes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "interposer/memory/swap_memory.h"
#include "tests/unit/interposer/memory/support/fake_device.h"

namespace sharedgpu::test {

// Grants growth within three limits: `limit` for the footprint, `beyond_limit` for the memory beyond the
// window, and `host_limit` for the memory that the host must be able to hold. Set `memory` before the first
// call.
class FakeBooks final : public Books {
 public:
  Answer grow() override {
    ++asked;
    if (when_asked) when_asked();
    if (lost) return {.granted = true, .lost = true};
    const auto [use, beyond, widening] = memory->reading();
    if (use.settling != Bytes{} && !settles) return {false};
    if (use.swappable + std::max(beyond, memory->uncharged()) > Bytes{host_limit.load()})
      return {.granted = false, .host_most = {host_limit.load()}};
    if (beyond > Bytes{beyond_limit.load()}) return {false};
    return {use.footprint() <= Bytes{limit.load()}};
  }
  bool may_be_oversized() override { return oversize_permitted || beyond_limit != 0; }
  void went_oversized() override { ++windows; }
  bool make_room() override {
    AwayMemory& away = *memory->away_memory();
    std::vector<CUdeviceptr> out;
    Bytes leaving;
    for (const AwayHandle& handle : away.handles())
      if (!handle.away && leaving < away.excess()) {
        out.push_back(handle.address);
        leaving += handle.size;
      }
    if (makes_room && !out.empty()) away.exchange(out, {});
    return makes_room;
  }
  void claim() override { ++claimed; }
  void report(bool is_stuck) override {
    const MemoryUse use = memory->use();
    const std::lock_guard lock(mutex);
    ++reports;
    last = use;
    stuck = is_stuck;
  }
  void refused(const Refusal& refusal) override {
    ++told;
    told_of_host += refusal.host_most != Bytes{} ? 1 : 0;
    last_refusal = refusal;
  }
  bool capturing() override { return in_capture; }
  bool idle() override {
    const bool was_idle = is_idle;
    if (after_idle) after_idle();
    return was_idle;
  }
  bool still_lent(CUdeviceptr base) override { return base == lent; }

  Memory* memory = nullptr;
  std::atomic<std::uint64_t> limit{gibibytes(64).count};
  std::atomic<std::uint64_t> beyond_limit{0};
  std::atomic<bool> oversize_permitted{false};
  std::atomic<std::uint64_t> host_limit{~0ull};
  std::atomic<bool> makes_room{true};
  std::atomic<unsigned> windows{0};  // how often a window has opened
  std::atomic<bool> in_capture{false};
  std::atomic<bool> is_idle{true};
  std::function<void()> when_asked;  // called at each request for growth
  std::function<void()> after_idle;  // called by idle() after its check, to act as another thread
  std::atomic<bool> lost{false};     // no arbiter answers
  std::atomic<bool> settles{true};
  std::atomic<CUdeviceptr> lent{0};
  std::atomic<unsigned> asked{0};
  std::atomic<unsigned> told{0};  // number of refusals that the user may be told of
  std::atomic<unsigned> told_of_host{0};
  Refusal last_refusal = {};
  std::atomic<unsigned> claimed{0};
  std::mutex mutex;  // guards the members below
  unsigned reports = 0;
  MemoryUse last;
  bool stuck = false;
};

class FakeDestruction final : public Destruction {
 public:
  explicit FakeDestruction(std::function<CUresult()> action, CUcontext context = nullptr)
      : Destruction(context), action_(std::move(action)) {}
  CUresult carry_out() override { return action_(); }

 private:
  std::function<CUresult()> action_;
};

class FakeBudget final : public HostBudget {
 public:
  void take_uncharged(Bytes size) override { uncharged_count += size.count; }
  void give_uncharged(Bytes size) override { uncharged_count -= size.count; }
  Bytes uncharged() const { return {uncharged_count.load()}; }
  Bytes room() const override { return minus(left, uncharged()); }
  bool tight(Bytes /*more*/) const override { return is_tight; }
  bool used_up() const override { return is_used_up; }
  Bytes used() const override { return in_use; }
  std::optional<Bytes> limit() const override { return most; }
  std::optional<Bytes> job_limit() const override { return most_of_job ? most_of_job : most; }

  Bytes left = gibibytes(64);
  std::atomic<std::uint64_t> uncharged_count{0};
  Bytes in_use;
  bool is_tight = false;
  bool is_used_up = false;
  std::optional<Bytes> most;
  std::optional<Bytes> most_of_job;  // the job's limit, if it differs from `most`
};

// start() does the work itself, or starts a thread for the work if `beside` is true. map() and start() can be
// made to fail.
class FakeHost final : public HostSystem {
 public:
  std::byte* map(Bytes size, unsigned threads) override {
    most_threads = std::max(most_threads.load(), threads);
    ++mapped;
    return fails() ? nullptr : real_.map(size, 1);
  }
  void unmap(std::byte* data, Bytes size) override {
    if (before_unmap) before_unmap();
    ++unmapped;
    real_.unmap(data, size);
  }
  bool start(Thread& thread, void* (*work)(void*), void* argument) override {
    if (fails()) return false;
    ++started;
    if (beside) return real_.start(thread, work, argument);
    work(argument);
    return true;
  }
  void join(Thread& thread) override { real_.join(thread); }
  unsigned spare_threads() const override { return spare; }
  Nanoseconds now() const override { return time; }

  unsigned spare = 1;
  Nanoseconds time{};
  std::function<void()> before_unmap;
  // The n-th call of map() or start() after this is set (counted from 1) and all later ones fail; 0: none
  // fails.
  std::atomic<int> fail_from{0};
  std::atomic<unsigned> most_threads{0};
  std::atomic<unsigned> started{0};
  std::atomic<unsigned> mapped{0};  // number of calls of map(), including those that fail
  std::atomic<unsigned> unmapped{0};
  bool beside = false;

 private:
  bool fails() {
    const int left = fail_from;
    if (left > 1) --fail_from;
    return left == 1;
  }
  LinuxHost real_;
};

// A granule is 4 KiB, a handle 128 KiB, and an allocation is large from 64 KiB on.
inline SwapOptions small_sizes() {
  SwapOptions options;
  options.large = kibibytes(64);
  options.handle = kibibytes(128);
  options.largest_arena = kibibytes(128);
  options.report_every = kibibytes(256);
  options.patience = Nanoseconds{};
  return options;
}

// A SwapMemory with fakes around it. `SomeDevice` may be a class that a test derives from FakeDevice.
template <class SomeDevice = FakeDevice>
struct WorldOn {
  explicit WorldOn(Bytes capacity = gibibytes(1), const SwapOptions& options = small_sizes())
      : device(capacity), memory(device, budget, host, books, options) {
    books.memory = &memory;
    memory.set_allowed(capacity);
  }

  SomeDevice device;
  FakeBudget budget;
  FakeHost host;
  FakeBooks books;
  SwapMemory memory;
  ProgramMemory& program = *memory.program_memory();
};
using World = WorldOn<>;

inline std::byte* bytes_at(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

// Contents that differ between blocks and between places in a block.
void fill(CUdeviceptr address, Bytes size, unsigned seed);
bool holds(CUdeviceptr address, Bytes size, unsigned seed);

}  // namespace sharedgpu::test
