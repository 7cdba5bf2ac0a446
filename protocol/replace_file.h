// SPDX-License-Identifier: Apache-2.0
// Replaces a file as a whole: a reader sees the complete old text or the complete new text. Any thread may
// call this, but only one thread at a time for each path.
#pragma once

#include <string>
#include <string_view>

#include "protocol/status.h"

namespace sharedgpu {

enum class Durable : bool { no, yes };

// Writes `text` to a new file PATH.new (mode 0600) and renames that file to `path`, which is absolute. With
// Durable::yes the new text survives a crash of the host. On failure, leaves the file at `path` unchanged,
// removes PATH.new, and states `path` in the error message.
Status replace_file(const std::string& path, std::string_view text, Durable durable);

}  // namespace sharedgpu
