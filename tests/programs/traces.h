// SPDX-License-Identifier: Apache-2.0
// The state of a process as seen from outside: for tests that search for traces of the library.
#pragma once

#include <iosfwd>

namespace sharedgpu::programs {

// Prints sections, each with a title line: maps, files (descriptors and their files), process (signals,
// umask, limits, locale), threads, environment.
void print_traces(std::ostream& out);

}  // namespace sharedgpu::programs
