// SPDX-License-Identifier: Apache-2.0
// For programs of any kind, exchange plans fit the window, and NeedOrder uses a bounded amount of memory.
#include <malloc.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <vector>

#include "interposer/oversize/exchange_plan.h"

using namespace sharedgpu;

// These operators count the memory of this program.
static std::size_t allocated = 0;
void* operator new(std::size_t size) {
  void* const block = std::malloc(size != 0 ? size : 1);
  if (block == nullptr) throw std::bad_alloc();
  allocated += malloc_usable_size(block);
  return block;
}
// AddressSanitizer defines every version of operator new, so this file replaces each version that the test
// uses.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* block) noexcept {
  allocated -= block != nullptr ? malloc_usable_size(block) : 0;
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept { operator delete(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { operator delete(block); }

namespace {

Bytes sum(const std::vector<std::uint64_t>& handles, const std::map<std::uint64_t, Candidate>& all) {
  Bytes total;
  for (const std::uint64_t handle : handles) total += all.at(handle).size;
  return total;
}

// A program that allocates, uses and frees handles, in a window that changes.
struct World {
  NeedOrder order;
  std::map<std::uint64_t, Candidate> handles;
  Bytes window = mebibytes(500);

  Bytes on_gpu() const {
    Bytes total;
    for (const auto& [handle, each] : handles)
      if (each.on_gpu) total += each.size;
    return total;
  }

  void launch(const std::vector<std::uint64_t>& needed, Bytes most) {
    for (const std::uint64_t handle : needed) order.note(handle);
    std::vector<Candidate> candidates;
    for (const auto& [handle, each] : handles) candidates.push_back(each);
    const Bytes free = minus(window, on_gpu());
    const Plan made = plan(order, candidates, needed, free, most);

    const auto is_needed = [&](std::uint64_t handle) { return std::ranges::count(needed, handle) != 0; };
    std::vector<std::uint64_t> moved = made.out;
    moved.insert(moved.end(), made.in.begin(), made.in.end());
    RC_ASSERT(std::set(moved.begin(), moved.end()).size() == moved.size());
    for (const std::uint64_t each : made.out) RC_ASSERT(handles.at(each).on_gpu && !is_needed(each));
    for (const std::uint64_t each : made.in) RC_ASSERT(!handles.at(each).on_gpu);
    const Bytes out = sum(made.out, handles);
    const Bytes in = sum(made.in, handles);
    RC_ASSERT(free + out >= in);
    for (const std::uint64_t each : made.out) RC_ASSERT(free + out - handles.at(each).size < in);
    Bytes in_early;
    for (const std::uint64_t each : made.in)
      if (!is_needed(each)) in_early += handles.at(each).size;
    RC_ASSERT(in_early == Bytes{} || in <= most);

    for (const std::uint64_t each : made.out) handles.at(each).on_gpu = false;
    for (const std::uint64_t each : made.in) handles.at(each).on_gpu = true;
    // A needed handle stays away only if it does not fit beside the other needed handles that are on the GPU.
    Bytes held;
    for (const auto& [handle, each] : handles)
      if (each.on_gpu && is_needed(handle)) held += each.size;
    const Bytes room = std::max(window, on_gpu());
    for (const std::uint64_t each : needed)
      if (handles.contains(each) && !handles.at(each).on_gpu) RC_ASSERT(held + handles.at(each).size > room);
  }
};

struct Step {
  unsigned kind;
  std::vector<std::uint64_t> handles;
  unsigned size;
};

}  // namespace

TEST_CASE("no plan exceeds the window or moves a handle in vain", "[oversize]") {
  CHECK(rc::check([] {
    World world;
    const auto steps = *rc::gen::container<std::vector<Step>>(rc::gen::apply(
        [](unsigned kind, std::vector<std::uint64_t> handles, unsigned size) {
          return Step{kind, std::move(handles), size};
        },
        rc::gen::inRange(0u, 10u),
        rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(1, 30)),
        rc::gen::inRange(1u, 65u)));
    for (int cycle = 0; cycle < 3; ++cycle) {
      for (const auto& [kind, handles, size] : steps) {
        if (kind < 3) {
          for (const std::uint64_t each : handles)
            world.handles.try_emplace(each, Candidate{each, mebibytes(2 * size), false});
        } else if (kind == 3) {
          for (const std::uint64_t each : handles) world.handles.erase(each);
        } else if (kind == 4) {
          world.window = mebibytes(16 * size);
        } else {
          world.launch(handles, mebibytes(4 * size));
        }
      }
    }
  }));
}

TEST_CASE("the distance to the last need is zero for the handle that was needed last", "[oversize]") {
  CHECK(rc::check([] {
    NeedOrder order;
    const auto needs = *rc::gen::container<std::vector<std::uint64_t>>(
        200, rc::gen::inRange<std::uint64_t>(1, *rc::gen::inRange(3, 60)));
    for (const std::uint64_t each : needs) {
      order.note(each);
      RC_ASSERT(order.since(each) == 0);
      RC_ASSERT(order.next(each) >= 1);
    }
  }));
}

TEST_CASE("the memory of the order is bounded", "[oversize]") {
  const std::size_t before = allocated;
  NeedOrder order;
  SECTION("many handles") {
    for (std::uint64_t i = 0; i < 4 * NeedOrder::kMostNeeds; ++i) order.note(i);
  }
  SECTION("handles that are needed often for a while, and then rarely") {
    for (std::uint64_t busy = 1; busy <= 300; ++busy) {
      for (std::uint64_t i = 0; i < NeedOrder::kMostNeeds / 8; ++i) {
        order.note(busy);
        order.note(0);
      }
      for (std::uint64_t each = 1; each < busy; ++each) order.note(each);
    }
  }
  CHECK(allocated - before <= NeedOrder::kMostMemory);
}
