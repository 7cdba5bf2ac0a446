// SPDX-License-Identifier: Apache-2.0
// Managed memory of one device. The program and kernels can access each page, whether it is on the host or on
// the device.
//
// A page is nowhere until it is first used. From then on, it is on the host, or on the device, where it takes
// device memory. Kernels, copies, memsets and prefetches move the pages that they use to the device. If the
// device is full, other managed pages of any process leave it, least recently used first. The device counts
// the bytes that page faults move to it, and the bytes that leave it to make room. Accesses by the program's
// CPU code move no pages, and do not count as uses. Safe from any thread.
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

  // Moves the pages of a range to the device, as the page faults of a kernel do. Ignores other memory.
  void touch(const Range& range);
  // Prefetches the range to the device or to the host. Returns the number of bytes that moved.
  Bytes bring(const Range& range);
  Bytes send_away(const Range& range);

 private:
  enum class Place { nowhere, host, device };
  struct Page {
    Place place = Place::nowhere;
    std::uint64_t touched = 0;  // the value of `touches_` at the last touch
  };
  struct Block {
    Bytes size;
    const void* owner = nullptr;
    std::vector<Page> pages;
  };
  using Blocks = std::map<Address, Block>;

  // Call these functions with the lock held.
  Blocks::iterator block_at(Address at);
  std::vector<Page*> pages_of(const Range& range);
  Bytes to_device(const Range& range);
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
