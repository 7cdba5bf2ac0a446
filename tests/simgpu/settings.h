// SPDX-License-Identifier: Apache-2.0
// The settings of the simulated device, from the environment. tests/simgpu/README.md lists every variable.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu::simgpu {

inline constexpr unsigned kMostDevices = 8;

// Call number `first` of `function` returns `error`; if `onwards`, all later calls do, too.
struct CallFault {
  std::string function;  // without version and stream suffix: cuMemAlloc, not cuMemAlloc_v2
  std::uint64_t first = 1;
  bool onwards = false;
  CUresult error = CUDA_ERROR_UNKNOWN;
};

struct Settings {
  std::string state;  // SIMGPU_STATE
  std::string board;  // SIMGPU_BOARD
  unsigned devices = 1;
  bool peer_access = true;         // devices may be allowed to access each other's memory
  bool concurrent_managed = true;  // the GPU and the program may use managed memory at the same time
  Bytes memory = gibibytes(1);
  Bytes context = mebibytes(16);
  double pcie = 12e9;        // bytes per second and direction; 0: copies take no modelled time
  double bandwidth = 200e9;  // bytes per second of device memory; 0: no modelled time
  Nanoseconds launch{5000};  // a kernel takes this time in addition to its accesses to memory
  double slowdown = 1;       // multiplies every modelled time
  // Work fails if it uses memory that other work uses at the same time, and one of the two writes.
  bool forbid_conflicts = false;
  bool verbose = false;
  bool nvml_events = true;  // NVML reports errors by events
  std::vector<CallFault> call_faults;
  std::uint64_t allocation_fault = 0;  // the n-th allocation finds no memory; 0: none
  std::uint64_t launch_fault = 0;      // the n-th launch fails on the device; 0: none
  std::uint64_t lost_after = 0;        // the process loses all devices after n calls; 0: never
  std::string lost_file;               // the process loses all devices once this file exists; empty: never
};

// Reads the environment. On failure returns false and `problem` names the variable and the value.
bool read_settings(Settings& settings, std::string& problem);

// Parses a size such as "512MiB", "1GiB" or "4096". Returns false if `text` is no size.
bool parse_size(const std::string& text, Bytes& size);

}  // namespace sharedgpu::simgpu
