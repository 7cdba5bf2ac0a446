// SPDX-License-Identifier: Apache-2.0
// Looks up the next definition of the driver's functions, from this program and from another preloaded
// library. All lookups are made while no driver is loaded, while a driver is loaded with RTLD_LOCAL, and
// while a driver is loaded with RTLD_GLOBAL. Exit status 0: the results are the same as without
// libsharedgpu.so, except for wrappers in place of the driver's functions.
//
//   next plain|before|after DRIVER: wrapper.so is preloaded without libsharedgpu.so, before it, or after it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int failures;
#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      ++failures;                                                                 \
      fprintf(stderr, "next.c:%d, %s: failed: %s\n", __LINE__, when, #condition); \
    }                                                                             \
  } while (0)

static const char* file_of(void* address) {
  Dl_info info;
  return address != NULL && dladdr(address, &info) != 0 ? info.dli_fname : "";
}
static int is_in(const char* file, void* address) { return strstr(file_of(address), file) != NULL; }

static void* next(const char* name) {
  void* volatile found = dlsym(RTLD_NEXT, name);
  return found;
}

static void* (*wrapper_next)(const char*);
static int (*wrapper_init)(unsigned);

static void finds_no_driver(const char* when) {
  dlerror();
  CHECK(next("cuLaunchKernel") == NULL);
  CHECK(dlerror() != NULL);
  CHECK(next("nvmlDeviceGetMemoryInfo") == NULL);
  CHECK(is_in("wrapper", next("cuInit")));
  CHECK(wrapper_next("cuInit") == NULL);
  CHECK(dlerror() != NULL);
  CHECK(wrapper_next("cuLaunchKernel") == NULL);
  CHECK(wrapper_init(0) == -1);
  CHECK(wrapper_next("malloc") != NULL && wrapper_next("malloc") == next("malloc"));
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const char* when = "at first";
  const int plain = strcmp(arguments[1], "plain") == 0;
  const int before = strcmp(arguments[1], "before") == 0;
  wrapper_next = (void* (*)(const char*))dlsym(RTLD_DEFAULT, "wrapper_next");
  CHECK(wrapper_next != NULL);
  if (wrapper_next == NULL) return 2;
  wrapper_init =
      (int (*)(unsigned))dlsym(dlopen(file_of((void*)wrapper_next), RTLD_NOW | RTLD_NOLOAD), "cuInit");
  CHECK(is_in("wrapper", (void*)wrapper_init));

  finds_no_driver("without a driver");
  CHECK(dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL) != NULL);
  finds_no_driver("with the driver's names hidden");

  when = "with the driver's names known";
  CHECK(dlopen(arguments[2], RTLD_NOW | RTLD_GLOBAL) != NULL);
  CHECK(is_in(plain ? "libcuda" : "libsharedgpu", next("cuLaunchKernel")));
  CHECK(is_in("libcuda", next("cuStreamQuery")));  // cuStreamQuery has no wrapper
  CHECK(is_in("wrapper", next("cuInit")));
  // In the search order, a library that is preloaded after libsharedgpu.so comes after the interposer's
  // wrappers.
  CHECK(is_in(before ? "libsharedgpu" : "libcuda", wrapper_next("cuInit")));
  CHECK(is_in(before ? "libsharedgpu" : "libcuda", wrapper_next("cuLaunchKernel")));
  return failures == 0 ? 0 : 1;
}
