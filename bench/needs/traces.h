// SPDX-License-Identifier: Apache-2.0
// Traces of needs: the order in which the launches of a program need handles on the GPU. A trace is read from
// a file or generated. Generated traces are the same on every host.
#pragma once

#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu::needs {

struct Need {
  std::uint64_t handle;
  Bytes size;
};

struct Trace {
  std::string name;
  std::vector<Need> needs;
  std::size_t learned = 0;  // the number of needs in the first two cycles, in which a policy may learn
};

// The sum of the sizes of all handles.
Bytes footprint(const Trace& trace);
// The size of the largest handle.
Bytes largest(const Trace& trace);

// The programs that bench_eviction_order replays.
std::vector<Trace> programs();

// A cycle of random length, which needs each of at most `handles` handles once or several times, and is
// repeated `cycles` times. `sizes`: the handles have different sizes; otherwise all have 64 MiB.
Trace random_cycles(std::uint64_t seed, unsigned handles, unsigned cycles, bool sizes);

// One line for each need: the handle and its size in bytes, as decimal numbers. Throws std::runtime_error,
// with the name and the number of the line, for any other line.
Trace read(std::istream& in, const std::string& name);
void write(std::ostream& out, const Trace& trace);

}  // namespace sharedgpu::needs
