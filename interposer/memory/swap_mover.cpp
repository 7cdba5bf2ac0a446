// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_mover.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace sharedgpu {
namespace {

// A fingerprint takes a sixtieth of the time of a copy. If the last i fingerprints of a handle have all found
// changed contents, its next kRests[i] evictions compute no fingerprint. kRests[0] and kRests[1] are 0,
// because two fingerprints are needed to detect unchanged contents.
constexpr std::array<std::uint8_t, 6> kRests{0, 0, 1, 3, 7, 15};

bool is_of_kind(const std::optional<CUmemAllocationProp>& kind, const CUmemAllocationProp* wanted) {
  if (!kind || wanted == nullptr) return !kind && wanted == nullptr;
  return std::memcmp(&*kind, wanted, sizeof *wanted) == 0;
}

}  // namespace

CUresult SwapMover::back(Handle& handle) {
  const bool mapped_before = handle.mapped;
  CUresult result = mapped_before ? CUDA_SUCCESS : map(handle);
  if (result != CUDA_SUCCESS) return result;
  result = device_.allow_access(handle.address, handle.size);
  handle.accessible = result == CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = show(handle);
  const bool keeps = mapped_before && handle.away;  // the mapped memory may be the block with the contents
  if (result != CUDA_SUCCESS && !keeps) unback(handle);
  return result;
}

CUresult SwapMover::show(Handle& handle) {
  if (handle.shown()) return CUDA_SUCCESS;
  Physical physical = 0;
  CUresult result = device_.retain(&physical, handle.address);
  if (result != CUDA_SUCCESS) return result;
  for (View& view : handle.views) {
    if (!view.mapped) result = device_.map(view.address, handle.size, physical);
    view.mapped = result == CUDA_SUCCESS;
    if (view.mapped && !view.access.empty())
      result = device_.set_access(view.address, handle.size, view.access);
    view.ready = result == CUDA_SUCCESS;
    if (!view.ready) break;
  }
  give_back(physical);
  return result;
}

CUresult SwapMover::hide(Handle& handle, View& view) {
  const CUresult result = view.mapped ? device_.unmap(view.address, handle.size) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) view.mapped = view.ready = false;
  return result;
}

// Releases the reference to the memory as soon as the memory is mapped. After this, the memory exists as long
// as its mapping, and a single call of unmap() frees it. So there is no state between "mapped" and "freed" in
// which a call could fail. If the reference stayed, the memory could never be freed, so give_back() repeats a
// failed release.
CUresult SwapMover::map(Handle& handle) {
  if (handle.away) return map_away(handle);
  Physical physical = 0;
  CUresult result = device_.create(&physical, handle.size, handle.kind);
  if (result != CUDA_SUCCESS) return result;
  result = device_.map(handle.address, handle.size, physical);
  give_back(physical);
  handle.mapped = result == CUDA_SUCCESS;
  return result;
}

void SwapMover::give_back(Physical physical) {
  for (int attempt = 0; attempt < 3 && device_.release(physical) != CUDA_SUCCESS; ++attempt) {
  }
}

CUresult SwapMover::map_away(Handle& handle) {
  if (!handle.block) handle.block = blocks_.take(handle.size);
  if (!handle.block) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = device_.map(handle.address, handle.size, handle.block->physical);
  handle.mapped = result == CUDA_SUCCESS;
  if (!handle.mapped && !handle.evicted()) give_block_back(handle);
  return result;
}

void SwapMover::give_block_back(Handle& handle) {
  if (handle.block) blocks_.give(*handle.block);
  handle.block.reset();
}

CUresult SwapMover::unback(Handle& handle) {
  const CUresult result = hide_all(handle);
  if (result == CUDA_SUCCESS && handle.contents != Handle::Contents::in_block) give_block_back(handle);
  return result;
}

