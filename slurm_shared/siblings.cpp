// SPDX-License-Identifier: Apache-2.0
#include "slurm_shared/siblings.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace sharedgpu {
namespace {

std::string_view parent(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? std::string_view() : path.substr(0, slash);
}

// Returns the folder of the plugin that contains this code; empty if the folder is unknown.
std::string folder() {
  Dl_info info = {};
  char path[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&folder), &info) == 0 || realpath(info.dli_fname, path) == nullptr)
    return {};
  return std::string(parent(path));
}

}  // namespace

std::string find_above(std::string_view start, std::string_view file) {
  std::string guess;
  for (std::string_view above = parent(start); !above.empty(); above = parent(above)) {
    std::string path = std::string(above) + "/" + std::string(file);
    if (access(path.c_str(), F_OK) == 0) return path;
    if (above == parent(parent(start))) guess = path;
  }
  return guess;
}

std::string interposer_path() { return find_above(folder(), "lib/sharedgpu/libsharedgpu.so"); }
std::string command_path() { return find_above(folder(), "bin/sharedgpu"); }
std::string comment_path() { return find_above(folder(), "sbin/sharedgpu-comment"); }

void stay_loaded() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(&stay_loaded), &info) != 0)
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void* sibling_function(const char* file, const char* name, bool for_good) {
  const int stays = for_good ? RTLD_NODELETE : 0;
  void* plugin = dlopen((folder() + "/" + file).c_str(), RTLD_LAZY | RTLD_NOLOAD | stays);
  if (plugin == nullptr) return nullptr;
  void* function = dlsym(plugin, name);
  dlclose(plugin);  // does not unload the plugin, since Slurm has loaded it, too
  return function;
}

}  // namespace sharedgpu
