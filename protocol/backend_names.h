// SPDX-License-Identifier: Apache-2.0
// The names of the backends for users: in options, in the status and in AdminComments.
#pragma once

#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu {

struct BackendName {
  std::string_view name;
  Backend backend;
};
inline constexpr BackendName kBackendNames[] = {
    {"swap", Backend::swap}, {"managed", Backend::managed}, {"native", Backend::native}};

// Returns false if `text` is not the name of a backend.
constexpr bool parse_backend(std::string_view text, Backend& backend) {
  for (const BackendName& entry : kBackendNames) {
    if (entry.name != text) continue;
    backend = entry.backend;
    return true;
  }
  return false;
}

constexpr std::string_view name_of(Backend backend) {
  for (const BackendName& entry : kBackendNames)
    if (entry.backend == backend) return entry.name;
  return "";
}

}  // namespace sharedgpu
