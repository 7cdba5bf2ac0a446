// SPDX-License-Identifier: Apache-2.0
#define __CUDA_API_VERSION_INTERNAL
#include "interposer/memory/fingerprint_launcher.h"

#include <optional>

#include "interposer/memory/fingerprint_kernel.h"

namespace sharedgpu {
namespace {

using fingerprint::kPart;
using fingerprint::Part;

constexpr std::size_t kParts = Device::kMostLooked.count / kPart.count;

}  // namespace

// Loads the kernel at first use. If loading has failed for lack of memory, the next call tries again. After
// any other error, no call tries again in this context.
CUresult FingerprintLauncher::prepare() {
  if (state_ == CUDA_ERROR_NOT_READY || state_ == CUDA_ERROR_OUT_OF_MEMORY) {
    const CUresult result = load();
    if (result != CUDA_SUCCESS) unload();
    state_ = result;
  }
  return state_;
}

CUresult FingerprintLauncher::load() {
  if (!calls_.can_look()) return CUDA_ERROR_NOT_SUPPORTED;
  if (key_ == nullptr) {
    key_ = std::make_unique<fingerprint::Key>();
    if (!fingerprint::draw(key_.get())) {
      key_.reset();
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  CUresult result = calls_.cuModuleLoadData(&module_, fingerprint::kKernelPtx);
  if (result != CUDA_SUCCESS) module_ = nullptr;
  if (result == CUDA_SUCCESS)
    result = calls_.cuModuleGetFunction(&kernel_, module_, fingerprint::kKernelName);
  void* parts = nullptr;
  if (result == CUDA_SUCCESS)
    result = calls_.cuMemHostAlloc(&parts, kParts * sizeof(Part), CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) parts_ = static_cast<Part*>(parts);
  return result;
}

void FingerprintLauncher::unload() {
  if (module_ != nullptr) calls_.cuModuleUnload(module_);
  if (parts_ != nullptr) calls_.cuMemFreeHost(parts_);
  forget();
}

void FingerprintLauncher::forget() {
  module_ = nullptr;
  kernel_ = nullptr;
  parts_ = nullptr;
  state_ = CUDA_ERROR_NOT_READY;
}

CUresult FingerprintLauncher::look(CUstream stream, std::span<const Look> ranges, Fingerprint* found) {
  CUresult result = prepare();
  if (result != CUDA_SUCCESS) return CUDA_ERROR_NOT_SUPPORTED;
  ++stamp_;
  std::size_t used = 0;
  for (const Look& range : ranges) {
    const std::uint64_t count = fingerprint::parts_in(range.size);
    if (range.size.count != count * kPart.count || count > fingerprint::kMostParts || used + count > kParts)
      return CUDA_ERROR_NOT_SUPPORTED;
    used += count;
  }
  used = 0;
  for (const Look& range : ranges) {
    std::uint64_t count = fingerprint::parts_in(range.size);
    CUdeviceptr data = range.address;
    // With unified addressing, host and GPU use the same address.
    auto parts = reinterpret_cast<CUdeviceptr>(parts_ + used);
    void* parameters[] = {&data, &count, &parts, &stamp_, &key_->kernel};
    result = calls_.cuLaunchKernel(kernel_, static_cast<unsigned>(count), 1, 1, fingerprint::kThreads, 1, 1,
                                   0, stream, parameters, nullptr);
    if (result != CUDA_SUCCESS) return result;
    used += count;
  }
  result = calls_.cuStreamSynchronize(stream);
  if (result != CUDA_SUCCESS) return result;
  const Part* parts = parts_;
  for (const Look& range : ranges) {
    const std::optional<Fingerprint> one = fingerprint::combine(*key_, parts, range.size, stamp_);
    if (!one) return CUDA_ERROR_UNKNOWN;
    *found++ = *one;
    parts += fingerprint::parts_in(range.size);
  }
  return CUDA_SUCCESS;
}

}  // namespace sharedgpu
