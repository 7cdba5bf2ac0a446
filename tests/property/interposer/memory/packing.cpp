// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "interposer/memory/packing.h"

using namespace sharedgpu;

namespace {

constexpr CUdeviceptr kBase = 1ull << 40;
constexpr std::uint64_t kRegion = 1 << 16;
constexpr unsigned kRegions = 3;  // adjacent regions, so that the test detects a wrong merge of two regions

CUdeviceptr region_of(CUdeviceptr address) { return kBase + (address - kBase) / kRegion * kRegion; }

}  // namespace

TEST_CASE("blocks never overlap, and what is freed can be had again", "[packing]") {
  const bool good = rc::check([] {
    Packing packing;
    for (unsigned i = 0; i < kRegions; ++i) packing.add_region(kBase + i * kRegion, {kRegion});
    std::map<CUdeviceptr, std::uint64_t> blocks;
    const auto steps = *rc::gen::container<std::vector<std::pair<bool, std::uint32_t>>>(rc::gen::pair(
        rc::gen::weightedElement<bool>({{3, true}, {2, false}}), rc::gen::arbitrary<std::uint32_t>()));
    for (const auto& [takes, number] : steps) {
      if (takes) {
        const std::uint64_t size = 1 + number % (kRegion / 4);
        const std::optional<CUdeviceptr> place = packing.take({size});
        if (!place) continue;
        RC_ASSERT(*place % Packing::kAlignment.count == 0u);
        RC_ASSERT(*place >= kBase);
        RC_ASSERT(*place + size <= kBase + kRegions * kRegion);
        RC_ASSERT(region_of(*place) == region_of(*place + size - 1));
        const auto after = blocks.lower_bound(*place);
        if (after != blocks.end()) RC_ASSERT(*place + size <= after->first);
        if (after != blocks.begin()) RC_ASSERT(std::prev(after)->first + std::prev(after)->second <= *place);
        blocks[*place] = size;
      } else if (!blocks.empty()) {
        const auto chosen = std::next(blocks.begin(), number % blocks.size());
        RC_ASSERT(packing.give(chosen->first) == region_of(chosen->first));
        blocks.erase(chosen);
      }
    }
    for (const auto& [address, size] : blocks) packing.give(address);
    for (unsigned i = 0; i < kRegions; ++i) RC_ASSERT(packing.is_empty(kBase + i * kRegion));
    for (unsigned i = 0; i < kRegions; ++i) RC_ASSERT(packing.take({kRegion}).has_value());
  });
  CHECK(good);
}
