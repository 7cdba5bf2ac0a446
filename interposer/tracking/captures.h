// SPDX-License-Identifier: Apache-2.0
// The stream captures of this process that are in progress. During a capture, submissions pass a closed gate,
// and nothing synchronizes.
//
// Thread-safe. A capture ends with cuStreamEndCapture, or with its stream or its context; on a per-thread
// default stream also with its thread. A capture on a stream that the program has created does not end with
// its thread: the driver continues recording until the stream is destroyed.
#pragma once

#include <cuda.h>
#include <pthread.h>

#include <mutex>
#include <vector>

namespace sharedgpu::tracking {

class Captures {
 public:
  // Records a capture that this thread has begun, after a call of gate::capture_began().
  void add(CUstream stream);
  // Returns true if a capture that began on `stream` is in progress.
  bool contain(CUstream stream) const;
  // Removes a capture that has ended, or whose stream is about to be destroyed. Does nothing if there is no
  // such capture.
  void remove(CUstream stream);
  // Removes all captures on streams of `context`, which is about to be destroyed.
  void drop(CUcontext context);
  // Removes the captures on per-thread default streams of the calling thread, which ends.
  void drop_thread();
  // Call it in the child of a fork, which has no captures. Resets the lock, which a thread of the parent may
  // have held.
  void after_fork();

 private:
  struct Capture {
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    pthread_t thread{};  // identifies a per-thread default stream together with `stream`
    bool is(CUstream its, pthread_t owner) const;
  };
  template <class Over>
  void remove_if(Over over);

  mutable std::mutex mutex_;
  std::vector<Capture> all_;
};

}  // namespace sharedgpu::tracking
