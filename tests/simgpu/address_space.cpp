// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>

#include "tests/simgpu/errors.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace sharedgpu::simgpu {
namespace {

// Maps the range without access and without physical memory. With MAP_FIXED in `flags`, replaces the mappings
// in the range. A child of fork() does not inherit the range.
void* map_nothing(void* at, std::size_t size, int flags) {
  void* result = mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (result != MAP_FAILED) madvise(result, size, MADV_DONTFORK);
  return result;
}

template <class Map>
typename Map::const_iterator find_containing(const Map& map, Address at,
                                             Bytes (*size)(const typename Map::mapped_type&)) {
  auto next = map.upper_bound(at);
  if (next == map.begin()) return map.end();
  auto found = std::prev(next);
  return at - found->first < size(found->second).count ? found : map.end();
}

}  // namespace

std::optional<Range> AddressSpace::find_reservation(Address at) const {
  auto found = find_containing(
      reservations_, at, +[](const Bytes& size) { return size; });
  if (found == reservations_.end()) return std::nullopt;
  return Range{found->first, found->second};
}

AddressSpace::Mappings::const_iterator AddressSpace::find_mapping(Address at) const {
  return find_containing(
      mappings_, at, +[](const Mapping& mapping) { return mapping.size; });
}

// Returns true if mappings cover the range exactly and without gaps.
bool AddressSpace::whole_mappings(const Range& range) const {
  Address at = range.begin;
  while (at < range.end()) {
    auto mapping = mappings_.find(at);
    if (mapping == mappings_.end()) return false;
    at += mapping->second.size.count;
  }
  return at == range.end();
}

// Returns true if a mapping lies only partly in the range.
bool AddressSpace::cuts_mapping(const Range& range) const {
  auto cut_at = [&](Address at) {
    auto mapping = find_mapping(at);
    return mapping != mappings_.end() && mapping->first != at;
  };
  return cut_at(range.begin) || cut_at(range.end());
}

bool AddressSpace::may_access(const Mapping& mapping, const Range& range) const {
  auto device = static_cast<std::size_t>(range.device);
  if (mapping.access[device] >= (range.written ? Access::read_write : Access::read)) return true;
  return mapping.peers &&
         (range.copied || peers_[device][static_cast<std::size_t>(mapping.physical->device())]);
}

bool AddressSpace::is_accessible(const Range& range) const {
  Address at = range.begin;
  while (at < range.end()) {
    auto mapping = find_mapping(at);
    if (mapping != mappings_.end()) {
      if (!may_access(mapping->second, range)) return false;
      at = mapping->first + mapping->second.size.count;
      continue;
    }
    auto host = find_containing(
        host_, at, +[](const HostRegion& region) { return region.size; });
    if (host == host_.end()) return false;
    at = host->first + host->second.size.count;
  }
  return true;
}

