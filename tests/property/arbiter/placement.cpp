// SPDX-License-Identifier: Apache-2.0
// Placement with random sequences of tenants that start and end.
#include "arbiter/core/placement.h"

#include <rapidcheck.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "arbiter/core/core.h"
#include "arbiter/policy/registry.h"

namespace sharedgpu::test {
namespace {

struct Host {
  std::unique_ptr<Policy> policy = make_policy("round-robin");
  Core core{{}, *policy, {}, {}};
  std::vector<GpuUuid> gpus;

  explicit Host(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      // The UUIDs are descending, so that the host's order differs from the order of UUIDs.
      gpus.push_back({{static_cast<std::uint8_t>(100 - i)}});
      core.handle(GpuFound{.gpu = gpus.back(), .total = gibibytes(1), .capacity = gibibytes(1), .minor = i},
                  {});
    }
  }
  std::vector<GpuUuid> place(std::uint64_t tenant, const Demand& demand) {
    core.handle(Place{.tenant = TenantId{tenant}, .demand = demand}, {});
    return core.snapshot().placements.at(TenantId{tenant}).gpus;
  }
  void unplace(std::uint64_t tenant) { core.handle(Unplace{.tenant = TenantId{tenant}}, {}); }

  std::vector<unsigned> units() const {
    std::vector<unsigned> sums;
    for (const GpuUuid& gpu : gpus) {
      unsigned sum = 0;
      for (const auto& [id, its] : core.snapshot().placements)
        sum += std::count(its.gpus.begin(), its.gpus.end(), gpu) > 0 ? its.units : 0;
      sums.push_back(sum);
    }
    return sums;
  }
  unsigned imbalance() const {
    const std::vector<unsigned> sums = units();
    const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
    return *most - *least;
  }
};

TEST_CASE("Sixteen tenants of one unit are placed eight on each of two GPUs") {
  Host host(2);
  for (unsigned tenant = 1; tenant <= 16; ++tenant) host.place(tenant, {});
  CHECK(host.units() == std::vector<unsigned>{8, 8});
}

TEST_CASE("The numbers of equal requests on the GPUs differ by at most one") {
  CHECK(rc::check("equal", [] {
    const auto count = *rc::gen::inRange(1u, 9u);
    const Demand demand{.units = *rc::gen::inRange(1u, 9u), .gpus = *rc::gen::inRange(1u, count + 1)};
    Host host(count);
    for (unsigned tenant = 1, all = *rc::gen::inRange(1u, 40u); tenant <= all; ++tenant) {
      host.place(tenant, demand);
      RC_ASSERT(host.imbalance() <= units_on_each(demand.units, demand.gpus));
    }
  }));
}

TEST_CASE("Tenants that come and go") {
  CHECK(rc::check("history", [] {
    const auto count = *rc::gen::inRange(1u, 9u);
    Host host(count);
    Host twin(count);
    std::map<std::uint64_t, std::vector<GpuUuid>> placed;
    for (unsigned steps = *rc::gen::inRange(1u, 60u); steps > 0; --steps) {
      const std::uint64_t tenant = *rc::gen::inRange(1u, 20u);
      if (placed.count(tenant) > 0 && *rc::gen::arbitrary<bool>()) {
        host.unplace(tenant);
        twin.unplace(tenant);
        placed.erase(tenant);
      } else {
        const Demand demand{.units = *rc::gen::inRange(1u, 9u), .gpus = *rc::gen::inRange(1u, 5u)};
        const std::vector<unsigned> before = host.units();
        const std::vector<GpuUuid> gpus = host.place(tenant, demand);
        // The same sequence gives the same decisions.
        RC_ASSERT(twin.place(tenant, demand) == gpus);
        if (placed.count(tenant) > 0) {
          RC_ASSERT(gpus == placed[tenant]);
        } else {
          RC_ASSERT(gpus.size() == std::min(demand.gpus, count));
          RC_ASSERT(std::set<GpuUuid>(gpus.begin(), gpus.end()).size() == gpus.size());
          // On each GPU that was not chosen, tenants had at least as many units as on each chosen GPU.
          unsigned most_taken = 0;
          unsigned least_left = ~0u;
          for (unsigned i = 0; i < count; ++i) {
            if (std::count(gpus.begin(), gpus.end(), host.gpus[i]) > 0)
              most_taken = std::max(most_taken, before[i]);
            else
              least_left = std::min(least_left, before[i]);
          }
          RC_ASSERT(most_taken <= least_left);
        }
        placed[tenant] = gpus;
      }
      // The arrival or end of a tenant never moves another tenant.
      RC_ASSERT(host.core.snapshot().placements.size() == placed.size());
      for (const auto& [id, gpus] : placed)
        RC_ASSERT(host.core.snapshot().placements.at(TenantId{id}).gpus == gpus);
    }
    for (const auto& [id, gpus] : placed) host.unplace(id);
    RC_ASSERT(host.units() == std::vector<unsigned>(count, 0));
  }));
}

TEST_CASE("Each step of a tenant is told only of GPUs that it can open") {
  CHECK(rc::check("devices", [] {
    const auto count = *rc::gen::inRange(1u, 9u);
    Host host(count);
    for (unsigned steps = *rc::gen::inRange(1u, 40u); steps > 0; --steps) {
      const TenantId tenant{*rc::gen::inRange<std::uint64_t>(1, 5)};
      const Demand demand{.units = *rc::gen::inRange(1u, 9u),
                          .gpus = *rc::gen::inRange(1u, 5u),
                          .devices = {*rc::gen::inRange<std::uint64_t>(1, 1u << (count + 1))}};
      host.core.handle(Place{.tenant = tenant, .demand = demand}, {});
      const Snapshot state = host.core.snapshot();
      const auto placed = state.placements.find(tenant);
      std::vector<GpuUuid> gpus;
      if (placed != state.placements.end()) gpus = gpus_seen(state, placed->second, demand);
      unsigned open = 0;
      for (unsigned i = 0; i < count; ++i) {
        open += demand.devices.has(i) ? 1 : 0;
        if (std::count(gpus.begin(), gpus.end(), host.gpus[i]) > 0) RC_ASSERT(demand.devices.has(i));
      }
      RC_ASSERT(gpus.empty() == (open == 0));
      RC_ASSERT(gpus.size() <= std::min(open, demand.gpus));
    }
  }));
}

}  // namespace
}  // namespace sharedgpu::test
