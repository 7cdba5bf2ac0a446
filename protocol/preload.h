// SPDX-License-Identifier: Apache-2.0
// Edits of LD_PRELOAD. Pure.
//
// The loader takes spaces and colons as separators. Our library is known by its file name, so that a value
// that leaked from another installation or from a batch step never loads it twice.
#pragma once

#include <string>
#include <string_view>

namespace sharedgpu {

// `value` with `library` (a path) as its last entry and nowhere else; all other entries stay as they are.
std::string with_preload(std::string_view value, std::string_view library);

// `value` without the entries that have the file name of `library`.
std::string without_preload(std::string_view value, std::string_view library);

// Whether an entry of `value` has the file name of `library`.
bool has_preload(std::string_view value, std::string_view library);

}  // namespace sharedgpu
