// SPDX-License-Identifier: Apache-2.0
// A handle: a piece of an address range with one piece of physical memory under it, the unit of eviction.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "interposer/memory/fingerprint.h"
#include "interposer/memory/host_pool.h"
#include "protocol/units.h"

namespace sharedgpu {

// Where else the program has mapped memory that it made itself with cuMemCreate: as large as the handle.
struct View {
  CUdeviceptr address = 0;
  std::vector<CUmemAccessDesc> access;  // as the program set it, one a location
  bool mapped = false;
  bool ready = false;  // mapped, with all of that access
};

// `contents` says where they are:
//
//   mapped  contents
//   no      in_place   unbacked: never written, or not since it was made
//   yes     in_place   resident, if accessible; else there are none yet
//   no      elsewhere  evicted
//   yes     elsewhere  a restore failed after the mapping: memory is there, the contents are not yet
//
// Elsewhere is `in_room`: in `host`; or `uniform`: nowhere, since every 32-bit word of them is `word`.
//
// A resident handle may have a clean copy: `host` still holds what came back from there, and `left` is its
// fingerprint. It is what the handle holds as long as the handle has the same fingerprint; else it is mere
// room.
//
// Managed memory has its contents wherever its pages are, always `in_place`: mapped means that the pages
// belong on the GPU, unmapped that they are on the host.
//
// Mapped but not accessible is what remains where the driver refused access and then would not unmap either.
//
// `busy`: one thread is moving it, and that thread alone touches it, without a lock. Otherwise the memory's
// lock guards all of it.
//
// `place` is the lock's even while the handle is busy. Where it is not `free`, the handle stays mapped and
// accessible until it is taken down.
struct Handle {
  enum class Place : std::uint8_t {
    free,      // may leave the GPU
    settling,  // leave to keep it is being asked for: counted as swappable and as pinned
    settled,   // stays where it is: counted as pinned only
  };
  enum class Contents : std::uint8_t { in_place, in_room, uniform };
  CUdeviceptr address = 0;
  Bytes size;
  bool mapped = false;
  bool accessible = false;  // only where mapped
  Contents contents = Contents::in_place;
  HostRoom host;                    // the contents, or a clean copy
  std::optional<Fingerprint> left;  // of what is in `host`, where that is known
  std::uint32_t word = 0;           // of uniform contents
  std::uint8_t changes = 0;         // so often in a row it was found changed
  std::uint8_t rests = 0;           // evictions for which it is not looked at
  bool host_pages = false;          // managed: the driver keeps host memory for it, once it has been there
  const CUmemAllocationProp* kind = nullptr;  // see Device::create
  std::vector<View> views;
  bool busy = false;
  Place place = Place::free;
  bool counted = false;         // in the resident bytes: mapped, or about to be; a settled one is not
  std::uint64_t last_used = 0;  // when something was last allocated in it, by a count of allocations

  bool evicted() const { return contents != Contents::in_place; }
  bool on_gpu() const { return accessible && !evicted(); }  // the contents are
  bool has_copy() const { return !evicted() && !host.empty(); }
  bool shown() const {
    return std::all_of(views.begin(), views.end(), [](const View& view) { return view.ready; });
  }
  bool usable() const { return on_gpu() && shown(); }
};

// Addresses reserved together. A large allocation has a range for itself; smaller ones share an arena, which
// is a range of one handle.
struct Range {
  CUdeviceptr base = 0;
  Bytes size;
  bool arena = false;
  CUcontext context = nullptr;  // with which the driver takes it; null: none
  std::vector<Handle> handles;  // of fixed number: pointers to them stay good
};

// True if `size` bytes at `address` lie in `whole` bytes at `base`.
inline bool lies_within(CUdeviceptr address, Bytes size, CUdeviceptr base, Bytes whole) {
  return address - base < whole.count && size <= Bytes{whole.count - (address - base)};
}

// Cuts a range into handles of `size` bytes, the last one larger (less than twice as large) rather than a
// small one more: small handles cost as many driver calls as large ones.
std::vector<Handle> cut_into_handles(const Range& range, Bytes size);

}  // namespace sharedgpu
