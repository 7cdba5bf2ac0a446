// SPDX-License-Identifier: Apache-2.0
// Launches the fingerprint kernel in the current context. The kernel is compiled at its first use in a
// context, and is lost when this context is destroyed.
//
// Only the thread that has made the context current may call look() and unload(). Fingerprints are optional:
// after a failure, contents are copied without a fingerprint.
#pragma once

#include <cuda.h>

#include <memory>
#include <span>

#include "interposer/memory/device.h"
#include "interposer/memory/driver_calls.h"
#include "interposer/memory/fingerprint.h"

namespace sharedgpu {

class FingerprintLauncher {
 public:
  explicit FingerprintLauncher(const DriverCalls& calls) : calls_(calls) {}

  // Implements Device::fingerprints on `stream`.
  CUresult look(CUstream stream, std::span<const Look> ranges, Fingerprint* found);
  // Call unload() if the context is current and about to be destroyed. Call forget() if the context has
  // already been destroyed.
  void unload();
  void forget();

  // Null before the first fingerprint. For tests.
  const fingerprint::Key* key() const { return key_.get(); }

 private:
  CUresult prepare();
  CUresult load();

  const DriverCalls& calls_;
  std::unique_ptr<fingerprint::Key> key_;  // drawn once, at the first fingerprint
  std::uint64_t stamp_ = 0;

  // The members below belong to the current context.
  CUresult state_ = CUDA_ERROR_NOT_READY;  // the result of loading the kernel; NOT_READY before the first
                                           // attempt
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  fingerprint::Part* parts_ = nullptr;  // pinned host memory, to which the kernel writes
};

}  // namespace sharedgpu
