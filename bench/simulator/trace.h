// SPDX-License-Identifier: Apache-2.0
// Traces of programs for the simulator: CSV with one line per program; the first line names the columns.
//
//   arrival_s  arrival time; default 0
//   size       percent of the GPU's memory, 1 to 100
//   burst_s    average length of the program's bursts of work; default 0: the program always has work
//   pause_s    average length of the pauses between bursts
//   work_s     GPU time until the program ends; default 0: the program never ends
//   period_s   interval at which bursts of exactly burst_s arrive; a burst is skipped if it arrives while
//              another burst is unfinished; default 0: burst_s and pause_s as above
//   deadline_s    deadline of each burst if period_s is set; default 0: no deadline
//   kernel_s   length of the longest kernel; default 0.005
//   units, priority   default 1 and 0
//   request, limit    percent of the GPU's time, as stated by the job; default: none
//
// Times are 0, or from a microsecond to 1e8 seconds. Empty lines and lines that begin with # are skipped.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "bench/simulator/stage.h"

namespace sharedgpu {

// Returns an empty string, or an error: "NAME:LINE: ...".
std::string read_trace(std::istream& text, const std::string& name, std::vector<Program>& programs);

}  // namespace sharedgpu
