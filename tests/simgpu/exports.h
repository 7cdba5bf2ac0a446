// SPDX-License-Identifier: Apache-2.0
// The table of all exported functions, in which cuGetProcAddress looks up names.
#pragma once

namespace sharedgpu::simgpu {

struct Export {
  const char* name;  // the name without its version
  void* plain;
  void* per_thread;  // the variant for the per-thread default stream; null if none
  int since;         // the CUDA version that introduced this function, 1000 * major + 10 * minor
  int per_thread_since;
};

// The newest version of `name` that CUDA `version` has, or null. `known` is set if the result is null only
// because `version` is older.
void* find_export(const char* name, int version, bool per_thread, bool& known);

}  // namespace sharedgpu::simgpu
