// SPDX-License-Identifier: Apache-2.0
// Checks which GPU a tenant gets; each test varies one criterion.
#include "arbiter/core/placement.h"

#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

std::vector<GpuUuid> gpus_of(const Bench& b, std::uint64_t tenant) {
  const auto placements = b.core->snapshot().placements;
  auto found = placements.find(TenantId{tenant});
  return found == placements.end() ? std::vector<GpuUuid>{} : found->second.gpus;
}

// Reports a GPU to the core. `learned`: only sessions have reported the GPU. The core of a bench knows kGpu
// before this report.
void find(Core& core, const GpuUuid& gpu, unsigned minor, bool learned = false) {
  core.handle(GpuFound{.gpu = gpu,
                       .total = mebibytes(120),
                       .capacity = mebibytes(100),
                       .learned = learned,
                       .minor = minor},
              {});
}

std::vector<GpuUuid> put(Bench& b, std::uint64_t tenant, unsigned units = 1, unsigned gpus = 1) {
  b.handle(Place{.tenant = TenantId{tenant}, .demand = {.units = units, .gpus = gpus}});
  return gpus_of(b, tenant);
}

using Gpus = std::vector<GpuUuid>;

TEST_CASE("The GPU with the fewest units comes first, and the host's first among equals") {
  Bench b;
  CHECK(put(b, 1) == Gpus{kGpu});
  CHECK(put(b, 2) == Gpus{kOther});
  CHECK(put(b, 3, 3) == Gpus{kGpu});
  CHECK(put(b, 4) == Gpus{kOther});
  CHECK(put(b, 5) == Gpus{kOther});
  CHECK(put(b, 6) == Gpus{kOther});
}

TEST_CASE("With equal units, the GPU with the least memory allocated comes first") {
  Bench b;
  put(b, 1);
  put(b, 2);
  b.settle_in(1, 1, 30);
  CHECK(put(b, 3) == Gpus{kOther});
}

TEST_CASE("With equal units, unmanaged memory counts like allocated memory") {
  Bench b;
  b.handle(Surveyed{.gpu = kGpu,
                    .found = GpuSurvey{.unmanaged = mebibytes(30), .limit = mebibytes(70), .reserve = {}}});
  CHECK(put(b, 1) == Gpus{kOther});
  b.handle(Surveyed{.gpu = kGpu, .found = std::nullopt});
  CHECK(put(b, 2, 2) == Gpus{kGpu});
}

TEST_CASE("With equal units and memory, the GPU with the fewest tenants comes first") {
  Bench b;
  CHECK(put(b, 1, 2) == Gpus{kGpu});
  CHECK(put(b, 2, 1) == Gpus{kOther});
  CHECK(put(b, 3, 1) == Gpus{kOther});
  CHECK(put(b, 4) == Gpus{kGpu});
}

TEST_CASE("A tenant that uses a GPU without being placed there counts as one unit") {
  Bench b;
  b.come(1, 1);
  b.attach(1, kGpu);
  CHECK(put(b, 2) == Gpus{kOther});
  put(b, 3);
  b.come(2, 3);
  b.attach(2, kOther);  // the tenant was not placed on this GPU
  CHECK(put(b, 4) == Gpus{kGpu});
}

TEST_CASE("With equal units and memory, the number of tenants goes before the host's order") {
  Bench b;
  CHECK(put(b, 1, 1) == Gpus{kGpu});
  CHECK(put(b, 2, 2) == Gpus{kOther});
  CHECK(put(b, 3, 1) == Gpus{kGpu});
  CHECK(put(b, 4) == Gpus{kOther});
}

TEST_CASE("The unit of a tenant that was placed nowhere counts more than the memory of others") {
  Bench b;
  b.settle_in(1, 1, 30);
  CHECK(put(b, 2) == Gpus{kOther});
  CHECK(put(b, 3) == Gpus{kOther});
}

TEST_CASE("A tenant sees its GPUs in the host's order, whichever of them is the best") {
  Bench b;
  put(b, 1);
  CHECK(put(b, 2, 1, 2) == Gpus{kGpu, kOther});
}

TEST_CASE("A tenant that already uses a GPU is placed there") {
  Bench b;
  b.come(1, 1);
  b.attach(1, kOther);
  CHECK(put(b, 1) == Gpus{kOther});
}

TEST_CASE("A tenant that spans GPUs gets distinct ones, in the host's order, and its units are spread") {
  Bench b;
  b.handle(GpuFound{.gpu = kThird, .total = mebibytes(120), .capacity = mebibytes(100), .learned = false});
  put(b, 1);
  CHECK(put(b, 2, 3, 2) == Gpus{kOther, kThird});
  CHECK(b.core->snapshot().placements.at(TenantId{2}).units == 2);
  CHECK(put(b, 3, 1, 3) == Gpus{kGpu, kOther, kThird});
  CHECK(put(b, 4, 1, 9) == Gpus{kGpu, kOther, kThird});  // the node has no more GPUs
}

TEST_CASE("A placement stays as it is until it is given up") {
  Bench b;
  put(b, 1);
  put(b, 2, 5);
  CHECK(put(b, 3) == Gpus{kGpu});
  CHECK(put(b, 2, 1, 2) == Gpus{kOther});
  CHECK(b.core->snapshot().placements.at(TenantId{2}).units ==
        1);  // a later step may open more GPUs, or fewer
  b.handle(Unplace{.tenant = TenantId{2}});
  CHECK(gpus_of(b, 2).empty());
  CHECK(put(b, 4) == Gpus{kOther});
  b.handle(Unplace{.tenant = TenantId{77}});
  CHECK(b.core->snapshot().placements.size() == 3);
}

