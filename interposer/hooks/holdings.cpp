// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/holdings.h"

namespace sharedgpu::hooks {

void Allocations::add(CUdeviceptr base, CUcontext context) {
  std::lock_guard lock(mutex_);
  origins_[base] = {.context = context, .id = ++last_id_, .sync_memops = false};
}

void Allocations::remove(CUdeviceptr base, unsigned long long id) {
  std::lock_guard lock(mutex_);
  auto found = origins_.find(base);
  if (found != origins_.end() && found->second.id == id) origins_.erase(found);
}

void Allocations::set_sync_memops(CUdeviceptr base, bool on) {
  std::lock_guard lock(mutex_);
  auto found = origins_.find(base);
  if (found != origins_.end()) found->second.sync_memops = on;
}

std::optional<Allocations::Origin> Allocations::origin(CUdeviceptr base) const {
  std::lock_guard lock(mutex_);
  auto found = origins_.find(base);
  if (found == origins_.end()) return std::nullopt;
  return found->second;
}

Allocations::All Allocations::of(CUcontext context) const {
  std::lock_guard lock(mutex_);
  All all;
  for (const auto& entry : origins_)
    if (entry.second.context == context) all.insert(entry);
  return all;
}

void Pinned::add(Kind kind, unsigned long long key, const Held& held) {
  std::lock_guard lock(mutex_);
  held_[{kind, key}] = held;
}

std::optional<Pinned::Held> Pinned::take(Kind kind, unsigned long long key) {
  std::lock_guard lock(mutex_);
  const auto taken = held_.extract({kind, key});
  if (taken.empty()) return std::nullopt;
  return taken.mapped();
}

Pinned::All Pinned::take(CUcontext context) {
  std::lock_guard lock(mutex_);
  All taken;
  std::erase_if(held_, [&](const auto& entry) {
    return entry.second.context == context && taken.insert(entry).second;
  });
  return taken;
}

// The object is never destroyed, since programs free memory until they end.
Allocations& allocations() {
  static auto* made = new Allocations;
  return *made;
}

Pinned& pinned() {
  static auto* made = new Pinned;
  return *made;
}

}  // namespace sharedgpu::hooks
