// SPDX-License-Identifier: Apache-2.0
// A handle: a piece of an address range backed by one piece of physical memory. It is the unit of eviction.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "interposer/memory/fingerprint.h"
#include "interposer/memory/host_pool.h"
#include "protocol/units.h"

namespace sharedgpu {

// A further mapping of memory that the program has created with cuMemCreate, as large as the handle.
struct View {
  CUdeviceptr address = 0;
  std::vector<CUmemAccessDesc> access;  // rights that the program has set, one entry per location
  bool mapped = false;
  bool ready = false;  // mapped with all access rights
};

// `mapped` and `contents` together give the state of a handle:
//
//   mapped  contents             state
//   no      in_place             unbacked: the handle has no memory and no contents yet
//   yes     in_place             resident if accessible; otherwise the handle has no contents yet
//   no      in_room or uniform   evicted
//   yes     in_room or uniform   a restore failed: the memory is mapped, but the contents are not copied yet
//
// `in_room`: the contents are in `host`. `uniform`: the contents are stored nowhere, since each of their
// 32-bit words is equal to `word`.
//
// A resident handle may have a clean copy: `host` still holds the contents that were restored from it, and
// `left` is their fingerprint. The copy is valid while the handle has the same fingerprint; otherwise it is
// free room.
//
// The contents of managed memory are wherever its pages are, so `contents` is always `in_place`. For managed
// memory, `mapped` means that the pages should be on the GPU; unmapped means that they are on the host.
//
// A handle is mapped but not accessible if the driver refused access and then refused to unmap it too.
//
// `busy`: one thread is moving the handle, and that thread alone accesses it, without a lock. Otherwise the
// memory's lock guards the whole handle.
//
// The lock guards `place` even while the handle is busy. If `place` is not `free`, the handle stays mapped
// and accessible until its range is taken down.
struct Handle {
  enum class Place : std::uint8_t {
    free,      // may leave the GPU
    settling,  // being pinned, waiting for the arbiter's answer: counted as swappable and as pinned
    settled,   // pinned in place: counted as pinned only
  };
  enum class Contents : std::uint8_t { in_place, in_room, uniform };
  CUdeviceptr address = 0;
  Bytes size;
  bool mapped = false;
  bool accessible = false;  // only if mapped
  Contents contents = Contents::in_place;
  HostRoom host;                    // the contents, or a clean copy
  std::optional<Fingerprint> left;  // fingerprint of the data in `host`, if known
  std::uint32_t word = 0;           // the word that uniform contents repeat
  std::uint8_t changes = 0;         // number of evictions in a row at which its contents had changed
  std::uint8_t rests = 0;           // number of further evictions without a fingerprint
  bool host_pages = false;          // managed memory: the driver keeps host memory for it since an eviction
  const CUmemAllocationProp* kind = nullptr;  // see Device::create
  std::vector<View> views;
  bool busy = false;
  Place place = Place::free;
  bool counted = false;         // counts as resident: mapped or about to be mapped, and not pinned in place
  std::uint64_t last_used = 0;  // time of the last allocation in it, by a count of allocations

  bool evicted() const { return contents != Contents::in_place; }
  bool on_gpu() const { return accessible && !evicted(); }  // the contents are on the GPU
  bool has_copy() const { return !evicted() && !host.empty(); }
  bool shown() const { return std::ranges::all_of(views, &View::ready); }
  bool usable() const { return on_gpu() && shown(); }
};

// A reservation of addresses. A large allocation has a range of its own; smaller ones share an arena, which
// is a range of one handle.
struct Range {
  CUdeviceptr base = 0;
  Bytes size;
  bool arena = false;
  CUcontext context = nullptr;  // the driver frees the range with this context; null if none
  std::vector<Handle> handles;  // the number is fixed, so pointers stay valid
};

// Returns true if `size` bytes at `address` lie in `whole` bytes at `base`.
inline bool lies_within(CUdeviceptr address, Bytes size, CUdeviceptr base, Bytes whole) {
  return address - base < whole.count && size <= Bytes{whole.count - (address - base)};
}

// Cuts a range into handles of `size` bytes. The last handle takes the rest, too, so it is less than twice as
// large: a small handle of its own would cost as many driver calls as a large one.
std::vector<Handle> cut_into_handles(const Range& range, Bytes size);

}  // namespace sharedgpu
