// SPDX-License-Identifier: Apache-2.0
#include "protocol/preload.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

constexpr char kOurs[] = "/opt/sharedgpu/lib/sharedgpu/libsharedgpu.so";
const std::string kWithOurs = std::string("a.so:") + kOurs;

}  // namespace

TEST_CASE("our library is appended once and the user's entries stay") {
  CHECK(with_preload("", kOurs) == kOurs);
  CHECK(with_preload("a.so", kOurs) == kWithOurs);
  CHECK(with_preload("a.so b.so", kOurs) == std::string("a.so b.so:") + kOurs);
  CHECK(with_preload(with_preload("a.so", kOurs), kOurs) == kWithOurs);
  CHECK(with_preload(std::string(kOurs) + " a.so", kOurs) == kWithOurs);
}

TEST_CASE("a copy of our library from another folder is replaced") {
  CHECK(with_preload("/old/lib/libsharedgpu.so:a.so", kOurs) == kWithOurs);
  CHECK(with_preload("libsharedgpu.so", kOurs) == kOurs);
}

TEST_CASE("libraries that merely resemble ours are left alone") {
  CHECK(with_preload("/x/mylibsharedgpu.so", kOurs) == std::string("/x/mylibsharedgpu.so:") + kOurs);
  CHECK(without_preload("/libsharedgpu.so/a.so", kOurs) == "/libsharedgpu.so/a.so");
}

TEST_CASE("our library is taken out again") {
  CHECK(without_preload(kWithOurs, kOurs) == "a.so");
  CHECK(without_preload(kOurs, kOurs).empty());
  CHECK(without_preload(std::string(" : ") + kOurs + ":", kOurs).empty());
  CHECK(without_preload("", kOurs).empty());
}

TEST_CASE("a value without our library is not touched at all") {
  for (const char* value : {"", " a.so::b.so ", "a.so b.so"}) {
    CHECK_FALSE(has_preload(value, kOurs));
    CHECK(without_preload(value, kOurs) == value);
  }
  CHECK(has_preload(kWithOurs, kOurs));
}
