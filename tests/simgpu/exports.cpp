// SPDX-License-Identifier: Apache-2.0
// This file does not include cuda.h, since the macros in cuda.h would rename many of the functions in the
// table. The functions are declared by name only. The declarations are weak, since the simulator lacks
// functions that the installed CUDA headers do not declare.
#include "tests/simgpu/exports.h"

#include <cstring>

extern "C" {
#define SIMGPU_EXPORT(name, since, symbol) __attribute__((weak)) void symbol();
#define SIMGPU_EXPORT_BOTH(name, since, symbol, per_thread_since, per_thread) \
  __attribute__((weak)) void symbol();                                        \
  __attribute__((weak)) void per_thread();
#include "tests/simgpu/exports.inc"
#undef SIMGPU_EXPORT
#undef SIMGPU_EXPORT_BOTH
}

namespace sharedgpu::simgpu {
namespace {

#define SIMGPU_EXPORT(name, since, symbol) {#name, reinterpret_cast<void*>(symbol), nullptr, since, 0},
#define SIMGPU_EXPORT_BOTH(name, since, symbol, per_thread_since, per_thread) \
  {#name, reinterpret_cast<void*>(symbol), reinterpret_cast<void*>(per_thread), since, per_thread_since},
const Export kExports[] = {
#include "tests/simgpu/exports.inc"
};

}  // namespace

void* find_export(const char* name, int version, bool per_thread, bool& known) {
  void* found = nullptr;
  int newest = 0;
  known = false;
  for (const Export& candidate : kExports) {
    if (candidate.plain == nullptr || std::strcmp(candidate.name, name) != 0) continue;
    known = true;
    bool own = per_thread && candidate.per_thread != nullptr;
    int since = own ? candidate.per_thread_since : candidate.since;
    if (since > version || since <= newest) continue;
    newest = since;
    found = own ? candidate.per_thread : candidate.plain;
  }
  return found;
}

}  // namespace sharedgpu::simgpu
