// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as a trace for the simulator. The result is an error that names the file, or programs
// whose values are within their bounds.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "bench/simulator/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  std::istringstream text(std::string(reinterpret_cast<const char*>(data), size));
  std::vector<Program> programs;
  const std::string error = read_trace(text, "x.csv", programs);
  if (error.empty() ? programs.empty() : !error.starts_with("x.csv:")) std::abort();
  if (!error.empty()) return 0;
  for (const Program& program : programs) {
    const Claims& claims = program.claims;
    if (program.size < 1 || program.size > 100 || program.kernel <= Nanoseconds{}) std::abort();
    for (const Nanoseconds time :
         {program.burst, program.pause, program.arrival, program.work, program.period, claims.deadline})
      if (time < Nanoseconds{} || (time > Nanoseconds{} && time < std::chrono::microseconds(1))) std::abort();
    if (claims.units < 1 || !(claims.request >= 0 && claims.request <= 1) ||
        !(claims.limit > 0 && claims.limit <= 1))
      std::abort();
  }
  return 0;
}
