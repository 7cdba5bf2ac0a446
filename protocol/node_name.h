// SPDX-License-Identifier: Apache-2.0
// The characters of a node's name in Slurm. Pure; any thread.
#pragma once

namespace sharedgpu {

constexpr bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
constexpr bool may_be_in_node_name(char c) {
  return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_';
}

}  // namespace sharedgpu
