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
  std::size_t learned = 0;  // the number of needs at the beginning (in most generated traces two cycles) that
                            // do not count, since a policy learns from them
};

// The sum of the sizes of all handles.
Bytes footprint(const Trace& trace);
// The size of the largest handle.
Bytes largest(const Trace& trace);

// The programs that bench_eviction_order replays.
std::vector<Trace> programs();

// A cycle of random length that is repeated `cycles` times. A cycle needs each of `handles` handles one to
// three times. `sizes`: true if the handles have different sizes; otherwise each has 64 MiB.
Trace random_cycles(std::uint64_t seed, unsigned handles, unsigned cycles, bool sizes);

// Reads or writes a trace with one line for each need: the handle and its size in bytes, as decimal numbers.
// A line "learned" ends the needs that do not count. Lines that begin with # are comments.
// For any other line, read() throws std::runtime_error with `name` and the number of the line.
Trace read(std::istream& in, const std::string& name);
void write(std::ostream& out, const Trace& trace);

}  // namespace sharedgpu::needs
