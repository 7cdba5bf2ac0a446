// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/model/lease_book.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

const GpuUuid kGpu{{1}};
const GpuUuid kOther{{2}};
LeaseKey key(std::uint32_t step, const GpuUuid& gpu = kGpu) {
  return {.tenant = TenantId{5}, .gpu = gpu, .step = {.job = 9, .step = step}};
}

TEST_CASE("Lease time is counted from grant to release, and of an open lease until now") {
  LeaseBook book;
  CHECK(book.grant(key(0), Epoch{1}, 10s));
  CHECK(book.of_step({9, 0}, 13s) == 3s);
  CHECK(book.release(key(0), 15s));
  CHECK(book.of_step({9, 0}, 99s) == 5s);
  CHECK(book.grant(key(0), Epoch{2}, 100s));
  CHECK(book.of_step({9, 0}, 101s) == 6s);
  CHECK(book.holds(TenantId{5}));
  CHECK_FALSE(book.holds(TenantId{4}));
}

TEST_CASE("A second grant or release changes nothing") {
  LeaseBook book;
  CHECK_FALSE(book.release(key(0), 1s));
  CHECK(book.grant(key(0), Epoch{1}, 10s));
  CHECK_FALSE(book.grant(key(0), Epoch{2}, 12s));
  CHECK(book.release(key(0), 15s));
  CHECK_FALSE(book.release(key(0), 20s));
  CHECK(book.of_tenant(TenantId{5}, 30s) == 5s);
}

TEST_CASE("Lease time counts for each step, once for the tenant, and for each GPU") {
  LeaseBook book;
  book.grant(key(0), Epoch{1}, 10s);
  book.grant(key(1), Epoch{1}, 12s);
  book.grant(key(0, kOther), Epoch{1}, 10s);
  book.release(key(0), 20s);
  book.release(key(1), 22s);
  book.release(key(0, kOther), 11s);
  CHECK(book.of_step({9, 0}, 50s) == 11s);
  CHECK(book.of_step({9, 1}, 50s) == 10s);
  CHECK(book.of_tenant(TenantId{5}, 50s) == 13s);
  CHECK(book.steps_of(TenantId{5}, 50s).size() == 2);
  CHECK(book.knows({9, 1}));
  CHECK_FALSE(book.knows({9, 2}));
  book.forget(TenantId{5});
  CHECK(book.of_tenant(TenantId{5}, 50s) == 0s);
}

TEST_CASE("A doubtful lease counts until the last time at which it was known to be held") {
  LeaseBook book;
  book.grant(key(0), Epoch{1}, 10s);
  book.grant(key(1), Epoch{1}, 11s);
  for (std::uint32_t step : {0, 1}) book.doubt(key(step), 12s);
  book.doubt(key(2), 12s);  // no step has this lease
  CHECK(book.of_step({9, 0}, 20s) == 2s);
  CHECK(book.of_tenant(TenantId{5}, 20s) == 2s);
  CHECK(book.steps_of(TenantId{5}, 20s) ==
        std::vector<std::pair<StepName, Nanoseconds>>{{{9, 0}, 2s}, {{9, 1}, 1s}});
  book.confirm(key(1));
  CHECK(book.of_step({9, 0}, 20s) == 2s);
  CHECK(book.of_step({9, 1}, 20s) == 9s);
  CHECK(book.of_tenant(TenantId{5}, 20s) == 10s);
  book.doubt(key(1), 5s);  // the lease began at 11 s, so it counts 0 s, not less
  CHECK(book.of_step({9, 1}, 20s) == 0s);
  book.release(key(1), 15s);
  CHECK(book.of_step({9, 1}, 20s) == 4s);
}

TEST_CASE("A clock that goes back subtracts nothing") {
  LeaseBook book;
  book.grant(key(0), Epoch{1}, 10s);
  book.release(key(0), 5s);
  CHECK(book.of_step({9, 0}, 50s) == 0s);
}

}  // namespace
}  // namespace sharedgpu
