// SPDX-License-Identifier: Apache-2.0
// Keeps submissions of several threads to one stream apart in an oversized process. In such a process, the
// interposer may replace one submission by a sequence of submissions: the nodes of a graph that is launched
// node by node. Work that another thread submits to the same stream then comes before or after the whole
// sequence, as with plain CUDA. The legacy default stream is ordered with all blocking streams.
//
// Needs no cuda.h. Thread-safe.
#pragma once

#include <cstdint>

#include "interposer/backlog/submission.h"

namespace sharedgpu::backlog {

// RAII: exists while a thread makes a submission or a sequence of submissions. Two objects of different
// threads exclude each other if at least one of them is for a sequence, and if CUDA orders the work of their
// streams. The constructor waits until no earlier object that excludes the new object exists. An earlier
// object for a single submission delays the new object for at most five seconds in which the gate is open. A
// thread creates the object outside the gate, and may have several. An object created inside the gate has no
// effect.
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
