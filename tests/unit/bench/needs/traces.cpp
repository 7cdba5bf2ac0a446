// SPDX-License-Identifier: Apache-2.0
#include "bench/needs/traces.h"

#include <catch2/catch.hpp>
#include <sstream>

using namespace sharedgpu;
using namespace sharedgpu::needs;

TEST_CASE("a written trace can be read", "[traces]") {
  for (const Trace& trace : programs()) {
    std::stringstream file;
    write(file, trace);
    const Trace again = read(file, "file");
    CHECK(again.needs.size() == trace.needs.size());
    CHECK(footprint(again) == footprint(trace));
    CHECK(again.learned == trace.learned);
  }
}

TEST_CASE("comments are skipped, and the line `learned` ends the needs that do not count", "[traces]") {
  std::istringstream file("# sizes in bytes\n1 2\nlearned\n# again\n1 2\n");
  const Trace trace = read(file, "file");
  CHECK(trace.needs.size() == 2);
  CHECK(trace.learned == 1);
}

TEST_CASE("a line that is no need is an error with its number", "[traces]") {
  for (const char* line : {"", "1", "1 0", "1 2 3", "a 2", "1 b"}) {
    std::istringstream file(std::string("1 2\n") + line + "\n");
    CHECK_THROWS_WITH(read(file, "file"), Catch::Matchers::StartsWith("file:2: "));
  }
}

TEST_CASE("programs leave needs after those of the first two cycles", "[traces]") {
  for (const Trace& trace : programs()) {
    CAPTURE(trace.name);
    CHECK(trace.learned > 0);
    CHECK(trace.learned < trace.needs.size());
    CHECK(largest(trace) <= mebibytes(128));
  }
}
