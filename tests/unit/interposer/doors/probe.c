// SPDX-License-Identifier: Apache-2.0
// Looks up functions in all ways that programs use (the doors), with libsharedgpu.so preloaded, and checks
// the results. Exit status 0: all results are right.
//
// Comments name the faults of other interposers that a check would have found.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;
#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) {                                                  \
      ++failures;                                                        \
      fprintf(stderr, "probe.c:%d: failed: %s\n", __LINE__, #condition); \
    }                                                                    \
  } while (0)

typedef int Launch(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**);
typedef int Resolve4(const char*, void**, int, uint64_t);
typedef int Resolve5(const char*, void**, int, uint64_t, int*);

// Returns the file that contains the code or data at `address`.
static const char* file_of(void* address) {
  Dl_info info;
  return address != NULL && dladdr(address, &info) != 0 ? info.dli_fname : "";
}
static int is_ours(void* address) { return strstr(file_of(address), "libsharedgpu") != NULL; }
static int is_driver(void* address) { return strstr(file_of(address), "libcuda.so.1") != NULL; }

// Declared as in a program that is linked with the driver. If no driver is loaded, only the preloaded library
// has the function.
extern int cuGetProcAddress_v2(const char*, void**, int, uint64_t, int*) __attribute__((weak));

// Runs `check` in a child process, and returns true if the child ends with status 0.
static int in_child(int (*check)(void)) {
  pid_t child = fork();
  if (child == 0) _exit(check());
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

static int asks_before_the_driver(void) {
  void* address = NULL;
  int status = -1;
  int result = cuGetProcAddress_v2("cuInit", &address, 12000, 0, &status);
  return result == 500 || address != NULL ? 0 : 1;  // if this machine has a driver, the driver answers
}

static int threads(void) {
  FILE* status = fopen("/proc/self/status", "r");
  char line[256];
  int count = -1;
  while (fgets(line, sizeof line, status) != NULL) sscanf(line, "Threads: %d", &count);
  fclose(status);
  return count;
}

static int sockets(void) {
  int count = 0;
  for (int fd = 0; fd < 64; ++fd) {
    char path[32];
    char target[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "socket:", 7) == 0) ++count;
  }
  return count;
}

static void before_the_driver(void) {
  CHECK(is_ours((void*)dlsym) || dlsym(RTLD_DEFAULT, "dlsym") != NULL);
  CHECK(dlsym(RTLD_DEFAULT, "cuLaunchKernel") == NULL);  // the same result as without libsharedgpu.so
  CHECK(dlerror() != NULL);
  CHECK(dlsym(NULL, "malloc") != NULL);
  CHECK(dlsym(RTLD_DEFAULT, "no_such_function") == NULL);
  CHECK(dlerror() != NULL);
  CHECK(dlsym(RTLD_NEXT, "cuda_is_not_here") == NULL);
  // Issue 20 of vcuda-controller: its cuGetProcAddress called a null pointer before the library was
  // initialized.
  CHECK(is_ours((void*)cuGetProcAddress_v2));
  CHECK(in_child(asks_before_the_driver));
}

// If the program has looked up no wrapped function in the driver, closing the driver unloads it.
static void closes_what_it_only_looked_at(const char* path) {
  void* driver = dlopen(path, RTLD_NOW);
  CHECK(driver != NULL && is_driver(dlsym(driver, "cuDriverGetVersion")));
  CHECK(dlclose(driver) == 0);
  CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL);
  CHECK(dlsym(RTLD_DEFAULT, "cuLaunchKernel") == NULL);
}

