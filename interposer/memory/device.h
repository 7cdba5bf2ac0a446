// SPDX-License-Identifier: Apache-2.0
// What the memory asks of the driver, and nothing more: tests put a device with real bytes and injected
// failures in the driver's place.
//
// Safe for any thread, but copies and wait() are for the one thread that has entered. Every call returns the
// driver's error code; one that fails has changed nothing, unless it says so.
#pragma once

#include <cuda.h>

#include <span>
#include <vector>

#include "interposer/memory/fingerprint.h"
#include "protocol/units.h"

namespace sharedgpu {

// Physical memory made by create(). It lives as long as a reference to it or a mapping of it.
using Physical = CUmemGenericAllocationHandle;

// An order of copies: those on one lane run one after another, lanes run side by side.
struct Lane {
  static constexpr unsigned kCount = 4;  // for copies
  static constexpr unsigned kLooks = 4;  // the lane of fingerprints()
  static constexpr unsigned kAll = 5;
  unsigned index = 0;
};

// What fingerprints() is asked about.
struct Look {
  CUdeviceptr address = 0;
  Bytes size;
};

class Device {
 public:
  virtual ~Device() = default;

  // Physical memory comes in multiples of this, and so does mapping.
  virtual Bytes granularity() const = 0;

  virtual CUresult reserve(CUdeviceptr* base, Bytes size) = 0;
  // The context with which the driver takes what this thread reserves now; null: none.
  virtual CUcontext goes_with() { return nullptr; }
  virtual CUresult unreserve(CUdeviceptr base, Bytes size) = 0;
  // Whether that waits for all work on the GPU.
  virtual bool unreserve_waits() const { return false; }

  // Scrubbed by the driver. CUDA_ERROR_OUT_OF_MEMORY also while the driver still takes apart what another
  // process gave up.
  // `kind` null: as cuMemAlloc's memory is; else what the program wanted of cuMemCreate.
  virtual CUresult create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) = 0;
  // One more reference to what is mapped here.
  virtual CUresult retain(Physical* physical, CUdeviceptr address) = 0;
  // Gives the reference back. What is mapped lives on until it is unmapped.
  virtual CUresult release(Physical physical) = 0;
  virtual CUresult map(CUdeviceptr address, Bytes size, Physical physical) = 0;
  virtual CUresult allow_access(CUdeviceptr address, Bytes size) = 0;
  virtual CUresult set_access(CUdeviceptr address, Bytes size,
                              const std::vector<CUmemAccessDesc>& access) = 0;
  // Waits for nothing: the caller knows that no work touches it.
  virtual CUresult unmap(CUdeviceptr address, Bytes size) = 0;
  // Whether memory may be handed to other processes.
  virtual bool exportable() const = 0;
  // A descriptor, the caller's, of the physical memory that is mapped here, for other processes to map. The
  // memory lives as long as the descriptor.
  virtual CUresult export_memory(CUdeviceptr address, int* descriptor) = 0;

  // Makes the context of the process current on this thread, which need not have one, and lets this thread
  // synchronize beside a capture. Before copies and wait(); then leave().
  virtual CUresult enter() = 0;
  virtual void leave() = 0;

  // Asynchronous. `host` should be pinned.
  virtual CUresult copy_out(Lane lane, std::byte* host, CUdeviceptr from, Bytes size) = 0;
  virtual CUresult copy_in(Lane lane, CUdeviceptr to, const std::byte* host, Bytes size) = 0;
  // Writes the same 32-bit word everywhere. Asynchronous.
  virtual CUresult fill(Lane /*lane*/, CUdeviceptr /*to*/, Bytes /*size*/, std::uint32_t /*word*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // How much fingerprints() may be asked about at once.
  static constexpr Bytes kMostLooked = gibibytes(1);
  // The fingerprints of accessible ranges, for each in `found`: waits for them, on a lane of its own. After a
  // failure nothing is known, and the lane is to be waited for: memory may still be read. Where it succeeds,
  // fill() is there too. CUDA_ERROR_NOT_SUPPORTED: this device or this driver cannot do that now.
  virtual CUresult fingerprints(std::span<const Look> /*ranges*/, Fingerprint* /*found*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Of managed memory: sends the pages of the range to the GPU, or to the host. Asynchronous. Their contents
  // are never in danger: where it fails, some pages may have moved.
  enum class Side { gpu, host };
  virtual CUresult prefetch(Lane /*lane*/, CUdeviceptr /*address*/, Bytes /*size*/, Side /*to*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Waits for all copies on the lane. After a failure they may still be under way, or never come.
  virtual CUresult wait(Lane lane) = 0;

  // Pins host memory for fast copies, and lets it go. A thread of its own may do so beside the one that has
  // entered.
  virtual CUresult pin_host(std::byte* data, Bytes size) = 0;
  virtual CUresult unpin_host(std::byte* data) = 0;

  // Waits for all work that may use the device's memory, as cuMemFree does. The thread has not entered.
  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: not during a capture.
  virtual CUresult synchronize() = 0;

  // Whether the driver will answer every call with an error from now on: the GPU is gone, or a kernel has
  // failed. The thread has not entered, and no work is under way.
  virtual bool lost() = 0;
  // Whether the driver is shutting down, since the process ends. From any thread.
  virtual bool ending() = 0;
};

// Entered from construction to destruction, where ok().
class DeviceScope {
 public:
  explicit DeviceScope(Device& device) : device_(device), result_(device.enter()) {}
  ~DeviceScope() {
    if (ok()) device_.leave();
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  bool ok() const { return result_ == CUDA_SUCCESS; }

 private:
  Device& device_;
  CUresult result_;
};

}  // namespace sharedgpu
