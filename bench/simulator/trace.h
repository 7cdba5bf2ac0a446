// SPDX-License-Identifier: Apache-2.0
// Traces of programs for the simulator: CSV, a line each, the columns named in the first one.
//
//   arrival_s  when it comes; default 0
//   size       percent of the GPU's memory, 1 to 100
//   burst_s    for how long it works between pauses, on average; default 0: it always works
//   pause_s    and pauses
//   work_s     on the GPU until it ends; default 0: it never does
//   period_s   a burst, of exactly burst_s, comes so often, and is left out while the last one is not done;
//              default 0: as above
//   deadline_s    of each such burst; default 0: none
//   kernel_s   the longest kernel; default 0.005
//   units, priority   default 1 and 0
//   request, limit    percent of the GPU's time, as stated; default: none
//
// Times are 0, or from a microsecond to 1e8 seconds. Lines that are empty or begin with # are passed over.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "bench/simulator/stage.h"

namespace sharedgpu {

// Returns an empty string, or what is wrong: "NAME:LINE: ...".
std::string read_trace(std::istream& text, const std::string& name, std::vector<Program>& programs);

}  // namespace sharedgpu
