// SPDX-License-Identifier: Apache-2.0
#include "config/host_name.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <climits>
#include <string>

using namespace sharedgpu;

TEST_CASE("the name of the host has no domain") {
  char whole[HOST_NAME_MAX + 1] = {};
  REQUIRE(gethostname(whole, sizeof whole - 1) == 0);
  const std::string name = host_name();
  CHECK_FALSE(name.empty());
  CHECK(name.find('.') == std::string::npos);
  CHECK((std::string(whole) + ".").starts_with(name + "."));
}