// Unmaps the handle's memory at all of its addresses.
CUresult SwapMover::hide_all(Handle& handle) {
  CUresult result = CUDA_SUCCESS;
  for (View& view : handle.views)
    if (result == CUDA_SUCCESS) result = hide(handle, view);
  if (result == CUDA_SUCCESS) result = device_.unmap(handle.address, handle.size);
  if (result == CUDA_SUCCESS) handle.mapped = handle.accessible = false;
  return result;
}

// Maps `physical` at all addresses of a handle that has no memory. Returns false if the driver refuses. In
// this case the memory is either not mapped, or mapped but not accessible at every address.
bool SwapMover::put(Handle& handle, Physical physical) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (!handle.mapped) handle.mapped = device_.map(handle.address, handle.size, physical) == CUDA_SUCCESS;
    if (!handle.mapped) continue;
    if (!handle.accessible)
      handle.accessible = device_.allow_access(handle.address, handle.size) == CUDA_SUCCESS;
    if (handle.accessible && show(handle) == CUDA_SUCCESS) return true;
  }
  return false;
}

// Maps the block of away memory that has the handle's contents. Returns false if the block could not be
// mapped.
bool SwapMover::put_block(Handle& handle) {
  put(handle, handle.block->physical);
  handle.contents = handle.mapped ? Handle::Contents::in_place : Handle::Contents::in_block;
  return handle.mapped;
}

Mover::Begun SwapMover::begin_leave(Handle& handle, Lane lane) {
  std::optional<AwayBlock>& block = targets_[lane.index];
  block = blocks_.take(handle.size);
  if (!block) return Begun::no_room;
  if (device_.copy(lane, block->home, handle.address, handle.size) == CUDA_SUCCESS) return Begun::yes;
  settle(lane);
  return Begun::failed;
}

// Once the contents are in the block, no failure can lose them. A reference keeps the device memory, so that
// the handle can stay in it if the block cannot be mapped.
bool SwapMover::end_leave(Handle& handle, Lane lane) {
  Physical before = 0;
  if (device_.wait(lane) != CUDA_SUCCESS || device_.retain(&before, handle.address) != CUDA_SUCCESS) {
    settle(lane);
    return false;
  }
  if (hide_all(handle) != CUDA_SUCCESS) {
    show(handle);
    give_back(before);
    settle(lane);
    return false;
  }
  pool_.give(take_host(handle));  // the block has the contents, so a clean copy would be a second copy in
                                  // host memory
  handle.block = std::exchange(targets_[lane.index], std::nullopt);
  bool left = put_block(handle);
  if (!left) {
    put(handle, before);
    left = !handle.mapped;
    if (handle.accessible) {
      handle.contents = Handle::Contents::in_place;
      give_block_back(handle);
    }
  }
  if (!left) {
    give_back(before);
    return false;
  }
  spare_.push_back({.physical = before, .size = handle.size, .kind = {}});
  if (handle.kind != nullptr) spare_.back().kind = *handle.kind;
  evicted_ += handle.size.count;
  return true;
}

// Takes over the memory of a handle that has left, if its size and kind are right. Otherwise creates memory.
// The driver scrubs freed memory with the copy engine that copies into the GPU (docs/benchmarks.md, "A
// handoff"), so an exchange frees and creates as little as possible. New memory is created only after all
// spare memory has been freed, since spare memory uses the room that the caller has found in the window.
CUresult SwapMover::take_memory(Physical* physical, const Handle& handle) {
  const auto found = std::ranges::find_if(spare_, [&](const Spare& spare) {
    return spare.size == handle.size && is_of_kind(spare.kind, handle.kind);
  });
  if (found == spare_.end()) {
    free_spare();
    return device_.create(physical, handle.size, handle.kind);
  }
  *physical = found->physical;
  spare_.erase(found);
  return CUDA_SUCCESS;
}

void SwapMover::free_spare() {
  for (const Spare& spare : spare_) give_back(spare.physical);
  spare_.clear();
}

