// SPDX-License-Identifier: Apache-2.0
#include "config/nearest.h"

#include <catch2/catch.hpp>

#include "config/settings.h"

namespace sharedgpu {
namespace {

TEST_CASE("A misspelled word gets the nearest candidate") {
  const std::vector<std::string_view> keys = settings_keys();
  CHECK(nearest("Quantumm", keys) == "Quantum");
  CHECK(nearest("quantum", keys) == "Quantum");
  CHECK(nearest("max-wait", keys) == "MaxWait");
  CHECK(nearest("Polciy", keys) == "Policy");
  CHECK(nearest("SwapPrUnit", keys) == "SwapPerUnit");
  CHECK(did_you_mean("stauts", {"status", "set"}) == "; did you mean status?");
}

TEST_CASE("A word that resembles none, or two alike, gets no candidate") {
  CHECK(nearest("Frobnicate", settings_keys()).empty());
  CHECK(nearest("", settings_keys()).empty());
  CHECK(nearest("x", {"status"}).empty());
  CHECK(nearest("rux", {"run", "rut"}).empty());
  CHECK(nearest(std::string(1000, 'a'), {"a"}).empty());
  CHECK(did_you_mean("none", {"status", "set"}).empty());
}

}  // namespace
}  // namespace sharedgpu
