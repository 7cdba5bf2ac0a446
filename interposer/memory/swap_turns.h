// SPDX-License-Identifier: Apache-2.0
// Eviction and restore. Several handles are copied at once, each on its own lane (a queue of copies,
// device.h). The copies are completed in the order in which they began. Implements TurnMemory. Only the turn
// thread calls these functions, unless a comment says otherwise.
#pragma once

#include <deque>

#include "interposer/memory/swap_freeing.h"

namespace sharedgpu {

class SwapTurns {
 public:
  SwapTurns(SwapCommon& common, GrowthAccount& growth, SwapFreeing& freeing)
      : common_(common), growth_(growth), freeing_(freeing) {}

  // Thread-safe.
  void set_allowed(Bytes allowed);
  Bytes allowed() const;

  bool evict();
  Eviction last_eviction() const { return last_eviction_; }
  bool restore();
  void tend();
  bool watch_host();
  // Evicts a busy handle that is on the GPU. Copies the contents even if all their words are equal. Returns
  // CUDA_ERROR_OUT_OF_MEMORY if no host memory is left.
  CUresult evict(Handle& handle);

 private:
  // Functions that require the lock release it during their work; only give_up_copy() keeps it.
  bool choose(Bytes excess, std::deque<Leaver>& chosen) REQUIRES(common_.mutex);
  Mover::Begun begin_out(const Leaver& leaver, Lane lane) REQUIRES(common_.mutex);
  void note_moved(Bytes size, Bytes& unreported) REQUIRES(common_.mutex);
  bool bring_back();
  bool give_up_copy() REQUIRES(common_.mutex);
  void give_up_copies();

  SwapCommon& common_;
  GrowthAccount& growth_;
  SwapFreeing& freeing_;

  Bytes host_peak_;  // the most host memory that evicted contents have occupied since all memory was last
                     // resident
  Eviction last_eviction_;
};

}  // namespace sharedgpu
