// SPDX-License-Identifier: Apache-2.0
// The Device of a GPU's managed memory, built on the driver's own functions.
#pragma once

#include "interposer/memory/driver_device.h"

namespace sharedgpu {

// The real driver's functions. CUDA 12.2 added new versions of prefetch and advise; the old version is used
// if the driver has it. Both versions of advise may be null.
struct ManagedCalls {
  CUresult (*allocate)(CUdeviceptr* address, std::size_t size, unsigned flags) = nullptr;
  CUresult (*free)(CUdeviceptr address) = nullptr;
  CUresult (*prefetch)(CUdeviceptr address, std::size_t size, CUdevice to, CUstream stream) = nullptr;
  CUresult (*prefetch_v2)(CUdeviceptr address, std::size_t size, CUmemLocation to, unsigned flags,
                          CUstream stream) = nullptr;
  CUresult (*advise)(CUdeviceptr address, std::size_t size, CUmem_advise advice, CUdevice device) = nullptr;
  CUresult (*advise_v2)(CUdeviceptr address, std::size_t size, CUmem_advise advice,
                        CUmemLocation location) = nullptr;

  CUresult (*current)(CUcontext* context) = nullptr;

  bool complete() const { return allocate && free && (prefetch || prefetch_v2) && current; }
};

// Describes the feature that `device` or the driver lacks for this backend; null if nothing is missing.
const char* lacks_for_managed(const DriverCalls& calls, const ManagedCalls& managed, CUdevice device);

class ManagedDevice final : public DriverDevice {
 public:
  ManagedDevice(const DriverCalls& calls, const ManagedCalls& managed, CUdevice device,
                Synchronize synchronize = {})
      : DriverDevice(calls, device, std::move(synchronize)), managed_(managed) {}

  // The largest page size of hosts and GPUs for managed memory. With this granularity, no page belongs to two
  // allocations.
  Bytes granularity() const override { return kibibytes(64); }
  // Allocates managed memory in the calling thread's context.
  CUresult reserve(CUdeviceptr* base, Bytes size) override;
  CUresult unreserve(CUdeviceptr base, Bytes size) override;
  bool unreserve_waits() const override { return true; }
  CUcontext goes_with() override;
  // Does nothing, because all devices may access managed memory.
  CUresult allow_access(CUdeviceptr /*address*/, Bytes /*size*/) override { return CUDA_SUCCESS; }
  bool exportable() const override { return false; }
  CUresult prefetch(Lane lane, CUdeviceptr address, Bytes size, Side to) override;
  CUresult keep_on(Side side, CUdeviceptr address, Bytes size) override;
  bool keeps_on_host() const override { return managed_.advise != nullptr || managed_.advise_v2 != nullptr; }

 private:
  CUresult advise(CUdeviceptr address, Bytes size, CUmem_advise advice, CUdevice device) const;

  const ManagedCalls managed_;
};

}  // namespace sharedgpu
