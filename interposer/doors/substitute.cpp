// SPDX-License-Identifier: Apache-2.0
#include "interposer/doors/substitute.h"

#include <array>

#include "interposer/driver/real.h"

// The wrappers, by name only: hooks/ knows their types.
extern "C" {
#define SUBMIT(name, words) void name();
#define HOOK(name, class) void name();
#include "interposer/driver/functions.def"
}

namespace sharedgpu::doors {
namespace {

using Code = void (*)();

constexpr std::array<Code, driver::kFunctions> kWrappers = {{
#define SUBMIT(name, words) &::name,
#define HOOK(name, class) &::name,
#define CALLED(name, class) nullptr,
#include "interposer/driver/functions.def"
}};

}  // namespace

void* wrapper(driver::Function function) {
  return reinterpret_cast<void*>(kWrappers[static_cast<std::size_t>(function)]);
}

void* substitute(void* address) {
  auto function = driver::find_address(address);
  if (!function) return address;
  void* ours = wrapper(*function);
  return ours != nullptr ? ours : address;
}

}  // namespace sharedgpu::doors
