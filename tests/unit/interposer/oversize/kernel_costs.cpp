// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/kernel_costs.h"

#include <vector>

#include <catch2/catch.hpp>
#include "interposer/oversize/debts.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Operand = KernelCosts::Operand;

constexpr KernelCosts::Key kProduct{.kernel = 100, .word = 0};
constexpr KernelCosts::Key kOther{.kernel = 100, .word = 8};

double milliseconds_for(const KernelCosts& costs, KernelCosts::Key key, Bytes size) {
  return costs.per_byte(key).value() * static_cast<double>(size.count) / 1e6;
}

}  // namespace

TEST_CASE("A kernel that never ran with an operand away has no known cost") {
  KernelCosts costs;
  CHECK_FALSE(costs.per_byte(kProduct));
  const Operand here[] = {{kProduct, mebibytes(64), {}}};
  costs.ran(here, 1ms);
  CHECK_FALSE(costs.per_byte(kProduct));
}

TEST_CASE("The cost is the time that a launch takes longer because bytes are away") {
  KernelCosts costs;
  const Operand away[] = {{kProduct, mebibytes(128), mebibytes(64)}};
  costs.ran(away, 43ms);
  CHECK(milliseconds_for(costs, kProduct, mebibytes(64)) == Approx(43));
  const Operand here[] = {{kProduct, mebibytes(128), {}}};
  costs.ran(here, 3ms);
  CHECK(milliseconds_for(costs, kProduct, mebibytes(64)) == Approx(40));
  costs.ran(here, 5ms);  // only the fastest launch counts
  CHECK(milliseconds_for(costs, kProduct, mebibytes(64)) == Approx(40));
  costs.ran(here, 100ms);
  CHECK(milliseconds_for(costs, kProduct, mebibytes(64)) == Approx(40));
}

TEST_CASE("The cost is never negative") {
  KernelCosts costs;
  const Operand here[] = {{kProduct, mebibytes(64), {}}};
  costs.ran(here, 9ms);
  const Operand away[] = {{kProduct, mebibytes(64), mebibytes(64)}};
  costs.ran(away, 4ms);
  CHECK(costs.per_byte(kProduct) == 0.0);
}

TEST_CASE("Operands that are away share the cost of a launch by their sizes") {
  KernelCosts costs;
  const Operand away[] = {{kProduct, mebibytes(64), mebibytes(64)}, {kOther, mebibytes(192), mebibytes(192)}};
  costs.ran(away, 8ms);
  CHECK(milliseconds_for(costs, kProduct, mebibytes(64)) == Approx(2));
  CHECK(milliseconds_for(costs, kOther, mebibytes(64)) == Approx(2));
}

TEST_CASE("Launches are measured at growing distances") {
  KernelCosts costs;
  const Operand away[] = {{kProduct, mebibytes(64), mebibytes(64)}};
  std::vector<int> measured;
  for (int launch = 1; launch <= 100; ++launch)
    if (costs.should_time(away)) measured.push_back(launch);
  CHECK(measured == std::vector{1, 4, 16, 64});
}

TEST_CASE("A kernel is measured on the GPU only after it has run with an operand away") {
  KernelCosts costs;
  const Operand here[] = {{kProduct, mebibytes(64), {}}};
  CHECK_FALSE(costs.should_time(here));
  const Operand away[] = {{kProduct, mebibytes(64), mebibytes(64)}};
  costs.ran(away, 1ms);
  CHECK(costs.should_time(here));
}

TEST_CASE("The number of known kernels is bounded") {
  KernelCosts costs;
  for (std::uintptr_t kernel = 0; kernel < KernelCosts::kMostKeys + 10; ++kernel) {
    const Operand away[] = {{{.kernel = kernel, .word = 0}, mebibytes(1), mebibytes(1)}};
    costs.ran(away, 1ms);
  }
  CHECK(costs.per_byte({.kernel = KernelCosts::kMostKeys - 1, .word = 0}));
  CHECK_FALSE(costs.per_byte({.kernel = KernelCosts::kMostKeys, .word = 0}));
}

TEST_CASE("A debt grows while the handle is used again soon, and begins anew otherwise") {
  Debts debts;
  const Bytes window = mebibytes(100);
  debts.launch(mebibytes(60));
  CHECK(debts.add(1, 5, window) == 5);
  debts.launch(mebibytes(60));
  CHECK(debts.add(1, 5, window) == 10);
  debts.launch(mebibytes(60));
  debts.launch(mebibytes(60));
  CHECK(debts.add(1, 5, window) == 5);
  CHECK(debts.add(2, 7, window) == 7);
  debts.clear(1);
  CHECK(debts.add(1, 1, window) == 1);
}

TEST_CASE("The number of debts is bounded") {
  Debts debts;
  for (std::uint64_t handle = 0; handle < Debts::kMostDebts; ++handle) debts.add(handle, 1, mebibytes(1));
  CHECK(debts.add(0, 1, mebibytes(1)) == 1);
}

}  // namespace sharedgpu
