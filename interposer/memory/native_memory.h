// SPDX-License-Identifier: Apache-2.0
// The native backend: cuMemAlloc returns the driver's own memory, which never moves. This memory is counted
// as pinned, so that the arbiter gives other tenants only the rest of the GPU.
#pragma once

#include <map>
#include <mutex>

#include "interposer/memory/memory.h"

namespace sharedgpu {

// The real driver's functions.
struct NativeCalls {
  CUresult (*allocate)(CUdeviceptr* address, std::size_t size) = nullptr;
  CUresult (*free)(CUdeviceptr address) = nullptr;
};

class NativeMemory final : public Memory {
 public:
  // `patience` is how long allocate() waits for memory of another process that the driver has not released
  // yet.
  NativeMemory(const NativeCalls& calls, Books& books, Nanoseconds patience = std::chrono::seconds(2))
      : calls_(calls), books_(books), patience_(patience) {}

  CUresult allocate(CUdeviceptr* address, Bytes size) override;
  std::optional<CUresult> free(CUdeviceptr address) override;
  std::optional<CUresult> free_unused(CUdeviceptr address) override { return free(address); }
  CUresult free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) override;
  bool goes_with_contexts() const override { return true; }
  // The driver serves the program's pools, since pools must outlive contexts, and the memory of this backend
  // does not.
  bool serves_pools() const override { return false; }
  // Always nullopt: the driver itself exports this memory and answers queries about it.
  std::optional<AddressRange> find(CUdeviceptr /*address*/) const override { return std::nullopt; }
  CUresult pin(Bytes size) override;
  void pin_unasked(Bytes size) override;
  void unpin(Bytes size) override;
  void set_context_size(Bytes size) override;
  MemoryUse use() const override;
  void set_allowed(Bytes allowed) override;
  Bytes allowed() const override;
  // No memory can be evicted or restored, so these calls always succeed.
  bool evict() override { return true; }
  bool restore() override { return true; }
  void tend() override {}

 private:
  // The driver allocates memory for small blocks in pieces of this size, so this backend counts whole pieces.
  static constexpr Bytes kPiece = mebibytes(2);
  static Bytes counted(Bytes size) { return {(size.count + kPiece.count - 1) / kPiece.count * kPiece.count}; }
  bool take(Bytes size);
  void give(Bytes size);

  const NativeCalls calls_;
  Books& books_;
  const Nanoseconds patience_;

  std::mutex growth_;  // held by the thread that requests growth: two requests at once could be refused
                       // although one of them fits; taken before mutex_
  mutable std::mutex mutex_;  // never held during a call of the driver or of books_
  std::map<CUdeviceptr, Bytes> blocks_;
  Bytes allocated_;  // includes growth that is being requested
  Bytes pinned_;     // not included in allocated_
  Bytes context_;
  Bytes allowed_;
};

}  // namespace sharedgpu
