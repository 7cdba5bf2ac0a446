// SPDX-License-Identifier: Apache-2.0
// Host memory for handles that are away. A block is as large as its handle. Creating a block takes ten times
// longer than copying to it (20 ms for 64 MiB on an H100), so unused blocks are kept for reuse.
//
// A block stays mapped at an address of its own. So contents can be copied to and from the block while the
// block is not mapped at the handle's address.
//
// No cgroup is charged for this memory (measured: cuMemCreate with CU_MEM_LOCATION_TYPE_HOST_NUMA). So this
// class subtracts the blocks' memory from the job's budget itself. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/memory/device.h"
#include "interposer/memory/host_budget.h"

namespace sharedgpu {

struct AwayBlock {
  Physical physical = 0;
  CUdeviceptr home = 0;  // the block's own address
  Bytes size;
};

class AwayBlocks {
 public:
  // The device and the budget must outlive the object.
  AwayBlocks(Device& device, HostBudget& budget) : device_(device), budget_(budget) {}
  AwayBlocks(const AwayBlocks&) = delete;
  AwayBlocks& operator=(const AwayBlocks&) = delete;

  // Returns an unused block of exactly `size` bytes, or a new one; nullopt if the job's budget or the driver
  // has no memory for a new block.
  std::optional<AwayBlock> take(Bytes size);
  // The bytes that new and unused blocks may occupy in addition to the blocks in use. If `now` is given, the
  // result may lack changes of the last 100 ms before `now` (HostBudget::recent_room()).
  Bytes room(std::optional<Nanoseconds> now = {}) const;
  // Takes back a block that is mapped only at its own address.
  void give(const AwayBlock& block);
  // The size of all blocks, in use or not.
  Bytes held() const;
  // Releases unused blocks until their total size is at most `keep`, or the driver refuses. Returns true if a
  // block was released.
  bool trim(Bytes keep);

 private:
  using Unused = std::map<Bytes, std::vector<AwayBlock>>;  // the keys are sizes; no vector is empty

  AwayBlock pop(Unused::iterator size);
  std::optional<AwayBlock> create(Bytes size);
  bool destroy(const AwayBlock& block);
  void release(const AwayBlock& block);
  void count(Bytes size);
  void uncount(Bytes size);

  Device& device_;
  HostBudget& budget_;
  mutable std::mutex mutex_;  // guards the members below; never held across a call of the driver
  Unused unused_;
  Bytes unused_bytes_;
  Bytes held_;
};

}  // namespace sharedgpu
