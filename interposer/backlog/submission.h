// SPDX-License-Identifier: Apache-2.0
// A submission of work that fills a stream's queue: a kernel, a graph, a copy, a fill. The submission passes
// the gate. While the GPU is oversubscribed, the submission first waits until its stream is below the backlog
// limit; see backlog/ahead.h. While the GPU is not oversubscribed, this class adds only one read of the lease
// page to a submission.
//
// Needs no cuda.h, since submit.cpp also wraps functions that the installed version lacks. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interposer/gate/gate.h"

namespace sharedgpu::backlog {

// A stream's handle.
using StreamWord = std::uintptr_t;
inline constexpr StreamWord kPerThread = 2;  // CU_STREAM_PER_THREAD

// RAII, like gate::Pass: the thread is inside the gate from construction to destruction.
class Submission {
 public:
  // `own` is true if stream 0 means the per-thread default stream, and false if it means the legacy one.
  Submission(StreamWord stream, bool own)
      : counted_on_(gate::oversubscribed() ? wait_for_room(stream, own) : kNone) {
    if (stream == kPerThread || (own && stream == 0)) pass_.to_own_stream();
  }
  ~Submission() {
    if (counted_on_ != kNone) [[unlikely]]
      made(counted_on_);  // still inside the gate, since recording a fence is a submission too
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

 private:
  static constexpr std::size_t kNone = 0;
  // A grant is a number of submissions that a thread may make without another check of the limit. Returns 1
  // plus the index of the grant from which this submission is subtracted. Returns kNone if there is no such
  // grant; the submission has then not waited.
  static std::size_t wait_for_room(StreamWord stream, bool own);
  static void made(std::size_t counted_on);

  std::size_t counted_on_;
  gate::Pass pass_;
};

}  // namespace sharedgpu::backlog