Address AddressSpace::reserve(Bytes size, Bytes alignment, Address hint) {
  require(size.count > 0 && size.count % kGranule.count == 0, CUDA_ERROR_INVALID_VALUE);
  require((alignment.count & (alignment.count - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
  Bytes align = std::max(alignment, kGranule);
  std::lock_guard lock(mutex_);
  // mmap aligns to pages only. So this function maps more than requested, and unmaps both ends.
  if (hint % align.count != 0) hint = 0;
  std::size_t padded = size.count + align.count;
  void* raw = map_nothing(hint == 0 ? nullptr : pointer(hint), padded, 0);
  require(raw != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  Address begin = reinterpret_cast<Address>(raw);
  Address aligned = (begin + align.count - 1) / align.count * align.count;
  if (aligned > begin) munmap(pointer(begin), aligned - begin);
  Address end = aligned + size.count;
  if (begin + padded > end) munmap(pointer(end), begin + padded - end);
  reservations_[aligned] = size;
  return aligned;
}

void AddressSpace::free_reservation(Address begin, Bytes size) {
  std::lock_guard lock(mutex_);
  auto found = reservations_.find(begin);
  require(found != reservations_.end() && found->second == size, CUDA_ERROR_INVALID_VALUE);
  auto mapping = mappings_.lower_bound(begin);
  require(mapping == mappings_.end() || mapping->first >= begin + size.count, CUDA_ERROR_INVALID_VALUE);
  reservations_.erase(found);
  munmap(pointer(begin), size.count);
}

void AddressSpace::map(Address begin, Bytes size, const PhysicalPtr& physical, bool peers) {
  require(size.count > 0 && size.count % kGranule.count == 0 && begin % kGranule.count == 0,
          CUDA_ERROR_INVALID_VALUE);
  require(size == physical->size(), CUDA_ERROR_INVALID_VALUE);
  Range range{begin, size};
  std::lock_guard lock(mutex_);
  auto reservation = find_reservation(begin);
  require(reservation && range.end() <= reservation->end(), CUDA_ERROR_INVALID_VALUE);
  auto next = mappings_.lower_bound(begin);
  require(find_mapping(begin) == mappings_.end() && (next == mappings_.end() || next->first >= range.end()),
          CUDA_ERROR_INVALID_VALUE);
  void* result = mmap(pointer(begin), size.count, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file(),
                      static_cast<off_t>(physical->offset()));
  require(result != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  madvise(result, size.count, MADV_DONTFORK);
  mappings_[begin] = {size, physical, peers, {}};
}

void AddressSpace::set_access(Address begin, Bytes size, Access access, int device) {
  std::lock_guard lock(mutex_);
  require(size.count > 0 && whole_mappings({begin, size}), CUDA_ERROR_INVALID_VALUE);
  // All simulated devices share the page tables of this process. So the pages get the most access that any
  // device has.
  Access most = Access::none;
  for (auto it = mappings_.find(begin); it != mappings_.end() && it->first < begin + size.count; ++it) {
    it->second.access[static_cast<std::size_t>(device)] = access;
    most = std::max(most, *std::max_element(it->second.access.begin(), it->second.access.end()));
  }
  int protection = most == Access::none         ? PROT_NONE
                   : most == Access::read_write ? PROT_READ | PROT_WRITE
                                                : PROT_READ;
  mprotect(pointer(begin), size.count, protection);
  // One call for all pages costs less than one page fault per page. Linux before 5.14 refuses the call; then
  // each page faults at its first access.
  if (access == Access::read_write) madvise(pointer(begin), size.count, MADV_POPULATE_WRITE);
}

Access AddressSpace::access_at(Address at, int device) const {
  std::lock_guard lock(mutex_);
  auto mapping = find_mapping(at);
  require(mapping != mappings_.end(), CUDA_ERROR_INVALID_VALUE);
  return mapping->second.access[static_cast<std::size_t>(device)];
}

void AddressSpace::set_peer_access(int device, int peer, bool allowed) {
  std::lock_guard lock(mutex_);
  bool& known = peers_[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)];
  require(known != allowed,
          allowed ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  known = allowed;
}

void AddressSpace::unmap(Address begin, Bytes size) {
  std::vector<PhysicalPtr> released;  // destroyed after the lock is released
  Range range{begin, size};
  std::unique_lock lock(mutex_);
  auto reservation = find_reservation(begin);
  require(size.count > 0 && reservation && range.end() <= reservation->end() && !cuts_mapping(range),
          CUDA_ERROR_INVALID_VALUE);
  auto uses_range = [&](const UsePtr& use) {
    return std::any_of(use->ranges.begin(), use->ranges.end(),
                       [&](const Range& used) { return used.overlaps(range); });
  };
  std::vector<UsePtr> torn;
  std::copy_if(uses_.begin(), uses_.end(), std::back_inserter(torn), uses_range);
  for (const UsePtr& use : torn) use->torn = true;
  for (const UsePtr& use : queued_) {
    if (use->torn || !uses_range(use)) continue;
    use->torn = true;
    std::fprintf(stderr, "simgpu: %#lx of %lu bytes is unmapped while queued work uses it\n", begin,
                 size.count);
  }
  untouched_.wait(lock, [&] {
    return std::none_of(torn.begin(), torn.end(), [](const UsePtr& use) { return use->touching; });
  });
  map_nothing(pointer(begin), size.count, MAP_FIXED);
  auto first = mappings_.lower_bound(begin);
  auto last = mappings_.lower_bound(range.end());
  for (auto it = first; it != last; ++it) released.push_back(it->second.physical);
  mappings_.erase(first, last);
  lock.unlock();
}

PhysicalPtr AddressSpace::physical_at(Address at) const {
  std::lock_guard lock(mutex_);
  auto mapping = find_mapping(at);
  require(mapping != mappings_.end(), CUDA_ERROR_INVALID_VALUE);
  return mapping->second.physical;
}

bool AddressSpace::lies_on_host(Address at) const {
  std::lock_guard lock(mutex_);
  auto mapping = find_mapping(at);
  return mapping != mappings_.end() && mapping->second.physical->device() == kHostNumber;
}

Bytes AddressSpace::bytes_on_host(const Range& range) const {
  Bytes sum;
  auto add = [&](Address begin, Bytes size) {
    const Address from = std::max(begin, range.begin);
    const Address to = std::min(begin + size.count, range.end());
    if (from < to) sum += Bytes{to - from};
  };
  std::lock_guard lock(mutex_);
  auto mapping = find_mapping(range.begin);
  if (mapping == mappings_.end()) mapping = mappings_.lower_bound(range.begin);
  for (; mapping != mappings_.end() && mapping->first < range.end(); ++mapping)
    if (mapping->second.physical->device() == kHostNumber) add(mapping->first, mapping->second.size);
  for (const auto& [begin, region] : host_) add(begin, region.size);
  return sum;
}

std::optional<Range> AddressSpace::reservation_at(Address at) const {
  std::lock_guard lock(mutex_);
  return find_reservation(at);
}

std::optional<Range> AddressSpace::mapping_at(Address at) const {
  std::lock_guard lock(mutex_);
  auto mapping = find_mapping(at);
  if (mapping == mappings_.end()) return std::nullopt;
  return Range{mapping->first, mapping->second.size};
}

void AddressSpace::add_host(Address begin, const HostRegion& region) {
  std::lock_guard lock(mutex_);
  auto next = host_.lower_bound(begin);
  bool overlaps = next != host_.end() && next->first < begin + region.size.count;
  if (next != host_.begin()) {
    auto before = std::prev(next);
    overlaps = overlaps || before->first + before->second.size.count > begin;
  }
  require(!overlaps, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  host_[begin] = region;
}

HostRegion AddressSpace::remove_host(Address begin, bool owned) {
  std::lock_guard lock(mutex_);
  auto found = host_.find(begin);
  require(found != host_.end() && found->second.owned == owned,
          owned ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  HostRegion region = found->second;
  host_.erase(found);
  return region;
}

std::optional<std::pair<Range, HostRegion>> AddressSpace::host_at(Address at) const {
  std::lock_guard lock(mutex_);
  auto found = find_containing(
      host_, at, +[](const HostRegion& region) { return region.size; });
  if (found == host_.end()) return std::nullopt;
  return std::pair{Range{found->first, found->second.size}, found->second};
}

bool AddressSpace::accessible(const Range& range) const {
  std::lock_guard lock(mutex_);
  return is_accessible(range);
}

std::vector<Piece> AddressSpace::pieces_of(const Range& range) const {
  std::vector<Piece> pieces;
  for (auto mapping = find_mapping(range.begin); mapping != mappings_.end() && mapping->first < range.end();
       ++mapping) {
    const Address from = std::max(mapping->first, range.begin);
    const Address to = std::min(mapping->first + mapping->second.size.count, range.end());
    Range part = range;
    part.begin = from - mapping->first;
    part.size = {to - from};
    pieces.push_back({mapping->second.physical.get(), part});
  }
  return pieces;
}

void AddressSpace::add_range(Use& use, const Range& range) const {
  use.ranges.push_back(range);
  if (!conflicts_forbidden_) return;
  const std::vector<Piece> pieces = pieces_of(range);
  use.pieces.insert(use.pieces.end(), pieces.begin(), pieces.end());
}

// The ranges of one use never conflict with each other; `own` is the use to which `range` will belong.
bool AddressSpace::is_usable(const Range& range, const Use* own) const {
  if (!is_accessible(range)) return false;
  if (!conflicts_forbidden_) return true;
  const std::vector<Piece> pieces = pieces_of(range);
  for (const UsePtr& use : uses_) {
    if (use.get() == own) continue;
    for (const Range& other : use->ranges) {
      if (!range.conflicts(other)) continue;
      std::fprintf(stderr, "simgpu: %#lx of %lu bytes is used while other work %s %#lx of %lu bytes\n",
                   range.begin, range.size.count, other.written ? "writes" : "reads", other.begin,
                   other.size.count);
      return false;
    }
    for (const Piece& other : use->pieces) {
      for (const Piece& piece : pieces) {
        if (piece.physical != other.physical || !piece.part.conflicts(other.part)) continue;
        std::fprintf(stderr, "simgpu: %#lx of %lu bytes is used while other work %s it at another address\n",
                     range.begin, range.size.count, other.part.written ? "writes" : "reads");
        return false;
      }
    }
  }
  return true;
}

UsePtr AddressSpace::queue(std::vector<Range> ranges) {
  if (!conflicts_forbidden_ || ranges.empty()) return nullptr;
  auto use = std::make_shared<Use>();
  use->ranges = std::move(ranges);
  std::lock_guard lock(mutex_);
  queued_.push_back(use);
  return use;
}

bool AddressSpace::torn(const UsePtr& queued) const {
  std::lock_guard lock(mutex_);
  return queued != nullptr && queued->torn;
}

void AddressSpace::retire(const UsePtr& queued) {
  std::lock_guard lock(mutex_);
  if (queued != nullptr) queued_.remove(queued);
}

UsePtr AddressSpace::begin_use(const std::vector<Range>& ranges) {
  std::lock_guard lock(mutex_);
  for (const Range& range : ranges)
    if (!is_usable(range)) return nullptr;
  auto use = std::make_shared<Use>();
  for (const Range& range : ranges) add_range(*use, range);
  uses_.push_back(use);
  return use;
}

bool AddressSpace::extend(const UsePtr& use, const Range& range) {
  std::lock_guard lock(mutex_);
  if (!is_usable(range, use.get())) return false;
  add_range(*use, range);
  return true;
}

bool AddressSpace::touch(const UsePtr& use, const std::function<void()>& work) {
  {
    std::lock_guard lock(mutex_);
    if (use->torn) return false;
    use->touching = true;
  }
  work();
  {
    std::lock_guard lock(mutex_);
    use->touching = false;
  }
  untouched_.notify_all();
  return true;
}

bool AddressSpace::end_use(const UsePtr& use) {
  std::lock_guard lock(mutex_);
  uses_.remove(use);
  return !use->torn;
}

}  // namespace sharedgpu::simgpu