bool SwapMover::begin_enter(Handle& handle, Lane lane) {
  Physical physical = 0;
  if (take_memory(&physical, handle) != CUDA_SUCCESS) return false;
  if (hide_all(handle) != CUDA_SUCCESS) {
    show(handle);
    give_back(physical);
    return false;
  }
  handle.contents = Handle::Contents::in_block;
  const bool entered = put(handle, physical) &&
                       device_.copy(lane, handle.address, handle.block->home, handle.size) == CUDA_SUCCESS;
  give_back(physical);
  if (!entered) undo_enter(handle, lane);
  return entered;
}

// If the device memory cannot be unmapped, the handle keeps it, and a restore copies the contents to it.
void SwapMover::undo_enter(Handle& handle, Lane lane) {
  if (!settle(lane)) return;
  if (!handle.mapped || hide_all(handle) == CUDA_SUCCESS) put_block(handle);
}

bool SwapMover::end_enter(Handle& handle, Lane lane) {
  if (device_.wait(lane) != CUDA_SUCCESS) {
    undo_enter(handle, lane);
    return false;
  }
  handle.contents = Handle::Contents::in_place;
  give_block_back(handle);
  restored_ += handle.size.count;
  return true;
}

void SwapMover::forget(Handle& handle) {
  pool_.give(take_host(handle));
  handle.contents = Handle::Contents::in_place;
  if (!handle.mapped || !handle.away) give_block_back(handle);
}

// Detaches the host memory from the handle, and returns it to the caller. Evicted contents or a clean copy in
// this memory are lost for the handle.
HostRoom SwapMover::take_host(Handle& handle) {
  if (handle.has_copy()) kept_ -= handle.size.count;
  handle.left.reset();
  return std::exchange(handle.host, {});
}

void SwapMover::note_change(Handle& handle, bool changed) {
  handle.changes = changed ? std::min<std::uint8_t>(handle.changes, kRests.size() - 2) : 0;
  if (changed) ++handle.changes;
  handle.rests = kRests[handle.changes];
}

bool SwapMover::look(std::span<Leaver> leavers) {
  std::vector<Look> looks;
  std::vector<Leaver*> looked;
  for (Leaver& leaver : leavers) {
    Handle& handle = *leaver.handle;
    if (!handle.on_gpu() || handle.size > fingerprint::kLargest) continue;
    if (handle.rests != 0) {
      --handle.rests;
      continue;
    }
    looks.push_back({handle.address, handle.size});
    looked.push_back(&leaver);
  }
  if (looks.empty()) return true;
  std::vector<Fingerprint> found(looks.size());
  if (device_.fingerprints(looks, found.data()) != CUDA_SUCCESS) return settle({Lane::kLooks});
  for (std::size_t i = 0; i < looked.size(); ++i) looked[i]->seen = found[i];
  return true;
}

SwapMover::Way SwapMover::way_of(const Leaver& leaver) {
  const Handle& handle = *leaver.handle;
  if (!handle.on_gpu())
    return Way::empty;  // nothing to copy: the handle has no contents, or host memory has them
  if (!leaver.seen) return Way::copied;
  if (leaver.seen->uniform) return Way::uniform;
  return handle.has_copy() && leaver.seen == handle.left ? Way::unchanged : Way::copied;
}

bool SwapMover::has_room(const Handle& handle) const {
  return handle.has_copy() || minus(pool_.held(), pool_.used()) >= handle.size;
}

Mover::Begun SwapMover::begin_out(const Leaver& leaver, Lane lane) {
  Handle& handle = *leaver.handle;
  Leaving& leaving = leaving_[lane.index];
  leaving.way = way_of(leaver);
  leaving.seen = leaver.seen;
  if (leaver.seen && (leaver.seen->uniform || handle.left)) note_change(handle, leaving.way == Way::copied);
  return leaving.way == Way::copied ? begin_copy(handle, lane) : Begun::yes;
}

