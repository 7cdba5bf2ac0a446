// SPDX-License-Identifier: Apache-2.0
// A handle: a piece of an address range that is backed by one piece of physical memory. Handles are evicted
// and restored as a whole.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "interposer/memory/away_blocks.h"
#include "interposer/memory/fingerprint.h"
#include "interposer/memory/host_pool.h"
#include "protocol/units.h"

namespace sharedgpu {

// An address at which the program has mapped a handle of memory that it has created with cuMemCreate. The
// mapping is as large as the handle.
struct View {
  CUdeviceptr address = 0;
  std::vector<CUmemAccessDesc> access;  // the access rights that the program has set, one entry per location
  bool mapped = false;
  bool ready = false;  // mapped with all access rights
};

// `mapped` and `contents` together give the state of a handle:
//
//   mapped  contents             state
//   no      in_place             unbacked: the handle has no memory and no contents yet
//   yes     in_place             resident if accessible; otherwise the handle has no contents yet
//   no      any other            evicted
//   yes     any other            a restore runs or has failed: memory is mapped, but has no contents yet
//
// `in_room`: the contents are in the host memory `host`. `uniform`: the contents are stored nowhere, since
// each of their 32-bit words is equal to `word`.
//
// A resident handle may have a clean copy: `host` still holds the contents that were last restored, and
// `left` is their fingerprint. If the handle's contents still have this fingerprint at the next eviction, the
// copy is valid. Otherwise the contents are copied to `host` again.
//
// The driver keeps the contents of managed memory in its pages, so `contents` is always `in_place`. If
// `mapped` is true for managed memory, the pages should be on the GPU, otherwise they are on the host.
//
// A handle that is `away` has host memory instead of device memory: `block` is mapped at its addresses. Such
// a handle is never evicted, since it occupies no device memory. `in_block`: the contents are in `block`, and
// the block is not mapped at the addresses, since a move into the window or out of it is under way or has
// failed. A restore completes the move: if the handle is away, the block is mapped; otherwise the contents
// are copied from the block to device memory. If `mapped` is true for such a handle, device memory is mapped
// at its addresses.
//
// A handle is mapped but not accessible if the driver has refused access to the mapping, and has then refused
// to unmap it.
//
// While `busy` is true, one thread is moving the handle, and only this thread accesses the handle, without a
// lock. Otherwise SwapCommon::mutex guards the whole handle.
//
// SwapCommon::mutex guards `place` even while the handle is busy. If `place` is not `free`, the handle stays
// mapped and accessible until its range is removed.
struct Handle {
  enum class Place : std::uint8_t {
    free,      // can be evicted
    settling,  // being pinned, waiting for the arbiter's answer: counted as swappable and as pinned
    settled,   // pinned in place: counted as pinned only
  };
  enum class Contents : std::uint8_t { in_place, in_room, uniform, in_block };
  CUdeviceptr address = 0;
  Bytes size;
  bool mapped = false;
  bool accessible = false;  // true only if `mapped` is true
  Contents contents = Contents::in_place;
  HostRoom host;                    // the contents, or a clean copy
  std::optional<Fingerprint> left;  // fingerprint of the data in `host`, if known
  std::uint32_t word = 0;           // the word that uniform contents repeat
  std::uint8_t changes = 0;         // number of fingerprints in a row that found changed contents
  std::uint8_t rests = 0;           // how many of the next evictions compute no fingerprint
  bool host_pages = false;          // managed memory: since an eviction, the driver keeps host memory for the
                                    // pages
  const CUmemAllocationProp* kind = nullptr;  // see Device::create
  std::vector<View> views;
  bool away = false;
  std::optional<AwayBlock> block;  // the host memory of a handle that is away or in_block; none if a handle
                                   // that is away has no memory yet
  bool busy = false;
  Place place = Place::free;
  bool counted = false;  // counted as resident: mapped or about to be mapped, not away, not pinned in place
  std::uint64_t last_used = 0;  // number of the last allocation in this handle, or of the program's last
                                // mapping of it; see Residency::next_use()

  bool evicted() const { return contents != Contents::in_place; }
  bool in_place() const { return accessible && !evicted(); }  // true: the contents are at the addresses
  bool on_gpu() const { return in_place() && !away; }         // true: the contents are on the GPU
  bool has_copy() const { return !evicted() && !host.empty(); }
  bool shown() const { return std::ranges::all_of(views, &View::ready); }
  bool usable() const { return in_place() && shown(); }
};

// A reservation of addresses. A large allocation has a range of its own; smaller allocations share an arena,
// which is a range with one handle.
struct Range {
  CUdeviceptr base = 0;
  Bytes size;
  bool arena = false;
  CUcontext context = nullptr;  // the driver frees the range with this context; null: the interposer frees
                                // the range
  std::vector<Handle> handles;  // pointers to handles stay valid until the range is removed, or SwapMerging
                                // makes one handle of them

  // Returns true if the handles must become one before the memory is pinned in place, since the program may
  // export the memory, as a whole.
  bool must_merge() const {
    const CUmemAllocationProp* const kind = handles.front().kind;
    return handles.size() > 1 && kind != nullptr && kind->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  }
};

// Returns true if the `size` bytes at `address` lie within the `whole` bytes at `base`.
inline bool lies_within(CUdeviceptr address, Bytes size, CUdeviceptr base, Bytes whole) {
  return address - base < whole.count && size <= Bytes{whole.count - (address - base)};
}

// Cuts a range into handles of `size` bytes. The last handle also gets the remainder, so it is less than
// twice as large: a separate handle for the remainder would cost as many driver calls as a large handle.
std::vector<Handle> cut_into_handles(const Range& range, Bytes size);

}  // namespace sharedgpu
