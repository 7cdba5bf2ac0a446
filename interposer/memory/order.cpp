// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/order.h"

#include <algorithm>

namespace sharedgpu {

void Order::insert(Handle& handle) {
  if (handle.mapped && !handle.away && handle.place == Handle::Place::free) mapped_.insert(&handle);
  if (!handle.usable()) missing_.insert(&handle);
  if (handle.has_copy()) copied_.insert(&handle);
}

void Order::remove(Handle& handle) {
  mapped_.erase(&handle);
  missing_.erase(&handle);
  copied_.erase(&handle);
}

Handle* Order::first_to_leave() const { return mapped_.empty() ? nullptr : *mapped_.begin(); }

Handle* Order::first_to_return(Bytes room) const {
  const auto fits = [room](const Handle* handle) {
    return handle->mapped || handle->away || handle->size <= room;
  };
  const auto found = std::find_if(missing_.rbegin(), missing_.rend(), fits);
  return found == missing_.rend() ? nullptr : *found;
}

}  // namespace sharedgpu
