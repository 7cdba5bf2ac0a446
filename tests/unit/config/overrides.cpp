// SPDX-License-Identifier: Apache-2.0
#include "config/overrides.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

Settings parsed(const char* text) {
  Settings settings;
  REQUIRE(parse_settings(text, "x.conf", settings) == "");
  return settings;
}

Nanoseconds quantum_in(const Settings& settings, const char* partition) {
  return settings_of(settings, 0, {}, partition).quantum;
}

TEST_CASE("Overrides apply over the file, whatever it says later, until they are cleared") {
  Overrides overrides;
  CHECK(overrides.change("Quantum=2s\n") == "");
  CHECK(overrides.change("[partition long]\nQuantum=9s\nMaxWait=1m\n") == "");
  CHECK(overrides.all() == std::vector<Overrides::Entry>{{"", "Quantum", "2s"},
                                                         {"[partition long]", "Quantum", "9s"},
                                                         {"[partition long]", "MaxWait", "1m"}});
  const char* file = "Quantum=5s\n[partition long]\nQuantum=7s\n";
  CHECK(overrides.over(parsed(file)).quantum == 2s);
  CHECK(quantum_in(overrides.over(parsed(file)), "long") == 9s);
  CHECK(overrides.change("[partition long]\nQuantum=\n") == "");
  CHECK(quantum_in(overrides.over(parsed(file)), "long") == 7s);
  CHECK(overrides.change("Quantum=\n") == "");
  CHECK(overrides.over(parsed(file)).quantum == 5s);
  CHECK(overrides.all().size() == 1);
}

TEST_CASE("A key that is set again has its last value, and its last place") {
  Overrides overrides;
  CHECK(overrides.change("Quantum=2s\nPolicy=fcfs\n") == "");
  CHECK(overrides.change("Quantum=3s\n") == "");
  CHECK(overrides.all() == std::vector<Overrides::Entry>{{"", "Policy", "fcfs"}, {"", "Quantum", "3s"}});
}

TEST_CASE("A wrong change changes nothing") {
  Overrides overrides;
  CHECK(overrides.change("Quantum=2s\n") == "");
  for (const char* wrong :
       {"Quantum=never\n", "Socket=/x\n", "None=1\n", "MaxWait=\n", "[gpu x]\nQuantum=1s\n",
        "Quantum=\nPolicy=best\n", "Quantum\n", "[gpu 0]\nQuantum=\n"})
    CHECK(overrides.change(wrong) != "");
  CHECK(overrides.change("[qos x]\nMaxWait=\n") == "[qos x] MaxWait: nothing is set that could be cleared");
  CHECK(overrides.all() == std::vector<Overrides::Entry>{{"", "Quantum", "2s"}});
}

}  // namespace
}  // namespace sharedgpu
