// SPDX-License-Identifier: Apache-2.0
// Keeps submissions of several threads to one stream apart in an oversized process. There, several
// submissions may take the place of one: the nodes of a graph that is launched node by node. Work that
// another thread submits to the same stream then comes before all of them or after all of them, as with plain
// CUDA. The legacy default stream is ordered with all blocking streams.
//
// Needs no cuda.h. Thread-safe.
#pragma once

#include <cstdint>

#include "interposer/backlog/submission.h"

namespace sharedgpu::backlog {

// RAII: held around a submission, or around a sequence of them. The constructor waits until other threads
// have ended theirs, if they exclude each other and came first. A thread holds it outside the gate, and may
// hold several. It has no effect inside the gate.
class InOrder {
 public:
  enum class Extent : std::uint8_t { submission, sequence };
  // The parameters are those of Submission.
  InOrder(StreamWord stream, bool own, Extent extent = Extent::submission);
  ~InOrder();
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

 private:
  std::uint64_t ticket_ = 0;  // 0: no effect
};

}  // namespace sharedgpu::backlog
