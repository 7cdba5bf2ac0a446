// SPDX-License-Identifier: Apache-2.0
// The work of streams: kernels, copies, memsets and host functions, with their effects and modelled times.
#pragma once

#include <cuda.h>

#include <memory>

#include "tests/simgpu/kernels.h"
#include "tests/simgpu/semaphore.h"
#include "tests/simgpu/stream.h"

namespace sharedgpu::simgpu {

// A copy of `height` rows of `width` bytes. A plain copy has one row. The addresses show which sides are
// device memory.
struct CopyPlan {
  Address target = 0;
  Address source = 0;
  std::size_t width = 0;
  std::size_t height = 1;
  std::size_t target_pitch = 0;
  std::size_t source_pitch = 0;
  // The devices whose access rights apply: the context's device, or for cuMemcpyPeer its two devices.
  int target_device = 0;
  int source_device = 0;
  std::shared_ptr<std::vector<char>> staging;  // the memory at `source`, if it is a copy of the program's

  Bytes size() const { return {width * height}; }
  Range target_range() const {
    return {target, {(height - 1) * target_pitch + width}, true, target_device, true};
  }
  Range source_range() const {
    return {source, {(height - 1) * source_pitch + width}, false, source_device, true};
  }
};

struct SetPlan {
  Address target = 0;
  std::uint32_t value = 0;
  std::size_t element = 1;  // bytes
  std::size_t width = 0;    // elements
  std::size_t height = 1;
  std::size_t pitch = 0;

  Range range() const { return {target, {(height - 1) * pitch + width * element}, true}; }
};

Work kernel_work(const Kernel& kernel, Arguments arguments);
Work copy_work(CopyPlan plan);
Work set_work(SetPlan plan);
// Runs the works of a graph one after the other.
Work graph_work(std::vector<Work> works);
// Prefetches managed memory of `range.device` to this device, or to the host.
Work prefetch_work(const Range& range, bool to_device);

// write_work() writes a word of memory. wait_work() waits until the word has the value, compared by `how`, a
// CUstreamWaitValue_flags. By such words, streams wait for each other, even in different processes.
Work write_work(Address word, std::uint32_t value);
Work wait_work(Address word, std::uint32_t value, unsigned how);

struct SemaphoreValue {
  std::shared_ptr<Semaphore> semaphore;
  std::uint64_t value;
};
Work signal_work(std::vector<SemaphoreValue> values);
Work semaphore_wait_work(std::vector<SemaphoreValue> values);

Work host_work(CUhostFn function, void* data);

}  // namespace sharedgpu::simgpu