// Three GPUs. The numbers of their device files are not in the order of their UUIDs.
struct Numbered {
  std::unique_ptr<Policy> policy = make_policy("round-robin");
  Core core;
  explicit Numbered(Recovered recovered = {}) : core({}, *policy, std::move(recovered), {}) {
    find(core, kGpu, 2);
    find(core, kOther, 0);
    find(core, kThird, 1);
  }
  // Places the tenant, and returns the GPUs that its processes may use if they can open the device files in
  // `devices`.
  Gpus put(std::uint64_t tenant, std::uint64_t devices, unsigned units = 1, unsigned gpus = 1) {
    const Demand demand{.units = units, .gpus = gpus, .devices = {devices}};
    core.handle(Place{.tenant = TenantId{tenant}, .demand = demand}, {});
    const Snapshot state = core.snapshot();
    auto placed = state.placements.find(TenantId{tenant});
    return placed == state.placements.end() ? Gpus{} : gpus_seen(state, placed->second, demand);
  }
  Placement placement(std::uint64_t tenant) const { return core.snapshot().placements.at(TenantId{tenant}); }
};

TEST_CASE("A tenant is placed among the GPUs whose files it can open") {
  Numbered host;
  CHECK(host.put(1, 0b010) == Gpus{kThird});
  CHECK(host.put(2, 0b010) == Gpus{kThird});
  CHECK(host.put(3, 0b110) == Gpus{kGpu});
  CHECK(host.put(4, 0b011, 2, 3) == Gpus{kOther, kThird});
  CHECK(host.put(5, 0b1000).empty());
  CHECK(host.core.snapshot().placements.size() == 4);
  CHECK(host.put(6, 0) == Gpus{kGpu});  // the devices that the tenant can open are unknown
}

TEST_CASE("A GPU whose number is not known is open to all") {
  Numbered host;
  host.core.handle(GpuFound{.gpu = {{4}}, .total = mebibytes(120), .capacity = mebibytes(100)}, {});
  CHECK(host.put(1, 0b1000) == Gpus{{{4}}});
}

TEST_CASE("A step that can open none of its job's GPUs gets another beside them") {
  Numbered host;
  CHECK(host.put(1, 0b111, 4) == Gpus{kGpu});
  CHECK(host.put(1, 0b010, 4) == Gpus{kThird});
  CHECK(host.put(1, 0b110, 4) == Gpus{kGpu});
  CHECK(host.put(1, 0b010, 4) == Gpus{kThird});
  CHECK(host.placement(1).gpus == Gpus{kGpu, kThird});
  CHECK(host.placement(1).units == 2);
}

TEST_CASE("A step gets those of the tenant's GPUs that it can open, as many as it requests") {
  Numbered host;
  CHECK(host.put(1, 0b111, 2, 2) == Gpus{kGpu, kOther});
  CHECK(host.put(1, 0b011, 2, 2) == Gpus{kOther});
  CHECK(host.put(1, 0b111, 2, 1) == Gpus{kGpu});
  CHECK(host.placement(1).gpus == Gpus{kGpu, kOther});
}

TEST_CASE("A placement by an earlier arbiter on a GPU that cannot be opened is not kept") {
  Recovered recovered;
  recovered.placements[TenantId{1}] = {.units = 4, .gpus = {kOther}};
  Numbered host(recovered);
  CHECK(host.put(1, 0b100, 4) == Gpus{kGpu});
}

TEST_CASE("Units that no node has add up right") {
  Numbered host;
  for (std::uint64_t tenant = 1; tenant <= 3; ++tenant) CHECK(host.put(tenant, 0b100, ~0u) == Gpus{kGpu});
  CHECK(host.put(4, 0b110) == Gpus{kThird});
  CHECK(units_on_each(~0u, 2) == 1u << 31);
}

TEST_CASE(
    "A GPU that the arbiter finds late replaces the GPU that sessions reported, and its memory is handed "
    "out") {
  std::unique_ptr<Policy> policy = make_policy("round-robin");
  Core core({}, *policy, {}, {});
  const auto number = [&](const GpuUuid& gpu) { return core.snapshot().find(gpu)->number; };
  find(core, kOther, 0, true);
  find(core, kGpu, 0);
  find(core, kOther, 1);
  CHECK_FALSE(core.snapshot().find(kOther)->learned);
  CHECK(core.snapshot().find(kOther)->minor == 1u);
  CHECK(number(kGpu) == 0);
  CHECK(number(kOther) == 1);
  find(core, kOther, 7, true);
  CHECK(core.snapshot().find(kOther)->minor == 1u);
}

TEST_CASE("No tenant is placed on a GPU that only sessions have reported") {
  std::unique_ptr<Policy> policy = make_policy("round-robin");
  Core core({}, *policy, {}, {});
  core.handle(GpuFound{.gpu = kGpu, .total = mebibytes(120), .capacity = mebibytes(100), .learned = true},
              {});
  core.handle(Place{.tenant = TenantId{1}, .demand = {}}, {});
  CHECK(core.snapshot().placements.empty());
}

TEST_CASE("The placement by an earlier arbiter stays, except on a GPU that is gone") {
  Recovered recovered;
  recovered.placements[TenantId{1}] = {.units = 4, .gpus = {kOther}};
  recovered.placements[TenantId{2}] = {.units = 1, .gpus = {kThird}};
  Bench b(recovered);
  CHECK(put(b, 1, 4) == Gpus{kOther});
  CHECK(put(b, 2) == Gpus{kGpu});
}

}  // namespace
}  // namespace sharedgpu
