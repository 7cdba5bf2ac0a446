// SPDX-License-Identifier: Apache-2.0
// The stream captures of this process that are in progress. During a capture, submissions pass a closed gate
// as long as the process holds the lease, and no thread of the interposer begins to synchronize.
//
// Thread-safe. A capture ends with cuStreamEndCapture, or when its stream or its context is destroyed. A
// capture on a per-thread default stream also ends with its thread. A capture on another stream does not end
// with the thread that began it.
#pragma once

#include <cuda.h>
#include <pthread.h>

#include <mutex>
#include <vector>

namespace sharedgpu::tracking {

class Captures {
 public:
  // Records a capture that this thread has begun. Call gate::capture_began() first.
  void add(CUstream stream);
  // Returns true if a capture that began on `stream` is in progress.
  bool contain(CUstream stream) const;
  // Removes a capture that has ended, or whose stream is about to be destroyed. Does nothing if there is no
  // such capture.
  void remove(CUstream stream);
  // Removes all captures on streams of `context`, which is about to be destroyed.
  void drop(CUcontext context);
  // Removes the captures on per-thread default streams of the calling thread. Called when this thread is
  // about to end.
  void drop_thread();
  // Call it in the child of a fork: forgets the parent's captures, and resets the lock, which a thread of the
  // parent may have held.
  void after_fork();

 private:
  struct Capture {
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    pthread_t thread{};  // the thread of a per-thread default stream; not set for other streams
    bool is(CUstream its, pthread_t owner) const;
  };
  template <class Over>
  void remove_if(Over over);

  mutable std::mutex mutex_;
  std::vector<Capture> all_;
};

}  // namespace sharedgpu::tracking
