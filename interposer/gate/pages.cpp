// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>

namespace sharedgpu::gate {

constinit detail::MappedPage detail::mapped{.page = {.gate = 1, .contended = 0}};

namespace {

using detail::mapped;

constexpr std::uint32_t kOpen = 1;
constexpr std::uint32_t kClosed = 2;

struct Pages {
  // The page of each slot, at the address where it is mapped; null if the slot has no page. The address of a
  // slot stays the same across reconnects.
  std::array<std::atomic<const LeasePage*>, PageSlot::kCount> mapped{};
  // True if submissions read the combined page (pages.h), which is_open() writes.
  std::atomic<bool> several{false};
  // The page of the interposer that pause() closes.
  LeasePage own{.gate = kOpen, .contended = 0};
  std::atomic<bool> pausable{false};  // true if `own` is one of the pages that must be open
  // Held while a page is installed or replaced, and while a pause begins. Never held while a page is read.
  std::mutex coming;
};
constinit Pages pages;

// The state of the GPUs' queues, from all pages.
struct Queues {
  bool oversubscribed = false;  // true if any page reports an oversubscribed GPU
  std::uint32_t us = 0;         // the smallest backlog limit that such a page sets; zero if none sets a limit
};
Queues shortest() {
  Queues all;
  for (const auto& place : pages.mapped) {
    const LeasePage* page = place.load(std::memory_order_acquire);
    if (page == nullptr || page->oversubscribed.load(std::memory_order_relaxed) == 0) continue;
    all.oversubscribed = true;
    const std::uint32_t us = page->queue_us.load(std::memory_order_relaxed);
    if (us != 0 && (all.us == 0 || us < all.us)) all.us = us;
  }
  return all;
}

bool open_in(const LeasePage& page) { return LeasePage::is_open(page.gate.load(std::memory_order_acquire)); }

const LeasePage* first_closed() {
  if (pages.pausable.load(std::memory_order_acquire) && !open_in(pages.own)) return &pages.own;
  for (const auto& place : pages.mapped) {
    const LeasePage* page = place.load(std::memory_order_acquire);
    if (page != nullptr && !open_in(*page)) return page;
  }
  return nullptr;
}

// Writes to the combined page (pages.h) whether any GPU is oversubscribed, and the smallest backlog limit.
void gather() {
  if (!pages.several.load(std::memory_order_acquire)) return;
  const Queues all = shortest();
  mapped.page.queue_us.store(all.us, std::memory_order_relaxed);
  mapped.page.oversubscribed.store(all.oversubscribed ? 1 : 0, std::memory_order_relaxed);
}

bool put_own_page(void* address, std::size_t size, std::uint32_t gate);

// Makes submissions read the combined page, which is_open() updates. The caller holds `pages.coming`.
bool gather_in_own_page() {
  if (pages.several.load(std::memory_order_relaxed)) return true;
  if (!put_own_page(&mapped, sizeof mapped, first_closed() == nullptr ? kOpen : kClosed)) return false;
  pages.several.store(true, std::memory_order_release);
  return true;
}

// Replaces the page at `address` with a private page that contains `gate`. The private page is filled before
// it is moved to `address`, so that no thread reads zeros.
bool put_own_page(void* address, std::size_t size, std::uint32_t gate) {
  void* fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  new (fresh) LeasePage{.gate = gate, .contended = 0};
  return mremap(fresh, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, address) != MAP_FAILED;
}

void* place_of(const LeasePage* page) { return const_cast<LeasePage*>(page); }

}  // namespace

bool is_open() {
  if (!pages.several.load(std::memory_order_acquire)) return open_in(mapped.page);
  for (;;) {
    // The combined page is read first. Every call that finds a closed page writes a new value to the combined
    // page, even if the combined page is closed already. So a thread that read the combined page before this
    // write cannot open it.
    std::uint32_t seen = mapped.page.gate.load(std::memory_order_acquire);
    bool open = first_closed() == nullptr;
    std::uint32_t wanted = open ? seen | 1 : (seen | 1) + 1;
    if (wanted == seen || mapped.page.gate.compare_exchange_strong(seen, wanted)) return open;
  }
}

void wait_while_closed(Nanoseconds timeout) {
  const LeasePage* closed = pages.several.load(std::memory_order_acquire) ? first_closed() : &mapped.page;
  if (closed == nullptr) return;
  std::uint32_t seen = closed->gate.load(std::memory_order_acquire);
  if (!LeasePage::is_open(seen)) wait_gate(*closed, seen, timeout);
}

void wake_waiting() {
  if (!pages.several.load(std::memory_order_acquire)) return wake_gate(mapped.page);
  for (const auto& place : pages.mapped)
    if (const LeasePage* page = place.load(std::memory_order_acquire)) wake_gate(*page);
  if (pages.pausable.load(std::memory_order_acquire)) wake_gate(pages.own);
}

bool install(int fd, PageSlot slot) {
  std::lock_guard lock(pages.coming);
  auto& place = pages.mapped[slot.index];
  const LeasePage* page = map_lease_page(fd, place_of(place.load(std::memory_order_relaxed)));
  if (page == nullptr) return false;
  place.store(page, std::memory_order_release);
  auto others =
      std::ranges::count_if(pages.mapped, [](const auto& each) { return each.load() != nullptr; }) - 1;
  if (others == 0 && !pages.several.load(std::memory_order_relaxed))
    return map_lease_page(fd, &mapped) != nullptr;
  if (!gather_in_own_page()) return false;
  gather();
  is_open();
  return true;
}

// The number of a pause is the value of the gate in `pages.own` during the pause. No two pauses have the same
// value.
std::uint32_t pause() {
  std::uint32_t number = 0;
  {
    std::lock_guard lock(pages.coming);
    if (!open_in(pages.own) || !gather_in_own_page()) return 0;
    gather();
    pages.pausable.store(true, std::memory_order_release);
    number = pages.own.gate.fetch_add(1, std::memory_order_acq_rel) + 1;
  }
  is_open();
  return number;
}

void resume(std::uint32_t pause) {
  if (!pages.own.gate.compare_exchange_strong(pause, pause + 1)) return;
  is_open();
  wake_gate(pages.own);
}

bool paused() { return !open_in(pages.own); }

bool contended(PageSlot slot) {
  gather();
  const LeasePage* page = pages.mapped[slot.index].load(std::memory_order_acquire);
  return page != nullptr && page->contended.load(std::memory_order_relaxed) != 0;
}

void leave_open(PageSlot slot) {
  std::lock_guard lock(pages.coming);
  const LeasePage* page = pages.mapped[slot.index].load(std::memory_order_relaxed);
  if (page != nullptr) put_own_page(place_of(page), LeasePage::kSize, kOpen);
  if (!pages.several.load(std::memory_order_relaxed)) put_own_page(&mapped, sizeof mapped, kOpen);
}

void forget_pages() {
  new (&pages.coming) std::mutex;  // the mutex may have been held by a thread of the parent
  for (auto& place : pages.mapped)
    if (const LeasePage* page = place.exchange(nullptr)) munmap(place_of(page), LeasePage::kSize);
  pages.several.store(false, std::memory_order_relaxed);
  pages.pausable.store(false, std::memory_order_relaxed);
  pages.own.gate.store(kOpen, std::memory_order_relaxed);
}

}  // namespace sharedgpu::gate
