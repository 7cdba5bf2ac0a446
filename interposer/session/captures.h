// SPDX-License-Identifier: Apache-2.0
// The stream captures of this process that are under way. While there is one, work passes a closed gate and
// nothing synchronizes.
//
// Safe from all threads. A capture is over with cuStreamEndCapture, or with its stream or its context; on a
// per-thread default stream also with its thread. One that another thread has begun on a stream of the
// program's and left behind is not over: the driver goes on recording until the stream goes.
#pragma once

#include <cuda.h>
#include <pthread.h>

#include <mutex>
#include <vector>

namespace sharedgpu::session {

class Captures {
 public:
  // A capture has begun, by this thread, and gate::capture_began() has been said before.
  void add(CUstream stream);
  // Whether one that began on `stream` is under way.
  bool contain(CUstream stream) const;
  // It is over, or its stream is about to be. Nothing happens where there was none.
  void remove(CUstream stream);
  // All those of streams of `context`, which is about to be destroyed.
  void drop(CUcontext context);
  // Those on per-thread default streams of the calling thread, which ends.
  void drop_thread();
  // In the child of a fork, where there are none: a thread that did not come along may have been at work
  // here.
  void after_fork();

 private:
  struct Capture {
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    pthread_t thread{};  // of a per-thread default stream, which is one only together with its thread
    bool is(CUstream its, pthread_t owner) const;
  };
  template <class Over>
  void remove_if(Over over);

  mutable std::mutex mutex_;
  std::vector<Capture> all_;
};

}  // namespace sharedgpu::session
