// SPDX-License-Identifier: Apache-2.0
// The driver functions that the memory backends need, and nothing more. Tests substitute a device with real
// bytes and injected failures for the driver.
//
// Thread-safe, except that only the thread that has called enter() may call wait() and the functions that
// work on a lane (copies, fill(), fingerprints(), prefetch()). Every call returns the driver's error code. A
// call that fails has changed nothing, unless its comment says otherwise.
#pragma once

#include <cuda.h>

#include <span>
#include <vector>

#include "interposer/memory/fingerprint.h"
#include "protocol/units.h"

namespace sharedgpu {

// Physical memory made by create(). Physical memory exists as long as there is a reference to it or a mapping
// of it.
using Physical = CUmemGenericAllocationHandle;

// A queue of copies. Copies on one lane run one after another; lanes run in parallel.
struct Lane {
  static constexpr unsigned kCount = 4;  // number of lanes for copies
  static constexpr unsigned kLooks = 4;  // index of the lane that fingerprints() uses
  static constexpr unsigned kAll = 5;
  unsigned index = 0;
};

// A range whose fingerprint fingerprints() must compute.
struct Look {
  CUdeviceptr address = 0;
  Bytes size;
};

class Device {
 public:
  virtual ~Device() = default;

  // The size of physical memory and of a mapping is a multiple of this.
  virtual Bytes granularity() const = 0;

  virtual CUresult reserve(CUdeviceptr* base, Bytes size) = 0;
  // Returns the context whose destruction would free a range that this thread reserves now; null if there is
  // no such context.
  virtual CUcontext goes_with() { return nullptr; }
  virtual CUresult unreserve(CUdeviceptr base, Bytes size) = 0;
  // Returns true if unreserve() waits for all work on the GPU.
  virtual bool unreserve_waits() const { return false; }

  // Creates physical memory, which the driver has scrubbed. Also fails with CUDA_ERROR_OUT_OF_MEMORY while
  // the driver is still releasing another process's memory. `kind`: the properties that the program passed to
  // cuMemCreate; null for memory of cuMemAlloc.
  virtual CUresult create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) = 0;
  // Creates host memory that map() maps like device memory. The GPU uses it over the bus: slowly, but
  // correctly. No cgroup is charged for it, so HostBudget counts it. The driver has scrubbed it.
  virtual CUresult create_on_host(Physical* /*physical*/, Bytes /*size*/) { return CUDA_ERROR_NOT_SUPPORTED; }
  // Takes one more reference to the memory that is mapped at `address`.
  virtual CUresult retain(Physical* physical, CUdeviceptr address) = 0;
  // Releases the reference. Mapped memory stays until it is unmapped.
  virtual CUresult release(Physical physical) = 0;
  virtual CUresult map(CUdeviceptr address, Bytes size, Physical physical) = 0;
  virtual CUresult allow_access(CUdeviceptr address, Bytes size) = 0;
  virtual CUresult set_access(CUdeviceptr address, Bytes size,
                              const std::vector<CUmemAccessDesc>& access) = 0;
  // Does not wait. Call this only if no work uses the memory.
  virtual CUresult unmap(CUdeviceptr address, Bytes size) = 0;
  // Returns true if memory can be exported to other processes.
  virtual bool exportable() const = 0;
  // Returns a descriptor with which other processes can map the physical memory that is mapped at `address`.
  // The caller owns the descriptor. The memory exists at least as long as the descriptor.
  virtual CUresult export_memory(CUdeviceptr address, int* descriptor) = 0;

  // Makes the context of the process current on this thread, even if the thread has no context. Lets this
  // thread synchronize during a capture. Called before copies and wait(). leave() undoes enter().
  virtual CUresult enter() = 0;
  virtual void leave() = 0;

  // Asynchronous copies. `host` should be pinned.
  virtual CUresult copy_out(Lane lane, std::byte* host, CUdeviceptr from, Bytes size) = 0;
  virtual CUresult copy_in(Lane lane, CUdeviceptr to, const std::byte* host, Bytes size) = 0;
  // Copies between two mapped ranges, which do not overlap. Asynchronous.
  virtual CUresult copy(Lane /*lane*/, CUdeviceptr /*to*/, CUdeviceptr /*from*/, Bytes /*size*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Writes the same 32-bit word to the whole range. Asynchronous.
  virtual CUresult fill(Lane /*lane*/, CUdeviceptr /*to*/, Bytes /*size*/, std::uint32_t /*word*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // The most bytes that one call of fingerprints() may cover.
  static constexpr Bytes kMostLooked = gibibytes(1);
  // Computes the fingerprint of each range into `found`, on the lane kLooks, and waits for the result. The
  // ranges must be accessible. After a failure `found` is undefined, and the caller must call wait() for this
  // lane, since the kernel may still read memory. A device that supports fingerprints() supports fill() too.
  // Returns CUDA_ERROR_NOT_SUPPORTED if this device or driver cannot compute fingerprints now, or not of
  // ranges of these sizes.
  virtual CUresult fingerprints(std::span<const Look> /*ranges*/, Fingerprint* /*found*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Migrates the pages of a range of managed memory to the GPU or to the host. Asynchronous. A failure may
  // leave some pages moved, but never loses contents.
  enum class Side { gpu, host };
  virtual CUresult prefetch(Lane /*lane*/, CUdeviceptr /*address*/, Bytes /*size*/, Side /*to*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Waits for all copies on the lane. After a failure, copies may still be running, or never complete.
  virtual CUresult wait(Lane lane) = 0;

  // Pin and unpin host memory for fast copies. Any thread may call both functions, even while another thread
  // has entered.
  virtual CUresult pin_host(std::byte* data, Bytes size) = 0;
  virtual CUresult unpin_host(std::byte* data) = 0;

  // Waits for all work that may use the device's memory, as cuMemFree does. Call it only from a thread that
  // has not called enter(). Returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED during a capture.
  virtual CUresult synchronize() = 0;

  // Returns true if the driver will answer every call with an error from now on: the GPU is lost, or a kernel
  // has failed. Call it only from a thread that has not called enter(), and while no work is running.
  virtual bool lost() = 0;
  // Returns true if the driver is shutting down because the process ends. Thread-safe.
  virtual bool ending() = 0;
};

// The constructor calls enter(). If this has succeeded, the destructor calls leave().
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
