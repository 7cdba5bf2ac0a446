// SPDX-License-Identifier: Apache-2.0
#include "interposer/driver/real.h"

#include <dlfcn.h>

#include <array>
#include <atomic>

#include "interposer/driver/musl.h"

namespace sharedgpu::driver {
namespace {

constexpr const char* kNames[kLibraries] = {"libcuda.so.1", "libnvidia-ml.so.1"};

// These variables are filled once. Several threads may fill them at the same time with the same values, so
// they need no lock. A fork could leave a lock held for ever.
constinit std::array<std::atomic<void*>, kFunctions> addresses{};
constinit std::array<std::atomic<bool>, kLibraries> loaded{};
constinit std::atomic<Dlsym> next_dlsym{nullptr};

std::atomic<bool>& is_loaded(Library library) { return loaded[static_cast<std::size_t>(library)]; }

bool fill(Library library, void* handle) {
  if (handle == nullptr) return false;
  Dlsym resolve = real_dlsym();
  for (std::size_t i = 0; i < kFunctions; ++i) {
    auto function = static_cast<Function>(i);
    if (library_of(function) == library)
      addresses[i].store(resolve(handle, entry(function).name.data()), std::memory_order_relaxed);
  }
  is_loaded(library).store(true, std::memory_order_release);
  return true;
}

bool load(Library library, int flags) {
  return is_loaded(library).load(std::memory_order_acquire) ||
         fill(library, dlopen(kNames[static_cast<std::size_t>(library)], RTLD_LAZY | flags));
}

void* address_of(Function function) {
  return addresses[static_cast<std::size_t>(function)].load(std::memory_order_relaxed);
}

}  // namespace

Dlsym real_dlsym() {
  Dlsym found = next_dlsym.load(std::memory_order_relaxed);
  if (found != nullptr) return found;
    // Looks up dlsym with its version, since a plain dlsym("dlsym") would find our own dlsym. The versions
    // below are the first versions of glibc's dlsym.
#if defined(__x86_64__)
  constexpr char kVersion[] = "GLIBC_2.2.5";
#elif defined(__aarch64__)
  constexpr char kVersion[] = "GLIBC_2.17";
#else
#error "which version has dlsym here?"
#endif
  found = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", kVersion));
  if (found == nullptr) found = reinterpret_cast<Dlsym>(find_in_musl("dlsym"));
  next_dlsym.store(found, std::memory_order_relaxed);
  return found;
}

void* real(Function function) {
  void* found = address_of(function);
  if (found == nullptr && load(library_of(function), 0)) found = address_of(function);
  return found;
}

void* real_if_loaded(Function function) {
  return load(library_of(function), RTLD_NOLOAD) ? address_of(function) : nullptr;
}

std::optional<Function> find_address(const void* address) {
  if (address == nullptr || !load(Library::cuda, RTLD_NOLOAD)) return std::nullopt;
  for (std::size_t i = 0; i < kFunctions; ++i)
    if (addresses[i].load(std::memory_order_relaxed) == address) return static_cast<Function>(i);
  return std::nullopt;
}

void* replace(Function function, void* address) {
  void* before = real(function);
  addresses[static_cast<std::size_t>(function)].store(address, std::memory_order_relaxed);
  return before;
}

void use_library(const char* path) { fill(Library::cuda, dlopen(path, RTLD_NOW)); }

}  // namespace sharedgpu::driver
