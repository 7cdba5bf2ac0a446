// SPDX-License-Identifier: Apache-2.0
// The address space in this process that all devices share: reservations, physical memory, mappings, pinned
// host memory.
//
// A device address is a real address of the process. Parts of a reservation to which cuMemSetAccess gives
// access can be read or written; the rest of the reservation is PROT_NONE.
//
// A kernel or copy announces the ranges that it works on as a Use. If a range is unmapped during a Use of
// this range, the Use is torn: its context gets CUDA_ERROR_ILLEGAL_ADDRESS, as on a GPU. forbid_conflicts()
// adds two rules. Two uses of the same memory at the same time conflict if one of them writes, even if they
// use two addresses that are mapped to the same physical memory; the use that begins second fails. Work that
// is only queued has a Use, too, which is torn if its memory is unmapped.
//
// Thread-safe; failures are thrown as Error.
#pragma once

#include <cuda.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "protocol/units.h"
#include "tests/simgpu/physical.h"

namespace sharedgpu::simgpu {

using Address = std::uint64_t;

// A CUdeviceptr is a number. On the simulated device, the number is an address in this process.
template <class T = void>
T* pointer(Address at) {
  return reinterpret_cast<T*>(at);  // NOLINT(performance-no-int-to-ptr)
}

struct Range {
  Address begin = 0;
  Bytes size;
  bool written = true;
  int device = 0;  // the device that accesses the range
  bool copied =
      false;  // the access is by a copy, which needs no peer access to cuMemAlloc's memory of other devices
  bool atomic = false;  // an atomic access, which conflicts with no other use
  Address end() const { return begin + size.count; }
  bool overlaps(const Range& other) const { return begin < other.end() && other.begin < end(); }
  bool conflicts(const Range& other) const {
    return overlaps(other) && (written || other.written) && !atomic && !other.atomic;
  }
};

enum class Access { none, read, read_write };

// A part of physical memory, which may be mapped at several addresses. `part.begin` is an offset in
// `physical`.
struct Piece {
  const Physical* physical = nullptr;
  Range part;
};

// The ranges that a kernel or copy works on.
struct Use {
  std::vector<Range> ranges;
  std::vector<Piece> pieces;  // only if conflicts are forbidden
  bool torn = false;
  bool touching = false;
};
using UsePtr = std::shared_ptr<Use>;

struct HostRegion {
  Bytes size;
  unsigned flags = 0;
  bool owned = false;  // true if cuMemHostAlloc allocated it, so that cuMemFreeHost frees it
};

class AddressSpace {
 public:
  // Reservations.
  Address reserve(Bytes size, Bytes alignment, Address hint);
  void free_reservation(Address begin, Bytes size);

  // Mappings. A new mapping has no access. A mapping with `peers` is memory of cuMemAlloc: all devices with
  // peer access to the mapping's device can access the mapping.
  void map(Address begin, Bytes size, const PhysicalPtr& physical, bool peers = false);
  void set_access(Address begin, Bytes size, Access access, int device);
  Access access_at(Address at, int device) const;
  // For cuCtxEnablePeerAccess: sets whether `device` may access cuMemAlloc's memory of `peer`.
  void set_peer_access(int device, int peer, bool allowed);
  void unmap(Address begin, Bytes size);  // unmaps whole mappings only; no error if nothing is mapped
  PhysicalPtr physical_at(Address at) const;
  bool lies_on_host(Address at) const;  // returns true if memory of the host is mapped at `at`
  // The bytes of the range that are memory of the host: mapped at device addresses, or pinned.
  Bytes bytes_on_host(const Range& range) const;

  // The reservation that `at` lies in, mapped or not.
  std::optional<Range> reservation_at(Address at) const;
  // The mapping that `at` lies in.
  std::optional<Range> mapping_at(Address at) const;

  // Pinned host memory.
  void add_host(Address begin, const HostRegion& region);
  HostRegion remove_host(Address begin, bool owned);
  std::optional<std::pair<Range, HostRegion>> host_at(Address at) const;

  // Returns true if a kernel may access the whole range: mapped with access, or pinned host memory.
  bool accessible(const Range& range) const;

  void forbid_conflicts() { conflicts_forbidden_ = true; }
  // Announces the ranges of work that is only queued. If one of them is unmapped before retire(), this use is
  // torn. Returns null if there are no ranges, or unless conflicts are forbidden: a real GPU does not check
  // memory before the work runs.
  UsePtr queue(std::vector<Range> ranges);
  bool torn(const UsePtr& queued) const;
  void retire(const UsePtr& queued);
  // Returns null if one of the ranges is not accessible, or conflicts with another use. Do not pass pageable
  // host memory.
  UsePtr begin_use(const std::vector<Range>& ranges);
  // Adds a range that becomes known only while the kernel runs.
  bool extend(const UsePtr& use, const Range& range);
  // Runs `work`. No range of the use can be unmapped while `work` runs. If the use is torn already, returns
  // false without running `work`.
  bool touch(const UsePtr& use, const std::function<void()>& work);
  // Returns false if the use is torn.
  bool end_use(const UsePtr& use);

 private:
  struct Mapping {
    Bytes size;
    PhysicalPtr physical;
    bool peers = false;
    std::array<Access, kMostDevices + 1> access{};  // access of each device, and of the host
  };
  using Mappings = std::map<Address, Mapping>;

  // Call these functions with the lock held.
  std::optional<Range> find_reservation(Address at) const;
  Mappings::const_iterator find_mapping(Address at) const;
  bool may_access(const Mapping& mapping, const Range& range) const;
  bool is_accessible(const Range& range) const;
  bool is_usable(const Range& range, const Use* own = nullptr) const;
  std::vector<Piece> pieces_of(const Range& range) const;
  void add_range(Use& use, const Range& range) const;
  bool whole_mappings(const Range& range) const;
  bool cuts_mapping(const Range& range) const;

  mutable std::mutex mutex_;
  std::condition_variable untouched_;
  std::map<Address, Bytes> reservations_;
  Mappings mappings_;
  std::map<Address, HostRegion> host_;
  std::list<UsePtr> uses_;
  std::list<UsePtr> queued_;
  bool conflicts_forbidden_ = false;
  std::array<std::array<bool, kMostDevices>, kMostDevices> peers_{};  // [device][peer]
};

constexpr Bytes round_up(Bytes size, Bytes unit) {
  return {(size.count + unit.count - 1) / unit.count * unit.count};
}

}  // namespace sharedgpu::simgpu
