// SPDX-License-Identifier: Apache-2.0
// The Device of a real GPU, built on the driver's own functions.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/memory/device.h"
#include "interposer/memory/driver_calls.h"
#include "interposer/memory/fingerprint_launcher.h"

namespace sharedgpu {

class DriverDevice : public Device {
 public:
  // Waits until all contexts of these devices have finished their work.
  using Synchronize = std::function<CUresult(const std::vector<CUdevice>& devices)>;
  // `calls` is copied. The constructor only queries attributes and the granularity from the driver.
  // DriverDevice::synchronize() calls `synchronize`.
  DriverDevice(const DriverCalls& calls, CUdevice device, Synchronize synchronize = {});

  // Sets the context in which copies run. If `context` is null, copies fail with CUDA_ERROR_INVALID_CONTEXT.
  // Thread-safe. Must be called with null or another context before the current one is destroyed.
  void use_context(CUcontext context);

  // Determines whether another device gets access to memory that is mapped after this call.
  void set_peer(CUdevice peer, bool allowed);

  // The host NUMA node nearest to the GPU; nullopt if neither the driver nor the Linux kernel knows it.
  std::optional<unsigned> host_node() const;

  Bytes granularity() const override { return granularity_; }
  CUresult reserve(CUdeviceptr* base, Bytes size) override;
  CUresult unreserve(CUdeviceptr base, Bytes size) override;
  CUresult create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) override;
  CUresult create_on_host(Physical* physical, Bytes size) override;
  CUresult retain(Physical* physical, CUdeviceptr address) override;
  CUresult release(Physical physical) override;
  CUresult map(CUdeviceptr address, Bytes size, Physical physical) override;
  CUresult allow_access(CUdeviceptr address, Bytes size) override;
  CUresult set_access(CUdeviceptr address, Bytes size, const std::vector<CUmemAccessDesc>& access) override;
  CUresult unmap(CUdeviceptr address, Bytes size) override;
  bool exportable() const override { return exportable_.load(std::memory_order_relaxed); }
  CUresult export_memory(CUdeviceptr address, int* descriptor) override;
  CUresult enter() override;
  void leave() override;
  CUresult copy_out(Lane lane, std::byte* host, CUdeviceptr from, Bytes size) override;
  CUresult copy_in(Lane lane, CUdeviceptr to, const std::byte* host, Bytes size) override;
  CUresult copy(Lane lane, CUdeviceptr to, CUdeviceptr from, Bytes size) override;
  CUresult fill(Lane lane, CUdeviceptr to, Bytes size, std::uint32_t word) override;
  CUresult fingerprints(std::span<const Look> ranges, Fingerprint* found) override;
  CUresult wait(Lane lane) override;
  CUresult pin_host(std::byte* data, Bytes size) override;
  CUresult unpin_host(std::byte* data) override;
  CUresult synchronize() override;
  bool lost() override;
  bool ending() override;

 protected:
  CUdevice device() const { return device_; }
  const DriverCalls& calls() const { return calls_; }
  CUresult stream_of(Lane lane, CUstream* stream);

 private:
  std::vector<CUdevice> users() const;
  CUmemAllocationProp properties(bool exportable) const;
  std::optional<int> attribute(CUdevice_attribute name) const;
  bool has(CUdevice_attribute name) const { return attribute(name).value_or(0) != 0; }
  // Enter and leave the context. push() sets the thread's capture mode to relaxed and keeps the old mode in
  // `mode`; pop() restores it.
  CUresult push(CUstreamCaptureMode& mode);
  void pop(CUstreamCaptureMode& mode);
  void drop_context();
  template <class Call>
  CUresult within_context(Call call);

  const DriverCalls calls_;
  const CUdevice device_;
  const bool rdma_;               // memory may be registered with network cards
  std::atomic<bool> exportable_;  // memory can be exported to other processes
  Bytes granularity_;
  const Synchronize synchronize_;

  mutable std::mutex peers_mutex_;
  std::vector<CUdevice> peers_;

  // context_mutex_ is held from enter() to leave(), pinning_mutex_ while host memory is pinned or unpinned.
  // While either mutex is held, the context is not destroyed.
  std::mutex context_mutex_;
  std::mutex pinning_mutex_;
  std::atomic<CUcontext> context_{nullptr};     // written with both mutexes held
  std::array<CUstream, Lane::kAll> streams_{};  // created at first use
  FingerprintLauncher launcher_{calls_};
  CUstreamCaptureMode capture_mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace sharedgpu
