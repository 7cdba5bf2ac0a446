// SPDX-License-Identifier: Apache-2.0
#include "protocol/step_names.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

TEST_CASE("Each step is read by the name that it is written with") {
  for (const std::uint32_t step : {0u, 12u, kBatchStep, kExternStep, kInteractiveStep, 0xffffffffu})
    CHECK(parse_step(format_step(step)) == step);
  CHECK(format_step(kExternStep) == "extern");
  CHECK(format_step(kInteractiveStep) == "interactive");
  for (const char* none : {"", "-1", "Batch", "4294967296", "1 "}) CHECK_FALSE(parse_step(none));
}

}  // namespace
}  // namespace sharedgpu
