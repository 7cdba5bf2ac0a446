// SPDX-License-Identifier: Apache-2.0
// Looks up the driver's functions in all the ways that programs use, and calls them.
#include <dlfcn.h>

#include <cstdio>
#include <functional>
#include <map>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

using Resolver = std::function<void*(const char* name, const char* symbol)>;

constexpr int kVersion = 12000;

// Looks up the version of function `name` that belongs to CUDA 12. The library exports it as `symbol`.
template <class F>
F* get(const Resolver& resolve, const char* name, const char* symbol) {
  void* found = resolve(name, symbol);
  if (found == nullptr) fail(std::string(symbol) + " was not found");
  return reinterpret_cast<F*>(found);
}

constexpr std::size_t kBytes = std::size_t{8} << 20;

void use_door(const char* door, const Resolver& resolve, CUfunction fill) {
  auto* allocate = get<CUresult(CUdeviceptr*, std::size_t)>(resolve, "cuMemAlloc", "cuMemAlloc_v2");
  auto* release = get<CUresult(CUdeviceptr)>(resolve, "cuMemFree", "cuMemFree_v2");
  auto* launch_kernel =
      get<CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                   void**, void**)>(resolve, "cuLaunchKernel", "cuLaunchKernel");
  auto* copy = get<CUresult(void*, CUdeviceptr, std::size_t)>(resolve, "cuMemcpyDtoH", "cuMemcpyDtoH_v2");
  auto* synchronize = get<CUresult()>(resolve, "cuCtxSynchronize", "cuCtxSynchronize");

  CUdeviceptr memory = 0;
  check(allocate(&memory, kBytes), "cuMemAlloc");
  std::uint64_t words = kBytes / 8, seed = 5, first = 0;
  void* parameters[] = {&memory, &words, &seed, &first};
  check(launch_kernel(fill, 64, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr), "cuLaunchKernel");
  check(synchronize(), "cuCtxSynchronize");
  std::uint64_t last = 0, mine = 0;
  check(copy(&last, memory + kBytes - 8, 8), "cuMemcpyDtoH");
  check(cuMemcpyDtoH(&mine, memory + kBytes - 8, 8), "cuMemcpyDtoH");
  if (last != mine) fail("two doors lead to different memory");
  check(release(memory), "cuMemFree");
  std::printf("getproc: %s ok\n", door);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Gets the driver's functions through every door and uses them.");
  app.parse(argc, argv);
  start();
  Kernels kernels;
  CUfunction fill = kernels["pattern_fill"];

  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  use_door(
      "dlsym", [&](const char*, const char* symbol) { return dlsym(library, symbol); }, fill);

  using OldLookup = CUresult(const char*, void**, int, cuuint64_t);
  auto* old_lookup = reinterpret_cast<OldLookup*>(dlsym(library, "cuGetProcAddress"));
  if (old_lookup == nullptr) fail("cuGetProcAddress was not found");
  auto by_old = [&](cuuint64_t flags) {
    return [=](const char* name, const char*) {
      void* found = nullptr;
      check(old_lookup(name, &found, kVersion, flags), name);
      return found;
    };
  };
  use_door("cuGetProcAddress, 4 arguments", by_old(0), fill);

  using NewLookup = CUresult(const char*, void**, int, cuuint64_t, int*);
  auto* new_lookup = reinterpret_cast<NewLookup*>(dlsym(library, "cuGetProcAddress_v2"));
  if (new_lookup == nullptr) fail("cuGetProcAddress_v2 was not found");
  auto by_new = [&](cuuint64_t flags) {
    return [=](const char* name, const char*) {
      void* found = nullptr;
      int status = -1;
      check(new_lookup(name, &found, kVersion, flags, &status), name);
      if (status != 0) fail(std::string(name) + " has a bad query result");
      return found;
    };
  };
  use_door("cuGetProcAddress_v2", by_new(0), fill);
  use_door("cuGetProcAddress_v2, per-thread default stream", by_new(2), fill);

  // Looks up cuGetProcAddress by a call of cuGetProcAddress, as the CUDA runtime does.
  void* inner = nullptr;
  check(old_lookup("cuGetProcAddress", &inner, kVersion, 0), "cuGetProcAddress");
  auto* inner_lookup = reinterpret_cast<NewLookup*>(inner);
  use_door(
      "cuGetProcAddress by cuGetProcAddress",
      [&](const char* name, const char*) {
        void* found = nullptr;
        int status = -1;
        check(inner_lookup(name, &found, kVersion, 0, &status), name);
        return found;
      },
      fill);

  void* nothing = &nothing;
  int status = -1;
  CUresult missing = new_lookup("cuNoSuchFunction", &nothing, kVersion, 0, &status);
  if (missing != CUDA_SUCCESS || status != 1 || nothing != nullptr)
    fail("a function that does not exist was found");
  if (old_lookup("cuNoSuchFunction", &nothing, kVersion, 0) != CUDA_ERROR_NOT_FOUND)
    fail("a function that does not exist was found by the old lookup");
  return 0;
}