// Copies into the host memory of the clean copy, if there is one. This is safe, since the contents stay on
// the GPU until all of them have arrived.
Mover::Begun SwapMover::begin_copy(Handle& handle, Lane lane) {
  Leaving& leaving = leaving_[lane.index];
  if (handle.has_copy()) {
    leaving.room = take_host(handle);
  } else if (std::optional<HostRoom> room = pool_.take(handle.size)) {
    leaving.room = std::move(*room);
  } else {
    return Begun::no_room;
  }
  CUdeviceptr from = handle.address;
  for (const HostPiece& piece : leaving.room) {
    if (device_.copy_out(lane, piece.data, from, piece.size) != CUDA_SUCCESS) {
      settle(lane);
      return Begun::failed;
    }
    from += piece.size.count;
  }
  return Begun::yes;
}

bool SwapMover::end_out(Handle& handle, Lane lane) {
  Leaving& leaving = leaving_[lane.index];
  const bool copied = leaving.way == Way::copied;
  if (copied && device_.wait(lane) != CUDA_SUCCESS) {
    settle(lane);
    return false;
  }
  if (unback(handle) != CUDA_SUCCESS) {
    if (copied) settle(lane);
    return false;
  }
  switch (leaving.way) {
    case Way::empty:
      break;
    case Way::copied:
      handle.host = std::exchange(leaving.room, {});
      if (handle.rests == 0) handle.left = leaving.seen;
      handle.contents = Handle::Contents::in_room;
      left_.copied += handle.size;
      evicted_ += handle.size.count;
      break;
    case Way::unchanged:
      kept_ -= handle.size.count;
      handle.contents = Handle::Contents::in_room;
      left_.unchanged += handle.size;
      break;
    case Way::uniform:
      pool_.give(take_host(handle));
      handle.word = leaving.seen->value;
      handle.contents = Handle::Contents::uniform;
      left_.uniform += handle.size;
      break;
  }
  return true;
}

CUresult SwapMover::begin_in(Handle& handle, Lane lane) {
  CUresult result = handle.accessible ? show(handle) : back(handle);
  if (result != CUDA_SUCCESS || !handle.evicted()) return result;
  if (handle.away) handle.contents = Handle::Contents::in_place;  // the block with the contents is mapped
  if (handle.contents == Handle::Contents::in_block)
    result = device_.copy(lane, handle.address, handle.block->home, handle.size);
  if (handle.contents == Handle::Contents::uniform)
    result = device_.fill(lane, handle.address, handle.size, handle.word);
  CUdeviceptr to = handle.address;
  for (const HostPiece& piece : handle.host) {
    if (result == CUDA_SUCCESS) result = device_.copy_in(lane, to, piece.data, piece.size);
    to += piece.size.count;
  }
  if (result != CUDA_SUCCESS && settle(lane)) unback(handle);
  return result;
}

// If the fingerprint of restored contents is known, the contents also stay on the host as a clean copy, which
// the next eviction can verify.
bool SwapMover::end_in(Handle& handle, Lane lane) {
  if (!handle.evicted()) return true;
  if (device_.wait(lane) != CUDA_SUCCESS) {
    if (settle(lane)) unback(handle);
    return false;
  }
  if (handle.contents != Handle::Contents::uniform) restored_ += handle.size.count;
  if (!handle.left) {
    forget(handle);
    return true;
  }
  handle.contents = Handle::Contents::in_place;
  kept_ += handle.size.count;
  return true;
}

bool SwapMover::settle() {
  bool all = true;
  for (unsigned lane = 0; lane < Lane::kAll; ++lane) {
    if (unsettled_[lane]) all &= settle({lane});
  }
  return all;
}

// Waits for the copies on the lane. Returns true if no copy is running on the lane. Otherwise the lane stays
// unsettled: the caller must not reuse host memory or remove mappings that a copy may be using.
bool SwapMover::settle(Lane lane) {
  unsettled_[lane.index] = device_.wait(lane) != CUDA_SUCCESS;
  if (unsettled_[lane.index]) return false;
  pool_.give(std::exchange(leaving_[lane.index].room, {}));
  if (std::optional<AwayBlock>& block = targets_[lane.index])
    blocks_.give(*std::exchange(block, std::nullopt));
  return true;
}

}  // namespace sharedgpu
