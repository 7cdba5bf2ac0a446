// SPDX-License-Identifier: Apache-2.0
// Reads the entries and the sizes of their parameters from PTX text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sharedgpu::simgpu {

struct PtxEntry {
  std::string name;
  std::vector<std::size_t> parameters;  // sizes of the parameters in bytes
};

// Returns nullopt if `text` is not PTX: it has no .version, or an entry that cannot be parsed.
std::optional<std::vector<PtxEntry>> parse_ptx(const std::string& text);

}  // namespace sharedgpu::simgpu
