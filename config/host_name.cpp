// SPDX-License-Identifier: Apache-2.0
#include "config/host_name.h"

#include <unistd.h>

#include <climits>

namespace sharedgpu {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof name - 1) != 0) return {};
  const std::string whole = name;
  return whole.substr(0, whole.find('.'));
}

}  // namespace sharedgpu
