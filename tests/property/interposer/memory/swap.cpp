// SPDX-License-Identifier: Apache-2.0
// Random programs, some of them larger than the GPU, with a random arbiter and a driver that fails sometimes.
// A model records only which byte was written to which address, and the memory must equal the model.
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

enum class Action {
  allocate_small,
  allocate_large,
  free,
  write,
  write_uniform,
  settle,
  make,
  map,
  unmap,
  release,
  merge,
  evict,
  restore,
  exchange,
  limit,
  prepare,
  tend,
  fail,
  fail_host,
  starve,
  capture,
};

struct Move {
  Action action;
  std::uint32_t number;
};

std::ostream& operator<<(std::ostream& out, const Move& move) {
  return out << "{" << static_cast<int>(move.action) << ", " << move.number << "}";
}

rc::Gen<Move> any_move() {
  const auto action = rc::gen::weightedElement<Action>(
      {{6, Action::allocate_small}, {4, Action::allocate_large}, {4, Action::free},      {4, Action::write},
       {2, Action::write_uniform},  {3, Action::settle},         {3, Action::make},      {4, Action::map},
       {2, Action::unmap},          {2, Action::release},        {3, Action::merge},     {5, Action::evict},
       {5, Action::restore},        {6, Action::exchange},       {1, Action::limit},     {2, Action::prepare},
       {1, Action::tend},           {2, Action::fail},           {1, Action::fail_host}, {1, Action::starve},
       {1, Action::capture}});
  return rc::gen::map(rc::gen::pair(action, rc::gen::arbitrary<std::uint32_t>()),
                      [](const std::pair<Action, std::uint32_t>& pair) {
                        return Move{pair.first, pair.second};
                      });
}

constexpr Bytes kCapacity = mebibytes(2);
constexpr Bytes kSlab = kibibytes(256);

class Model {
 public:
  Model() {
    t_.books.limit = kCapacity.count / 2;
    t_.books.beyond_limit = kCapacity.count;
  }

  void take(const Move& move) {
    const std::uint32_t n = move.number;
    switch (move.action) {
      case Action::allocate_small:
        return allocate({1 + n % 40000});
      case Action::allocate_large:
        return allocate(kibibytes(64 + n % 500));
      case Action::free:
        return free(n);
      case Action::write:
        return write(n);
      case Action::write_uniform:
        return write_uniform(n);
      case Action::settle:
        return settle(n);
      case Action::make:
        return make(n);
      case Action::map:
        return map(n);
      case Action::unmap:
        return unmap(n);
      case Action::release:
        return release(n);
      case Action::merge:
        return merge(n);
      case Action::evict:
        return evict({n % kCapacity.count});
      case Action::restore:
        return restore({n % kCapacity.count});
      case Action::exchange:
        return exchange(n);
      case Action::limit:
        t_.books.limit = kCapacity.count / (1 + n % 4);
        t_.books.beyond_limit = n / 4 % 3 * (kCapacity.count / 2);
        return;
      case Action::prepare:
        expected_ = {n % (2 * kCapacity.count)};
        return t_.memory.prepare_host(expected_, n % 7);
      case Action::tend:
        t_.budget.is_tight = n % 2 == 0;
        t_.memory.tend_freed();
        return t_.memory.tend();
      case Action::fail_host:
        t_.host.fail_from = static_cast<int>(n % 5);
        return;
      case Action::fail:
        return t_.device.fail_call(1 + n % 16, CUDA_ERROR_UNKNOWN, n % 2);
      case Action::starve:
        t_.budget.left = n % 2 == 0 ? gibibytes(1) : Bytes{n % 300000};
        t_.budget.is_tight = n % 3 == 0;
        return;
      case Action::capture:
        t_.books.in_capture = n % 2 == 0;
        return;
    }
  }

  void check() {
    const auto [use, beyond, widening] = t_.memory.reading();
    RC_ASSERT(t_.device.misuse() == "");
    check_places(use, beyond);
    RC_ASSERT(use.resident <= use.swappable);
    RC_ASSERT(use.footprint() <= kCapacity);
    RC_ASSERT(t_.device.pinned() == use.host);
    most_expected_ = std::max(most_expected_, expected_);
    RC_ASSERT(use.host < std::max(most_expected_, kCapacity) + kSlab);
    Bytes rooms;
    for (const Handle& handle : t_.memory.handles()) {
      RC_ASSERT(!handle.left || !handle.host.empty());
      RC_ASSERT(!handle.has_copy() || handle.left);
      RC_ASSERT((handle.contents == Handle::Contents::in_room) <= !handle.host.empty());
      if (!handle.host.empty()) rooms += handle.size;
    }
    RC_ASSERT(rooms <= use.host);
    for (const Block& block : blocks_) {
      const std::optional<AddressRange> found = t_.memory.find(block.address + block.size.count - 1);
      RC_ASSERT(found.has_value());
      RC_ASSERT(found->base == block.address);
      RC_ASSERT(found->size == block.size);
      for (const auto& [address, physical] : block.settled)
        RC_ASSERT(t_.device.mapped_at(address) == physical);
    }
    for (const Made& made : made_)
      if (made.exported) RC_ASSERT(t_.device.mapped_at(made.id) == *made.exported);
    for (const Made& made : made_)
      for (const View& view : made.views) {
        const auto found = t_.program.next(view.address + made.size.count - 1, {1});
        RC_ASSERT(found.has_value());
        RC_ASSERT(found->address == view.address);
      }
  }

