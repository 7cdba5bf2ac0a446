// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/settle.h"

#include <ctime>

#include "interposer/gate/gate.h"
#include "interposer/hooks/pools.h"
#include "interposer/session/session.h"

namespace sharedgpu::hooks {

// The leave is asked for outside the gate: who waits for the arbiter inside it would hold up a drain.
CUresult settle(const session::Place& place, CUdeviceptr address, Bytes size) {
  for (;;) {
    { gate::Pass in_our_turn; }
    CUresult result = place.memory->settle(address, size);
    if (result != CUDA_ERROR_NOT_READY) return result;
    timespec nap = {.tv_sec = 0, .tv_nsec = 1'000'000};  // the turn ended in between
    nanosleep(&nap, nullptr);
  }
}

std::optional<session::Place> allocation_at(CUdeviceptr address) {
  auto place = session::find(address);
  if (!place) return std::nullopt;
  if (auto pooled = pools().find(address)) place->range = pooled->range;
  return place;
}

}  // namespace sharedgpu::hooks
