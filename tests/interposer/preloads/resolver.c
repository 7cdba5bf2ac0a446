// SPDX-License-Identifier: Apache-2.0
// Another library in LD_PRELOAD: wraps dlsym, as GPU quota tools do, and one function of the driver. This
// library counts the calls of the driver's function and forwards each call to the next definition of the
// function.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#else
#define FIRST "GLIBC_2.17"
#endif

typedef void* Resolve(void*, const char*);

static Resolve* next_dlsym;
static int (*next_get_info)(size_t*, size_t*);
static atomic_ulong lookups;
static atomic_ulong passed;

static Resolve* next(void) {
  if (next_dlsym == NULL) *(void**)&next_dlsym = dlvsym(RTLD_NEXT, "dlsym", FIRST);
  return next_dlsym;
}

static int count_get_info(size_t* free_bytes, size_t* total) {
  atomic_fetch_add(&passed, 1);
  return next_get_info(free_bytes, total);
}

void* dlsym(void* handle, const char* name) {
  atomic_fetch_add(&lookups, 1);
  // RTLD_NEXT means the next definition after the library of the caller. When this wrapper calls dlsym, glibc
  // takes this library for the caller.
  void* found = next()(handle, name);
  if (found == NULL || strcmp(name, "cuMemGetInfo_v2") != 0) return found;
  *(void**)&next_get_info = found;
  return (void*)count_get_info;
}

__attribute__((destructor)) static void tell(void) {
  const char* path = getenv("RESOLVER_TELLS");
  FILE* file = path == NULL ? NULL : fopen(path, "a");
  if (file == NULL) return;
  fprintf(file, "%lu lookups, %lu passed\n", atomic_load(&lookups), atomic_load(&passed));
  fclose(file);
}