  // Checks that the counts agree with the device, and that the handles that are not away fit the window.
  void check_places(const MemoryUse& use, Bytes beyond) const {
    Bytes in_window;
    Bytes away;
    Bytes resident;
    Bytes pinned;
    Bytes blocks;
    for (const Handle& handle : t_.memory.handles()) {
      const bool is_pinned = handle.place == Handle::Place::settled;
      if (handle.away)
        away += handle.size;
      else if (!is_pinned)
        in_window += handle.size;
      if (handle.mapped && !handle.away) (is_pinned ? pinned : resident) += handle.size;
      if (handle.block) blocks += handle.block->size;
    }
    RC_ASSERT(t_.device.physical() == resident + pinned);
    RC_ASSERT(use.pinned == pinned);
    RC_ASSERT(in_window <= use.swappable);
    RC_ASSERT(in_window + away == use.swappable + beyond);
    const Bytes unused = minus(use.swappable, in_window);
    RC_ASSERT(use.resident == std::max(resident, std::min(resident + unused, t_.memory.allowed())));
    RC_ASSERT(t_.device.host_physical() == t_.budget.uncharged());
    RC_ASSERT(blocks <= t_.device.host_physical());
    RC_ASSERT(beyond <= kCapacity);
  }

  // Ends the program: restores and verifies all memory, and frees it.
  void finish() {
    t_.device.fail_call(0);
    t_.host.fail_from = 0;
    t_.books.in_capture = false;
    t_.budget.left = gibibytes(1);
    t_.budget.is_tight = false;
    t_.memory.set_allowed(kCapacity);
    RC_ASSERT(t_.memory.restore());
    check_contents();
    t_.memory.away_memory()->exchange({}, away_handles());
    t_.memory.prepare_host({}, 1);
    t_.memory.tend_freed();
    t_.memory.tend();
    RC_ASSERT(t_.memory.use().host == Bytes{});
    check_contents();
    for (Made& made : made_) {
      for (const View& view : made.views) RC_ASSERT(t_.program.unmap(view.address) == CUDA_SUCCESS);
      if (made.held) RC_ASSERT(t_.program.release(made.id) == CUDA_SUCCESS);
      if (made.exported) RC_ASSERT(t_.device.release(*made.exported) == CUDA_SUCCESS);
    }
    for (const Block& block : blocks_) RC_ASSERT(t_.memory.free(block.address) == CUDA_SUCCESS);
    RC_ASSERT(t_.device.misuse() == "");
    RC_ASSERT(t_.memory.use().resident <= t_.memory.use().swappable);
  }

 private:
  struct Block {
    CUdeviceptr address = 0;
    Bytes size;
    unsigned seed = 0;                  // 0: never written, or freed without success: any contents are right
    std::optional<std::uint32_t> word;  // the word with which the block was last filled
    std::map<CUdeviceptr, Physical> settled;
  };

  // A handle that the program created, and where it is mapped.
  struct View {
    CUdeviceptr address = 0;
    bool accessible = false;
  };
  struct Made {
    ProgramMemory::Id id = 0;
    Bytes size;
    bool held = true;  // by a reference
    std::vector<View> views;
    unsigned seed = 0;
    std::optional<Physical> exported = {};  // the driver's handle, on which the program has a reference
  };

  // Returns true if all contents are at their addresses, as they are inside the gate. The program uses its
  // memory only then.
  bool running() {
    for (const Handle& handle : t_.memory.handles()) {
      if (!handle.usable()) return false;
    }
    return true;
  }
  static bool intact(const Block& block) {
    if (block.word) {
      for (std::size_t i = 0; i + 4 <= block.size.count; i += 4)
        if (std::memcmp(bytes_at(block.address) + i, &*block.word, 4) != 0) return false;
      return true;
    }
    return block.seed == 0 || holds(block.address, block.size, block.seed);
  }

