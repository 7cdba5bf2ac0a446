// SPDX-License-Identifier: Apache-2.0
// The backlog of each stream while the GPU is oversubscribed. This class records the fences of
// backlog/ahead.h as CUDA events, and waits for them.
//
// Thread-safe.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <vector>

#include "interposer/backlog/ahead.h"
#include "interposer/backlog/streams.h"
#include "interposer/session/submission_clock.h"

namespace sharedgpu::backlog {

class Queue {
 public:
  explicit Queue(const StreamPlace& place) : place_(place) {}

  // Waits until the stream is below its backlog limit, and not at all during a capture. Gives up when no
  // fence has passed for Ahead::patience(). Returns how many submissions the calling thread may make to the
  // stream before it has to count them. Called outside the gate.
  std::uint32_t wait_for_room();
  // Adds to the backlog the submissions that the calling thread has made.
  void count(std::uint32_t submissions);
  // Does the same as count(), and also records a fence if one is due. Called inside the gate.
  void count_and_mark(std::uint32_t submissions);

  // Returns the estimated GPU time of one submission; zero if there were no submissions lately. Called from
  // another thread every few milliseconds while the end of the turn is known, since a program that waits for
  // each of its submissions itself never polls the fences. Queries the driver without waiting.
  Nanoseconds look();

 private:
  bool fresh() const;
  bool take_passed(bool seen_before);
  void mark();

  const StreamPlace place_;
  std::mutex mutex_;
  Ahead ahead_;
  Nanoseconds submitted_{};      // time of the last wait_for_room() while the end of the turn was known
  Nanoseconds looked_{};         // when passed fences were last removed while the end of the turn was known
  std::vector<FencePtr> marks_;  // the recorded fences that had not passed at the last poll, the oldest first
};

// Returns the queue of the stream to which the handle refers on the calling thread, and stores the queue's
// number in `id`. Returns null if locate() does not find the stream.
std::shared_ptr<Queue> queue_of(CUstream stream, StreamId* id);
// The queue with this number; null if the queue has been forgotten.
std::shared_ptr<Queue> known_queue(StreamId id);
// Called inside the gate after a submission to any queue.
void submission_made();
// Returns the object that reports how long submissions take, over all queues.
session::SubmissionClock& submission_clock();
// Returns a number that grows each time queues may be forgotten. If two calls return the same number, no
// queue was forgotten between them.
std::uint32_t forgotten_queues();

// Call forget_queue() before the stream is destroyed. Call forget_queues_of() after the context has been
// destroyed with all of its streams.
void forget_queue(CUstream stream);
void forget_queues_of(CUcontext context);

}  // namespace sharedgpu::backlog
