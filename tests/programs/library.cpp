// SPDX-License-Identifier: Apache-2.0
// Takes libcuda.so.1 as a plug-in does: opens it in a thread, uses it through dlsym, closes it, opens it
// again. This program is not linked with it.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/command_line.h"

namespace {

constexpr std::size_t kBytes = std::size_t{24} << 20;
int failures = 0;

struct Library {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  ~Library() {
    if (handle != nullptr && dlclose(handle) != 0) ++failures;
  }
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Calls a function that returns a CUresult.
  template <class... Arguments>
  void operator()(const char* name, Arguments... arguments) const {
    void* found = handle == nullptr ? nullptr : dlsym(handle, name);
    int result = found == nullptr ? -1 : reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
    if (result == 0) return;
    std::fprintf(stderr, "library: %s: error %d %s\n", name, result, found == nullptr ? "(not found)" : "");
    ++failures;
  }
};

using Address = unsigned long long;

void use_once(unsigned char value) {
  Library cuda;
  void* context = nullptr;
  Address memory = 0;
  cuda("cuInit", 0u);
  cuda("cuDevicePrimaryCtxRetain", &context, 0);
  cuda("cuCtxSetCurrent", context);
  cuda("cuMemAlloc_v2", &memory, kBytes);
  cuda("cuMemsetD8_v2", memory, value, kBytes);
  std::vector<unsigned char> seen(kBytes);
  cuda("cuMemcpyDtoH_v2", static_cast<void*>(seen.data()), memory, kBytes);
  if (seen != std::vector<unsigned char>(kBytes, value)) {
    std::fprintf(stderr, "library: wrong data\n");
    ++failures;
  }
  cuda("cuMemFree_v2", memory);
  cuda("cuDevicePrimaryCtxRelease_v2", 0);
}

}  // namespace

int main(int argc, char** argv) {
  sharedgpu::programs::CommandLine app("Opens, uses and closes libcuda.so.1 again and again.");
  unsigned rounds = 20;
  app.add_option("--rounds", rounds, "how often");
  app.parse(argc, argv);
  if (Library cuda; cuda.handle == nullptr) {
    std::fprintf(stderr, "library: %s\n", dlerror());
    return 1;
  }
  for (unsigned i = 0; i < rounds && failures == 0; ++i) {
    if (i % 2 == 0)
      use_once(static_cast<unsigned char>(i));
    else
      std::thread(use_once, static_cast<unsigned char>(i)).join();
  }
  if (failures == 0) std::printf("library: opened, used and closed %u times\n", rounds);
  return failures == 0 ? 0 : 1;
}
