// SPDX-License-Identifier: Apache-2.0
// Edits of LD_PRELOAD. Pure.
//
// The loader separates entries by spaces and colons. These functions recognize the interposer's library by
// its file name. So the library is loaded only once, even if another installation or a batch step has added
// the library to the value before.
#pragma once

#include <string>
#include <string_view>

namespace sharedgpu {

// Returns `value` without the entries that have the file name of `library` (a path), and with `library` as
// its last entry.
std::string with_preload(std::string_view value, std::string_view library);

// `value` without the entries that have the file name of `library`.
std::string without_preload(std::string_view value, std::string_view library);

// Returns true if an entry of `value` has the file name of `library`.
bool has_preload(std::string_view value, std::string_view library);

}  // namespace sharedgpu
