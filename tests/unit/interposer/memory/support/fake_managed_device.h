// SPDX-License-Identifier: Apache-2.0
// A FakeDevice whose reservations are managed memory: their bytes always exist. Prefetches to the host and
// the advice to keep pages there are recorded.
#pragma once

#include <sys/mman.h>

#include <functional>
#include <iterator>
#include <set>

#include "tests/unit/interposer/memory/support/fake_device.h"

namespace sharedgpu::test {

class FakeManagedDevice final : public FakeDevice {
 public:
  CUcontext current = nullptr;
  std::function<void()> before_unreserve;

  Bytes on_host() const {
    const std::lock_guard lock(mutex_);
    Bytes sum;
    for (const auto& [address, size] : on_host_) sum += size;
    return sum;
  }

  CUresult reserve(CUdeviceptr* base, Bytes size) override {
    const CUresult result = FakeDevice::reserve(base, size);
    if (result == CUDA_SUCCESS) mprotect(reinterpret_cast<void*>(*base), size.count, PROT_READ | PROT_WRITE);
    return result;
  }
  CUresult unreserve(CUdeviceptr base, Bytes size) override {
    if (before_unreserve) before_unreserve();
    const CUresult result = FakeDevice::unreserve(base, size);
    const std::lock_guard lock(mutex_);
    if (result == CUDA_SUCCESS) {
      on_host_.erase(on_host_.lower_bound(base), on_host_.lower_bound(base + size.count));
      kept_on_host_.erase(kept_on_host_.lower_bound(base), kept_on_host_.lower_bound(base + size.count));
    }
    return result;
  }
  // Returns true if the driver leaves the pages of the handle at `address` on the host.
  bool is_kept_on_host(CUdeviceptr address) const {
    const std::lock_guard lock(mutex_);
    return kept_on_host_.contains(address);
  }
  CUresult keep_on(Side side, CUdeviceptr address, Bytes /*size*/) override {
    const std::lock_guard lock(mutex_);
    CUresult code{};
    if (fails(&code)) return code;
    if (refuses_advice) return CUDA_ERROR_INVALID_DEVICE;
    const auto after = ranges().upper_bound(address);
    expect(after != ranges().begin(), "keep_on: bad address");
    if (side == Side::host)
      kept_on_host_.insert(address);
    else
      kept_on_host_.erase(address);
    return CUDA_SUCCESS;
  }
  bool keeps_on_host() const override { return advisable; }
  bool advisable = true;
  bool refuses_advice = false;
  bool unreserve_waits() const override { return true; }
  CUresult allow_access(CUdeviceptr /*address*/, Bytes /*size*/) override { return CUDA_SUCCESS; }
  bool exportable() const override { return false; }
  CUcontext goes_with() override { return current; }

  CUresult prefetch(Lane lane, CUdeviceptr address, Bytes size, Side to) override {
    const std::lock_guard lock(mutex_);
    CUresult code{};
    if (fails(&code)) return code;
    const auto after = ranges().upper_bound(address);
    expect(entered() && after != ranges().begin() &&
               address + size.count <= std::prev(after)->first + std::prev(after)->second.count,
           "prefetch: bad addresses");
    under_way_[lane.index].push_back({address, size, to});
    return CUDA_SUCCESS;
  }
  // A prefetch takes effect only here, as late as the interface permits.
  CUresult wait(Lane lane) override {
    const CUresult result = FakeDevice::wait(lane);
    const std::lock_guard lock(mutex_);
    if (result != CUDA_SUCCESS) return result;
    for (const Prefetch& each : under_way_[lane.index]) {
      if (each.to == Side::host)
        on_host_[each.address] = each.size;
      else
        on_host_.erase(each.address);
    }
    under_way_[lane.index].clear();
    return CUDA_SUCCESS;
  }

 private:
  struct Prefetch {
    CUdeviceptr address;
    Bytes size;
    Side to;
  };
  std::map<CUdeviceptr, Bytes> on_host_;
  std::set<CUdeviceptr> kept_on_host_;
  std::array<std::vector<Prefetch>, Lane::kCount> under_way_;
};

}  // namespace sharedgpu::test