// Functions that the program looked up earlier call the driver that is loaded now.
static void closes_and_opens_again(void* driver, const char* path) {
  Launch* launch = (Launch*)dlsym(driver, "cuLaunchKernel");
  Resolve5* resolve = (Resolve5*)dlsym(driver, "cuGetProcAddress_v2");
  CHECK(dlclose(driver) == 0);
  CHECK(launch(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == 77);  // libsharedgpu.so keeps the driver loaded
  void* again = dlopen(path, RTLD_NOW);
  CHECK(again != NULL);
  int* calls = (int*)dlsym(again, "fake_calls_plain");
  const int before = *calls;
  void* address = NULL;
  CHECK(dlsym(again, "cuLaunchKernel") == (void*)launch);
  CHECK(resolve("cuLaunchKernel", &address, 12000, 0, NULL) == 0 && address == (void*)launch);
  CHECK(launch(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == 77);
  CHECK(*calls == before + 1);
}

static void by_dlsym(void* driver) {
  Launch* launch = (Launch*)dlsym(driver, "cuLaunchKernel");
  CHECK(is_ours((void*)launch));
  CHECK(is_ours(dlsym(driver, "cuInit")));
  CHECK(is_driver(dlsym(driver, "cuStreamQuery")));       // cuStreamQuery has no wrapper
  CHECK(is_driver(dlsym(driver, "cuDriverGetVersion")));  // cuDriverGetVersion is not in the table
  CHECK(dlsym(driver, "cuMemcpyBatchAsync_v2") == NULL);  // this driver does not have the function
  CHECK(dlerror() != NULL);
  CHECK(is_ours(dlsym(RTLD_DEFAULT, "cuLaunchKernel_ptsz")));
  CHECK(is_ours(dlsym(dlopen(NULL, RTLD_LAZY), "cuLaunchKernel")));
  // HAMi-core pull request 215: cuDNN 9 passes a null handle, and HAMi-core's dlsym called itself for ever.
  CHECK(dlsym(NULL, "cuLaunchKernel") == (void*)launch);
  CHECK(dlsym(NULL, "dlsym") == (void*)dlsym);
  // Issue 52 of HAMi-core: the driver hung in a wrapped cuGetExportTable, which programs call before cuInit.
  int (*export_table)(const void**, const void*) =
      (int (*)(const void**, const void*))dlsym(driver, "cuGetExportTable");
  CHECK(is_driver((void*)export_table));
  const void* table = NULL;
  CHECK(export_table(&table, driver) == 80 && table == driver);

  int* calls = (int*)dlsym(driver, "fake_calls_plain");
  uintptr_t* words = (uintptr_t*)dlsym(driver, "fake_words");
  *calls = 0;
  CHECK(launch((void*)1, 2, 3, 4, 5, 6, 7, 8, (void*)9, (void**)10, (void**)11) == 77);
  CHECK(*calls == 1);
  for (uintptr_t i = 0; i < 11; ++i) CHECK(words[i] == i + 1);
  int (*set)(uintptr_t, unsigned char, size_t) =
      (int (*)(uintptr_t, unsigned char, size_t))dlsym(driver, "cuMemsetD8_v2");
  CHECK(is_ours((void*)set));
  CHECK(set(0x7fff12345678, 0xfe, (size_t)1 << 40) == 0);
  CHECK(words[0] == 0x7fff12345678 && words[1] == 0xfe && words[2] == (uintptr_t)1 << 40);
}

// Issue 11 of nvshare: CUDA 12 calls only the second form of cuGetProcAddress, so programs ran unmanaged.
// Issues 21 of xsched and 57 of HAMi-core: each version of a function and its per-thread variant must get a
// wrapper of its own.
static void by_get_proc_address(void* driver) {
  Resolve4* four = (Resolve4*)dlsym(driver, "cuGetProcAddress");
  Resolve5* five = (Resolve5*)dlsym(driver, "cuGetProcAddress_v2");
  CHECK(is_ours((void*)four));
  CHECK(is_ours((void*)five));
  void* address = (void*)1;
  int status = -1;
  CHECK(five("", &address, 12000, 0, &status) == 500);
  CHECK(status == 1);
  CHECK(five("", &address, 12000, 0, NULL) == 500);
  CHECK(five("cuGetProcAddress", &address, 11030, 0, &status) == 0);
  CHECK(address == (void*)four);
  CHECK(four("cuGetProcAddress", &address, 12000, 0) == 0);
  CHECK(address == (void*)five);
  CHECK(five("cuLaunchKernel", &address, 12000, 0, &status) == 0);
  CHECK(address == dlsym(driver, "cuLaunchKernel"));
  CHECK(five("cuLaunchKernel", &address, 12000, 2, &status) == 0);
  CHECK(address == dlsym(driver, "cuLaunchKernel_ptsz"));
  CHECK(is_ours(address));
  CHECK(((Launch*)address)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == 78);
  CHECK(five("cuStreamQuery", &address, 12000, 0, &status) == 0);
  CHECK(is_driver(address));
  CHECK(five("cuMemsetD8", &address, 12000, 0, &status) == 0);
  CHECK(is_ours(address));
  CHECK(five("cuMemsetD8", &address, 2000, 0, &status) == 0);
  CHECK(is_driver(address));  // an address without a wrapper
  CHECK(((int (*)(void))address)() == 79);
}

// Issue 233 and pull request 320 of HAMi-core: cuCtxCreate has other arguments in CUDA 13. Issue 57 of
// HAMi-core: programs got the newest version of a function, whatever version they had requested.
static void by_version(void* driver) {
  Resolve5* resolve = (Resolve5*)dlsym(driver, "cuGetProcAddress_v2");
  uintptr_t* words = (uintptr_t*)dlsym(driver, "fake_words");
  void *second = NULL, *third = NULL, *fourth = NULL, *context = NULL;
  CHECK(resolve("cuCtxCreate", &second, 3020, 0, NULL) == 0);
  CHECK(resolve("cuCtxCreate", &third, 11040, 0, NULL) == 0);
  CHECK(resolve("cuCtxCreate", &fourth, 13000, 0, NULL) == 0);
  CHECK(is_ours(second) && second == dlsym(driver, "cuCtxCreate_v2"));
  CHECK(is_ours(third) && third == dlsym(driver, "cuCtxCreate_v3"));
  CHECK(is_ours(fourth) && fourth == dlsym(driver, "cuCtxCreate_v4"));
  CHECK(((int (*)(void**, unsigned, int))second)(&context, 5, 6) == 0);
  CHECK(context == (void*)2 && words[0] == 2 && words[1] == 5 && words[2] == 6);
  CHECK(((int (*)(void**, void*, int, unsigned, int))third)(&context, (void*)7, 1, 5, 6) == 0);
  CHECK(context == (void*)3 && words[0] == 3 && words[1] == 7 && words[2] == 1 && words[3] == 5 &&
        words[4] == 6);
  CHECK(((int (*)(void**, void*, unsigned, int))fourth)(&context, (void*)8, 5, 6) == 0);
  CHECK(context == (void*)4 && words[0] == 4 && words[1] == 8 && words[2] == 5 && words[3] == 6);
}

// Programs with per-thread default streams get another cuGetProcAddress, which returns the interposer's
// wrappers, too.
static void by_per_thread_resolver(void* driver) {
  Resolve5* resolve = (Resolve5*)dlsym(driver, "cuGetProcAddress_v2");
  void* per_thread = NULL;
  void* address = NULL;
  int status = -1;
  CHECK(resolve("cuGetProcAddress", &per_thread, 12000, 2, &status) == 0);
  CHECK(per_thread != (void*)resolve && is_ours(per_thread));
  CHECK(((Resolve5*)per_thread)("cuLaunchKernel", &address, 12000, 0, &status) == 0);
  CHECK(address == dlsym(driver, "cuLaunchKernel_ptsz"));
  CHECK(is_ours(address));
}

static void by_neighbours(const char* library) {
  void* neighbour = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  CHECK(neighbour != NULL);
  void* (*next)(const char*) = (void* (*)(const char*))dlsym(neighbour, "neighbour_next");
  void* (*standard)(const char*) = (void* (*)(const char*))dlsym(neighbour, "neighbour_default");
  // RTLD_NEXT searches the libraries after the caller. The library `neighbour` was loaded last, so only its
  // own dependencies come after it, and libsharedgpu.so must not be found. HAMi-core pull requests 279 and
  // 315: in `import torch`, RTLD_NEXT found nothing, or the calling library itself.
  CHECK(!is_ours(next("cuLaunchKernel")));
  CHECK(!is_ours(next("dlsym")));
  CHECK(next("dlsym") != NULL);
  CHECK(next("malloc") != NULL && next("malloc") == standard("malloc"));
  CHECK(next("neighbour_only") == NULL);
  CHECK(standard("neighbour_only") == dlsym(neighbour, "neighbour_only"));
  CHECK(is_ours(standard("cuLaunchKernel")));
  // dlsym with the handle of a library finds only functions of this library, even if the driver has functions
  // of the same name. HAMi-core pull request 326: its dlsym ignored the handle.
  CHECK(dlsym(neighbour, "cuLaunchKernel") == NULL);
  int (*own)(void) = (int (*)(void))dlsym(neighbour, "cuDeviceTotalMem_v2");
  CHECK(own != NULL && own() == 4711);
}

static void in_a_child(void* driver) {
  pid_t child = fork();
  if (child == 0) {
    Launch* launch = (Launch*)dlsym(driver, "cuLaunchKernel");
    _exit(launch(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == 77 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  before_the_driver();
  closes_what_it_only_looked_at(arguments[1]);
  void* driver = dlopen(arguments[1], RTLD_NOW);
  CHECK(driver != NULL);
  if (driver == NULL) return 2;
  by_dlsym(driver);
  by_get_proc_address(driver);
  by_version(driver);
  by_per_thread_resolver(driver);
  by_neighbours(arguments[2]);
  in_a_child(driver);
  closes_and_opens_again(driver, arguments[1]);
  // None of these calls has started a session.
  CHECK(threads() == 1);
  CHECK(sockets() == 0);
  return failures == 0 ? 0 : 1;
}
