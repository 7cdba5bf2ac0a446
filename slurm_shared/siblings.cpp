// SPDX-License-Identifier: Apache-2.0
#include "slurm_shared/siblings.h"

#include <dlfcn.h>
#include <climits>
#include <cstdlib>

namespace sharedgpu {
namespace {

// Returns the folder of the plugin that contains this code, or the folder `levels` levels above it; empty if
// there is none.
std::string folder(int levels) {
  Dl_info info = {};
  char path[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&folder), &info) == 0 || realpath(info.dli_fname, path) == nullptr)
    return {};
  std::string result = path;
  for (int level = 0; level <= levels; ++level) {
    std::size_t slash = result.rfind('/');
    if (slash == result.npos) return {};
    result.resize(slash);
  }
  return result;
}

std::string prefix() { return folder(2); }

}  // namespace

std::string interposer_path() { return prefix() + "/lib/sharedgpu/libsharedgpu.so"; }
std::string command_path() { return prefix() + "/bin/sharedgpu"; }
std::string comment_path() { return prefix() + "/sbin/sharedgpu-comment"; }

void stay_loaded() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(&stay_loaded), &info) != 0)
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void* sibling_function(const char* file, const char* name, bool for_good) {
  const int stays = for_good ? RTLD_NODELETE : 0;
  void* plugin = dlopen((folder(0) + "/" + file).c_str(), RTLD_LAZY | RTLD_NOLOAD | stays);
  if (plugin == nullptr) return nullptr;
  void* function = dlsym(plugin, name);
  dlclose(plugin);  // not closed: Slurm has loaded the plugin and keeps it open
  return function;
}

}  // namespace sharedgpu
