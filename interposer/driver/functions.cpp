// SPDX-License-Identifier: Apache-2.0
#include "interposer/driver/functions.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace sharedgpu::driver {
namespace {

constexpr std::array<Entry, kFunctions> kEntries = {{
#define SUBMIT(name, words) {#name, words},
#define HOOK(name, class) {#name, 0},
#define CALLED(name, class) {#name, 0},
#include "interposer/driver/functions.def"
}};

// All functions, by name.
constexpr std::array<Function, kFunctions> sorted() {
  std::array<Function, kFunctions> order = {};
  for (std::size_t i = 0; i < kFunctions; ++i) order[i] = static_cast<Function>(i);
  std::ranges::sort(order, {}, [](Function f) { return kEntries[static_cast<std::size_t>(f)].name; });
  return order;
}
constexpr std::array<Function, kFunctions> kByName = sorted();
static_assert(std::ranges::adjacent_find(kByName, {},
                                         [](Function f) {
                                           return kEntries[static_cast<std::size_t>(f)].name;
                                         }) == kByName.end(),
              "a function is in functions.def twice");

}  // namespace

const Entry& entry(Function function) { return kEntries[static_cast<std::size_t>(function)]; }

Library library_of(Function function) {
  return entry(function).name.starts_with("nvml") ? Library::nvml : Library::cuda;
}

std::optional<Function> find(std::string_view name) {
  const auto* found = std::ranges::lower_bound(kByName, name, {}, [](Function f) { return entry(f).name; });
  if (found == kByName.end() || entry(*found).name != name) return std::nullopt;
  return *found;
}

}  // namespace sharedgpu::driver
