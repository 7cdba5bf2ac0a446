// SPDX-License-Identifier: Apache-2.0
// Another library of the program. It looks up the next definition of a function, as profilers and allocators
// do, and defines a function with a name of the driver, as some frameworks do.
#define _GNU_SOURCE
#include <dlfcn.h>

// Volatile prevents tail calls, which would hide the caller.
void* neighbour_next(const char* name) {
  void* volatile found = dlsym(RTLD_NEXT, name);
  return found;
}
void* neighbour_default(const char* name) {
  void* volatile found = dlsym(RTLD_DEFAULT, name);
  return found;
}
int neighbour_only(void) { return 5; }
int cuDeviceTotalMem_v2(void) { return 4711; }
