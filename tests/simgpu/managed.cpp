// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/managed.h"

#include <algorithm>

#include "tests/simgpu/errors.h"

namespace sharedgpu::simgpu {
namespace {

constexpr Bytes kPage = kibibytes(64);

}  // namespace

Address Managed::allocate(Bytes size, const void* owner) {
  require(size.count < (1ull << 46), CUDA_ERROR_OUT_OF_MEMORY);
  const Bytes whole = round_up(size, kGranule);
  const PhysicalPtr memory = store_->create(whole);
  const Address begin = space_.reserve(whole, kGranule, 0);
  space_.map(begin, whole, memory, true);
  space_.set_access(begin, whole, Access::read_write, memory->device());
  std::lock_guard lock(mutex_);
  blocks_[begin] = {size, owner, std::vector<Page>(round_up(size, kPage).count / kPage.count)};
  return begin;
}

void Managed::give_back(Blocks::iterator block) {
  for (Page& page : block->second.pages)
    if (page.place == Place::device) to_host(page);
  const Bytes whole = round_up(block->second.size, kGranule);
  space_.unmap(block->first, whole);
  space_.free_reservation(block->first, whole);
  blocks_.erase(block);
}

bool Managed::free(Address begin) {
  std::lock_guard lock(mutex_);
  notice_what_left(device_.managed());
  const auto block = blocks_.find(begin);
  if (block == blocks_.end()) return false;
  give_back(block);
  return true;
}

void Managed::free_all_of(const void* owner) {
  std::lock_guard lock(mutex_);
  notice_what_left(device_.managed());
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    if (block->second.owner == owner) give_back(block);
    block = next;
  }
}

Managed::Blocks::iterator Managed::block_at(Address at) {
  const auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return blocks_.end();
  const auto block = std::prev(after);
  return at - block->first < block->second.size.count ? block : blocks_.end();
}

std::optional<Range> Managed::find(Address at) {
  std::lock_guard lock(mutex_);
  const auto block = block_at(at);
  if (block == blocks_.end()) return std::nullopt;
  return Range{block->first, block->second.size};
}

// Returns the pages of the range; an empty list if the range does not begin in an allocation. Pages beyond
// the allocation are left out.
std::vector<Managed::Page*> Managed::pages_of(const Range& range) {
  std::vector<Page*> pages;
  const auto block = block_at(range.begin);
  if (block == blocks_.end() || range.size.count == 0) return pages;
  const std::uint64_t first = (range.begin - block->first) / kPage.count;
  const std::uint64_t last = (range.end() - 1 - block->first) / kPage.count;
  for (std::uint64_t i = first; i <= last && i < block->second.pages.size(); ++i)
    pages.push_back(&block->second.pages[i]);
  return pages;
}

void Managed::to_host(Page& page) {
  page.place = Place::host;
  resident_ -= kPage;
  device_.drop_managed(kPage);
}

// `left` is the managed memory of this process that the device still has. If it is less than resident_, other
// memory has taken the place of pages of this process: counts the least recently used pages as on the host.
void Managed::notice_what_left(Bytes left) {
  if (resident_ <= left) return;
  std::vector<Page*> here;
  for (auto& [begin, block] : blocks_)
    for (Page& page : block.pages)
      if (page.place == Place::device) here.push_back(&page);
  std::sort(here.begin(), here.end(), [](const Page* a, const Page* b) { return a->touched < b->touched; });
  for (Page* page : here) {
    if (resident_ <= left) return;
    page->place = Place::host;
    resident_ -= kPage;
  }
}

// Returns the number of bytes that moved from the host. Pages for which the device has no memory stay on the
// host, where the device accesses them over the bus.
Bytes Managed::to_device(const Range& range) {
  const std::vector<Page*> pages = pages_of(range);
  if (pages.empty()) return {};
  notice_what_left(device_.touch_managed());
  ++touches_;
  Bytes moved;
  for (Page* page : pages) page->touched = touches_;
  const auto missing = std::count_if(pages.begin(), pages.end(),
                                     [](const Page* page) { return page->place != Place::device; });
  if (missing == 0) return {};
  Bytes room = device_.take_managed({static_cast<std::uint64_t>(missing) * kPage.count});
  for (Page* page : pages) {
    if (page->place == Place::device || room < kPage) continue;
    room -= kPage;
    resident_ += kPage;
    if (page->place == Place::host) moved += kPage;
    page->place = Place::device;
  }
  device_.drop_managed(room);
  notice_what_left(device_.managed());  // take_managed() may have moved out pages of this process
  return moved;
}

void Managed::touch(const Range& range) {
  std::lock_guard lock(mutex_);
  if (const Bytes moved = to_device(range); moved != Bytes{}) device_.count_paged(moved);
}

Bytes Managed::bring(const Range& range) {
  std::lock_guard lock(mutex_);
  return to_device(range);
}

Bytes Managed::send_away(const Range& range) {
  std::lock_guard lock(mutex_);
  notice_what_left(device_.managed());
  Bytes moved;
  for (Page* page : pages_of(range)) {
    if (page->place != Place::device) continue;
    to_host(*page);
    moved += kPage;
  }
  return moved;
}

}  // namespace sharedgpu::simgpu
