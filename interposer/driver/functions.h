// SPDX-License-Identifier: Apache-2.0
// The table of functions.def as types: the driver functions that have wrappers or that the interposer calls.
//
// Needs no cuda.h, so that the table does not depend on the version of the headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sharedgpu::driver {

enum class Function : std::uint16_t {
#define SUBMIT(name, words) name,
#define HOOK(name, class) name,
#define CALLED(name, class) name,
#include "interposer/driver/functions.def"
  count
};

inline constexpr std::size_t kFunctions = static_cast<std::size_t>(Function::count);

struct Entry {
  std::string_view name;
  int words;  // number of arguments of a SUBMIT function; 0 for any other function
};

const Entry& entry(Function function);

// The libraries that export the functions.
enum class Library : std::uint8_t { cuda, nvml };
inline constexpr std::size_t kLibraries = 2;
Library library_of(Function function);

// The function that libcuda.so or libnvidia-ml.so exports under exactly this name; nullopt if it is not in
// the table.
std::optional<Function> find(std::string_view name);

}  // namespace sharedgpu::driver