  void check_contents() {
    for (const Block& block : blocks_) RC_ASSERT(intact(block));
    for (const Made& made : made_)
      for (const View& view : made.views)
        if (view.accessible && made.seed != 0) RC_ASSERT(holds(view.address, made.size, made.seed));
  }

  void make(std::uint32_t n) {
    CUmemAllocationProp kind{};
    if (n % 2 != 0) kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    Made made{.id = 0, .size = kibibytes(4 * (1 + n / 2 % 130)), .views = {}};
    if (t_.program.create(&made.id, made.size, kind) != CUDA_SUCCESS) return;
    RC_ASSERT(t_.program.properties(made.id)->requestedHandleTypes == kind.requestedHandleTypes);
    made_.push_back(made);
  }
  void map(std::uint32_t n) {
    if (made_.empty()) return;
    Made& made = made_[n % made_.size()];
    if (!made.held) {
      const auto again = t_.program.retain(made.views.front().address);
      RC_ASSERT(again == made.id);
      made.held = true;
    }
    View view{.address = t_.device.reserve_for_program(made.size)};
    if (t_.program.map(view.address, made.size, made.id) != CUDA_SUCCESS) return;
    RC_ASSERT(t_.program.map(view.address, made.size, made.id) == CUDA_ERROR_INVALID_VALUE);
    CUmemAccessDesc access{};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    view.accessible = t_.program.set_access(view.address, &access, 1) == CUDA_SUCCESS;
    made.views.push_back(view);
  }
  void unmap(std::uint32_t n) {
    if (made_.empty()) return;
    Made& made = made_[n % made_.size()];
    if (made.views.empty()) return;
    if (t_.program.unmap(made.views.back().address) != CUDA_SUCCESS) {
      made.views.back().accessible = false;  // a part may already be unmapped
      return;
    }
    made.views.pop_back();
    forget(n % made_.size());
  }
  void release(std::uint32_t n) {
    if (made_.empty() || !made_[n % made_.size()].held) return;
    Made& made = made_[n % made_.size()];
    if (t_.program.release(made.id) != CUDA_SUCCESS) {
      made.seed = 0;
      return;
    }
    made.held = false;
    forget(n % made_.size());
  }
  // Merges the handles of an allocation into one handle, and usually exports this handle.
  void merge(std::uint32_t n) {
    if (made_.empty()) return;
    Made& made = made_[n % made_.size()];
    const auto of_it = [&](const Handle& handle) { return handle.address - made.id < made.size.count; };
    const bool away = any_away(made.id, made.size);
    const CUresult result = t_.memory.merge(made.id);
    const auto handles = t_.memory.handles();
    if (running()) check_contents();
    if (result != CUDA_SUCCESS) return;
    const bool for_export = t_.program.properties(made.id)->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    if (for_export) RC_ASSERT(std::ranges::count_if(handles, of_it) == 1);
    if (!for_export || made.exported || n % 4 == 0) return;
    t_.books.settles = n % 8 != 1;
    CUmemGenericAllocationHandle real = 0;
    if (t_.program.settle(made.id, &real) != CUDA_SUCCESS) return;
    RC_ASSERT(!away);
    made.exported = real;
  }
  void forget(std::size_t index) {
    const Made& made = made_[index];
    if (made.held || !made.views.empty()) return;
    if (made.exported) {
      // Repeats a release of the reference that failed; real programs do not repeat it.
      for (unsigned attempts = 0; t_.device.release(*made.exported) != CUDA_SUCCESS; ++attempts)
        RC_ASSERT(attempts < 3);
    }
    RC_ASSERT(t_.device.has_failed() || !t_.program.release(made.id).has_value());
    made_.erase(made_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void allocate(Bytes size) {
    Block block{0, size, 0, {}, {}};
    if (t_.memory.allocate(&block.address, size) != CUDA_SUCCESS) return;
    for (const Block& other : blocks_) {
      RC_ASSERT(block.address + size.count <= other.address ||
                other.address + other.size.count <= block.address);
    }
    blocks_.push_back(block);
  }
  void free(std::uint32_t n) {
    if (blocks_.empty()) return;
    const std::size_t chosen = n % blocks_.size();
    if (t_.memory.free(blocks_[chosen].address) != CUDA_SUCCESS) {
      // The free has failed: the memory still exists, but its contents are undefined.
      blocks_[chosen].seed = 0;
      blocks_[chosen].word.reset();
      blocks_[chosen].settled.clear();
      return;
    }
    RC_ASSERT(t_.memory.free(blocks_[chosen].address) != CUDA_SUCCESS);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  void write(std::uint32_t n) {
    if (!running()) return;
    check_contents();
    for (Made& made : made_)
      if (!made.views.empty() && made.views.front().accessible && n % 3 == 0) {
        made.seed = ++writes_;
        fill(made.views.front().address, made.size, made.seed);
      }
    if (blocks_.empty()) return;
    Block& block = blocks_[n % blocks_.size()];
    block.seed = ++writes_;
    block.word.reset();
    fill(block.address, block.size, block.seed);
  }
  // Fills blocks with the same word, so that whole handles are uniform, or nearly uniform.
  void write_uniform(std::uint32_t n) {
    if (!running()) return;
    check_contents();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if ((n >> i % 8 & 1) == 0) continue;
      blocks_[i].word = n & 0x100;
      for (std::size_t at = 0; at + 4 <= blocks_[i].size.count; at += 4)
        std::memcpy(bytes_at(blocks_[i].address) + at, &*blocks_[i].word, 4);
    }
  }
  // Pins a part of a block: the handles under this part must stay mapped.
  void settle(std::uint32_t n) {
    if (blocks_.empty()) return;
    Block& block = blocks_[n % blocks_.size()];
    t_.books.settles = n % 4 != 0;
    const Bytes offset{n % block.size.count};
    const Bytes size{1 + n / 7 % (block.size.count - offset.count)};
    const CUdeviceptr begin = block.address + offset.count;
    const bool there = running() && !any_away(begin, size);
    const auto [use, beyond, widening] = t_.memory.reading();
    const bool permitted = t_.books.settles && use.footprint() <= Bytes{t_.books.limit.load()} &&
                           beyond <= Bytes{t_.books.beyond_limit.load()};
    const CUresult result = t_.memory.settle(begin, size);
    RC_ASSERT(result == CUDA_SUCCESS || !there || !permitted);
    if (result != CUDA_SUCCESS) return;
    for (const Handle& handle : t_.memory.handles()) {
      if (handle.address >= begin + size.count || handle.address + handle.size.count <= begin) continue;
      RC_ASSERT(handle.usable());
      block.settled[handle.address] = t_.device.mapped_at(handle.address);
    }
  }
  std::vector<CUdeviceptr> away_handles() const {
    std::vector<CUdeviceptr> found;
    for (const Handle& handle : t_.memory.handles())
      if (handle.away) found.push_back(handle.address);
    return found;
  }
  bool any_away(CUdeviceptr begin, Bytes size) const {
    for (const Handle& handle : t_.memory.handles())
      if (handle.away && handle.address < begin + size.count && begin < handle.address + handle.size.count)
        return true;
    return false;
  }
  // Exchanges random handles. The request also names `n`, an address that may belong to no handle, as both
  // leaving and entering.
  void exchange(std::uint32_t n) {
    std::vector<CUdeviceptr> out{n};
    std::vector<CUdeviceptr> in{n};
    for (const Handle& handle : t_.memory.handles()) {
      const std::uint32_t chance = n = n * 1664525 + 1013904223;
      if (chance >> 28 == 0) continue;
      (handle.away == (chance >> 28 < 15) ? in : out).push_back(handle.address);
    }
    const bool all = t_.memory.away_memory()->exchange(out, in);
    for (const Handle& handle : t_.memory.handles())
      RC_ASSERT(!all || !handle.away || std::ranges::find(in, handle.address) == in.end());
    if (running()) check_contents();
  }
  void evict(Bytes allowed) {
    t_.memory.set_allowed(allowed);
    const bool done = t_.memory.evict();
    RC_ASSERT(done == (t_.memory.use().resident <= allowed));
    RC_ASSERT(t_.books.stuck == !done);
    RC_ASSERT(t_.books.last.resident == t_.memory.use().resident);
  }
  void restore(Bytes allowed) {
    const Bytes before = t_.memory.use().resident;
    t_.memory.set_allowed(allowed);
    const bool done = t_.memory.restore();
    RC_ASSERT(done == running());
    RC_ASSERT(t_.memory.use().resident <= std::max(allowed, before));
    if (done) check_contents();
  }

  World t_{kCapacity};
  std::vector<Block> blocks_;
  std::vector<Made> made_;
  unsigned writes_ = 0;
  Bytes expected_;  // host memory for evictions, as the last prepare_host() ordered
  Bytes most_expected_;
};

}  // namespace

TEST_CASE("no program loses a byte, whatever the arbiter and the driver do", "[swap]") {
  const bool good = rc::check([] {
    Model model;
    for (const Move& move : *rc::gen::container<std::vector<Move>>(any_move())) {
      model.take(move);
      model.check();
    }
    model.finish();
  });
  CHECK(good);
}
