// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/launch_fences.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;
using session::LaunchFences;

namespace {

class SwitchedFence final : public Fence {
 public:
  bool passed() override {
    ++queries;
    return has_passed;
  }
  bool has_passed = false;
  int queries = 0;
};

}  // namespace

TEST_CASE("launches of a stream end in their order, and each end is reported once", "[launch_fences]") {
  constexpr StreamId kOne{1};
  constexpr StreamId kOther{2};
  std::vector<std::shared_ptr<SwitchedFence>> fences;
  for (int i = 0; i < 3; ++i) fences.push_back(std::make_shared<SwitchedFence>());
  LaunchFences launches;
  CHECK(launches.take_ended().empty());
  launches.add(1, kOne, fences[0]);
  launches.add(2, kOne, fences[1]);
  launches.add(3, kOther, fences[2]);
  fences[2]->has_passed = true;
  CHECK(launches.take_ended() == std::vector<LaunchFences::Number>{3});
  CHECK(fences[0]->queries == 1);
  CHECK(fences[1]->queries == 0);
  fences[0]->has_passed = fences[1]->has_passed = true;
  CHECK(launches.take_ended() == std::vector<LaunchFences::Number>{1, 2});
  CHECK(launches.take_ended().empty());
  CHECK(fences[2].use_count() == 1);
}
