// SPDX-License-Identifier: Apache-2.0
// Another library in LD_PRELOAD. It wraps a function of the driver and looks up the function's next
// definition, as profilers do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

// Volatile prevents a tail call, which would hide the caller.
void* wrapper_next(const char* name) {
  void* volatile found = dlsym(RTLD_NEXT, name);
  return found;
}

int cuInit(unsigned flags) {
  int (*next)(unsigned) = (int (*)(unsigned))wrapper_next("cuInit");
  return next == NULL ? -1 : next(flags);
}
