// SPDX-License-Identifier: Apache-2.0
// The fingerprints' kernel in the context of the moment: compiled at first use, gone with the context.
//
// For the one thread that has made the context current. Nothing here is needed for a program to go on: every
// failure only means that contents are not looked at.
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

  // Device::fingerprints, by `stream`.
  CUresult look(CUstream stream, std::span<const Look> ranges, Fingerprint* found);
  // The context is about to go, and is current; or it has gone already, and what was in it too.
  void unload();
  void forget();

  // Null before the first look. For tests.
  const fingerprint::Key* key() const { return key_.get(); }

 private:
  CUresult prepare();
  CUresult load();

  const DriverCalls& calls_;
  std::unique_ptr<fingerprint::Key> key_;  // drawn once
  std::uint64_t stamp_ = 0;

  // The context's.
  CUresult state_ = CUDA_ERROR_NOT_READY;  // not yet tried; what came of it
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  fingerprint::Part* parts_ = nullptr;  // pinned: the kernel writes there
};

}  // namespace sharedgpu
