// SPDX-License-Identifier: Apache-2.0
// What each stream has queued ahead of the GPU, for as long as that is oversubscribed: the marks of
// gate/ahead.h are events, and here is where threads wait for them.
//
// Safe from all threads.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <vector>

#include "interposer/gate/ahead.h"
#include "interposer/hooks/streams.h"
#include "interposer/session/maintenance.h"

namespace sharedgpu::hooks {

class Queue {
 public:
  explicit Queue(const StreamPlace& place) : place_(place) {}

  // Waits until the stream has room, never long (see gate::Ahead::patience), and not at all during a capture.
  // Returns how many submissions the calling thread may make to it until it counts them. Outside the gate.
  std::uint32_t wait_for_room();
  // The calling thread has made so many.
  void count(std::uint32_t submissions);
  // The same, and marks the place where that is due. Inside the gate.
  void count_and_mark(std::uint32_t submissions);

  // From another thread, every few milliseconds while the turn's end is known, since a program that waits for
  // each of its submissions itself does not look: how long one takes; zero: there were none lately. Asks the
  // driver, and waits for nothing.
  Nanoseconds look();

 private:
  bool fresh() const;
  bool take_passed(bool seen_before);
  void mark();

  const StreamPlace place_;
  std::mutex mutex_;
  gate::Ahead ahead_;
  Nanoseconds submitted_{};      // the last time, while the turn's end was known
  Nanoseconds looked_{};         // the last time that all that had passed was taken out
  std::vector<FencePtr> marks_;  // that have not passed: those that ahead_ counts
};

// The queue that a handle means to the calling thread, and its number; null: none, and the driver will say
// so.
std::shared_ptr<Queue> queue_of(CUstream stream, StreamId* id);
// The queue with that number; null: it has been forgotten.
std::shared_ptr<Queue> known_queue(StreamId id);
// A submission has been made to one of them; inside the gate.
void submission_made();
// Measures how long submissions take, over all queues.
session::SubmissionClock& submission_clock();
// How often queues were forgotten.
std::uint32_t forgotten_queues();

// The stream is about to be destroyed, or the context with all its streams has been.
void forget_queue(CUstream stream);
void forget_queues_of(CUcontext context);

}  // namespace sharedgpu::hooks
