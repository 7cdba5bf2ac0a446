// SPDX-License-Identifier: Apache-2.0
// Replaces a file as a whole, so that a reader sees the old text or the new one, never a part. Any thread,
// but only one at a time for each path.
#pragma once

#include <string>
#include <string_view>

#include "protocol/status.h"

namespace sharedgpu {

enum class Durable : bool { no, yes };

// Writes `text` to a new file PATH.new (mode 0600) and renames that file to `path`, which is absolute. With
// Durable::yes the new text survives a crash of the host. On failure, the file at `path` is left as it was,
// PATH.new is removed, and the message names `path`.
Status replace_file(const std::string& path, std::string_view text, Durable durable);

}  // namespace sharedgpu
