// SPDX-License-Identifier: Apache-2.0
// Uses libcuda.so.1 as a plug-in does: opens it, uses it through dlsym, closes it, and opens it again, in the
// main thread and in a new thread alternately. With --resolver, this program looks up only cuGetProcAddress
// by dlsym, and all other functions by cuGetProcAddress, as the CUDA runtime does. This program is not linked
// with libcuda.so.1.
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
bool by_resolver = false;

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
    void* found = handle == nullptr ? nullptr : by_resolver ? resolve(name) : dlsym(handle, name);
    int result = found == nullptr ? -1 : reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
    if (result == 0) return;
    std::fprintf(stderr, "library: %s: error %d %s\n", name, result, found == nullptr ? "(not found)" : "");
    ++failures;
  }

 private:
  // Looks up a name such as "cuMemAlloc_v2". cuGetProcAddress gets the name and the version separately.
  void* resolve(std::string name) const {
    using Resolve = int(const char*, void**, int, unsigned long long, int*);
    auto* resolve = reinterpret_cast<Resolve*>(dlsym(handle, "cuGetProcAddress_v2"));
    if (std::size_t version = name.find("_v"); version != name.npos) name.resize(version);
    void* found = nullptr;
    return resolve != nullptr && resolve(name.c_str(), &found, 12000, 0, nullptr) == 0 ? found : nullptr;
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
  app.add_flag("--resolver", by_resolver, "look functions up by cuGetProcAddress alone");
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
