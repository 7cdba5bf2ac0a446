// SPDX-License-Identifier: Apache-2.0
// Managed memory of one device: the program and kernels access it wherever its pages are.
//
// A page has no memory yet, or lies on the host, or on the device, where it takes device memory. Work moves
// the pages that it touches to its device, and a prefetch does the same; if the device is full, other managed
// pages of any process leave it, least recently used first. The device counts the bytes that work moves to it
// without a prefetch. Advice can keep pages that are not on the device on the host, where work accesses them
// over the bus. Accesses by the program's CPU code are not noticed, and move no pages. Safe from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/simgpu/address_space.h"

namespace sharedgpu::simgpu {

class Managed {
 public:
  Managed(AddressSpace& space, SharedDevice& device, int number)
      : space_(space),
        device_(device),
        store_(std::make_shared<PhysicalStore>(device, number, PhysicalStore::Charge::none)) {}

  // `owner` identifies the memory for free_all_of().
  Address allocate(Bytes size, const void* owner);
  // Returns false if `begin` is no allocation of this device.
  bool free(Address begin);
  void free_all_of(const void* owner);
  // The allocation that contains `at`, with the requested size.
  std::optional<Range> find(Address at);

  // Called for ranges that work on the device needs: their pages come by faults. Returns the bytes moved.
  Bytes touch(const Range& range);
  // The bytes of the range that work on the device accesses over the bus.
  Bytes stays_on_host(const Range& range);
  // Prefetches; each returns the number of bytes moved. movable(): the bytes that a prefetch would move.
  Bytes movable(const Range& range, bool to_device);
  Bytes bring(const Range& range);
  Bytes send_away(const Range& range);
  // cuMemAdvise(). `host`: the preferred location is the host; otherwise it is a device, or there is none.
  void prefer(const Range& range, bool host);
  void set_accessed_by(const Range& range, bool accessed);

 private:
  enum class Place { nowhere, host, device };
  struct Page {
    Place place = Place::nowhere;
    bool prefers_host = false;
    bool accessed_by = false;   // the device keeps the page mapped wherever it is, so that no access faults
    std::uint64_t touched = 0;  // the time of the last touch, by a count of touches
  };
  struct Block {
    Bytes size;
    const void* owner = nullptr;
    std::vector<Page> pages;
  };
  using Blocks = std::map<Address, Block>;

  // Call this with the lock held.
  Blocks::iterator block_at(Address at);
  std::vector<Page*> pages_of(const Range& range);
  static bool stays(const Page& page);
  Bytes to_device(const std::vector<Page*>& pages);
  template <class Change>
  void change(const Range& range, Change change);
  void to_host(Page& page);
  void notice_what_left(Bytes left);
  void give_back(Blocks::iterator block);

  AddressSpace& space_;
  SharedDevice& device_;
  const std::shared_ptr<PhysicalStore> store_;
  std::mutex mutex_;
  Blocks blocks_;
  std::uint64_t touches_ = 0;
  Bytes resident_;
};

}  // namespace sharedgpu::simgpu
