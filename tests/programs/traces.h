// SPDX-License-Identifier: Apache-2.0
// What a process looks like from outside: for tests that look for traces of ours in a program.
#pragma once

#include <iosfwd>

namespace sharedgpu::programs {

// In sections that begin with a line of their own: maps, files (descriptors and what they are), process
// (signals, umask, limits, locale), threads, environment.
void print_traces(std::ostream& out);

}  // namespace sharedgpu::programs
