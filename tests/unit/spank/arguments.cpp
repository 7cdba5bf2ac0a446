// SPDX-License-Identifier: Apache-2.0
#include "spank/arguments.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace sharedgpu;

namespace {

std::string parse(const std::vector<const char*>& values, Arguments& arguments) {
  return parse_arguments(static_cast<int>(values.size()), values.data(), arguments);
}

}  // namespace

TEST_CASE("the plugin's arguments in plugstack.conf") {
  Arguments arguments;
  SECTION("none") {
    CHECK(parse({}, arguments).empty());
    CHECK(arguments.config.empty());
  }
  SECTION("a configuration file") {
    CHECK(parse({"config=/a/b.conf"}, arguments).empty());
    CHECK(arguments.config == "/a/b.conf");
  }
  SECTION("an unknown one is named, and the others still count") {
    CHECK(parse({"colour=red", "config=/a", "x"}, arguments) ==
          "plugstack.conf: unknown argument 'colour=red' (only config=FILE is known)");
    CHECK(arguments.config == "/a");
  }
  SECTION("a relative or empty path") {
    CHECK(parse({"config=a.conf"}, arguments) == "plugstack.conf: config: 'a.conf' is not an absolute path");
    CHECK(parse({"config="}, arguments) == "plugstack.conf: config: '' is not an absolute path");
    CHECK(arguments.config.empty());
  }
}
