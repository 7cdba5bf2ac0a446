// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/own_memory.h"

#include <iterator>

namespace sharedgpu::hooks {

void OwnMemory::created(Handle handle, Bytes size) {
  auto piece = std::make_shared<Piece>(Piece{size, 1});
  handles_[handle] = {std::move(piece), 1};
}

Bytes OwnMemory::released(Handle handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return {};
  const PiecePtr piece = found->second.piece;
  // If no reference to the handle is left, the driver may reuse the handle for other memory.
  if (--found->second.count == 0) handles_.erase(found);
  return drop(*piece);
}

void OwnMemory::mapped(CUdeviceptr address, Bytes size, Handle handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  ++found->second.piece->users;
  mappings_[address] = {size, found->second.piece};
}

Bytes OwnMemory::unmapped(CUdeviceptr address, Bytes size) {
  Bytes gone;
  for (auto mapping = mappings_.lower_bound(address);
       mapping != mappings_.end() && mapping->first - address < size.count;) {
    gone += drop(*mapping->second.piece);
    mapping = mappings_.erase(mapping);
  }
  return gone;
}

void OwnMemory::retained(Handle handle, CUdeviceptr address) {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return;
  const auto& [base, mapping] = *std::prev(after);
  if (address - base >= mapping.size.count) return;
  Reference& reference = handles_[handle];
  if (reference.piece == nullptr) reference.piece = mapping.piece;
  ++reference.count;
  ++reference.piece->users;
}

}  // namespace sharedgpu::hooks
