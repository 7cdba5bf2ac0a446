// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/tenant_name.h"

namespace sharedgpu {

std::string label_of(const TenantName& name, TenantId id, const ArrayElement& element) {
  if (element != ArrayElement{})
    return "job " + std::to_string(element.array) + "_" + std::to_string(element.index);
  if (name.is_job()) return "job " + std::to_string(name.job);
  if (name.is_run()) return "run " + std::to_string(id.value);
  return "process " + std::to_string(name.process.pid);
}

}  // namespace sharedgpu
