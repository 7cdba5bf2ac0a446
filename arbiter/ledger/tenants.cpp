// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

void TenantInfo::note_loss(const GpuUuid& gpu, const std::string& fault) {
  const auto known =
      std::find_if(losses.begin(), losses.end(), [&](const GpuLoss& loss) { return loss.gpu == gpu; });
  if (known == losses.end())
    losses.push_back({.gpu = gpu, .fault = fault});
  else
    known->fault = fault;
}

TenantInfo& Tenants::get(const TenantName& name, uid_t uid) {
  if (TenantInfo* known = find(name)) return *known;
  return restore(TenantId{last_.value + 1}, name, uid);
}

TenantInfo& Tenants::restore(TenantId id, const TenantName& name, uid_t uid) {
  last_ = std::max(last_, id);
  names_[name] = id;
  TenantInfo& info = tenants_[id];
  info.id = id;
  info.name = name;
  info.uid = info.account = uid;
  return info;
}

TenantInfo* Tenants::find(const TenantName& name) {
  auto entry = names_.find(name);
  return entry == names_.end() ? nullptr : find(entry->second);
}

TenantInfo* Tenants::find(TenantId id) {
  auto entry = tenants_.find(id);
  return entry == tenants_.end() ? nullptr : &entry->second;
}

std::string Tenants::label(TenantId id) const {
  const TenantInfo* tenant = find(id);
  return tenant == nullptr ? "tenant " + std::to_string(id.value) : tenant->label();
}

void Tenants::forget(TenantId id) {
  auto entry = tenants_.find(id);
  if (entry == tenants_.end()) return;
  names_.erase(entry->second.name);
  tenants_.erase(entry);
}

}  // namespace sharedgpu
