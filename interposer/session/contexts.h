// SPDX-License-Identifier: Apache-2.0
// The live contexts and streams of the process: what a drain has to wait for.
//
// Safe from all threads. A context is not destroyed while a drain uses it; the wait for that is bounded by
// the kernels that run there, which a destruction waits for anyway.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <vector>

#include "interposer/gate/captures.h"
#include "interposer/gate/closing.h"
#include "interposer/memory/memory.h"
#include "interposer/session/wakeup.h"
#include "protocol/units.h"

namespace sharedgpu::session {

// The references to a primary context, with the last of which it goes. Whoever has the driver change their
// number holds the mutex over the call.
struct Primary {
  std::mutex mutex;
  int references = 0;  // the program's
  bool kept = false;   // by one of ours, which does not count as the program's
  bool reset = false;  // by the program, which has taken no reference since
  int growing = 0;     // threads that are putting memory there which is to outlive the program's references
  std::uint64_t changes = 0;  // of the program's references
};

class Contexts {
 public:
  // A context came to be. Idempotent: retaining a primary context again adds nothing.
  void add(CUcontext context, CUdevice device, bool primary);
  // It is about to be destroyed: waits until nobody uses it, and forgets it. What was known of it comes back
  // by put_back(), where the driver has not destroyed it.
  class Removed;
  Removed remove(CUcontext context);
  void put_back(Removed removed);
  // The primary context of `device`; null: none is known.
  CUcontext primary(CUdevice device) const;
  Primary& references(CUdevice device);
  // Waits until the GPU has done all that was submitted there, before it is destroyed; of streams that it
  // is captured from, what was submitted earlier is not waited for.
  void finish(CUcontext context);
  // The device of a live context; false: it is not known.
  bool device(CUcontext context, CUdevice* device) const;
  // Any live context of `device`; null: none.
  CUcontext any(CUdevice device) const;
  // The program wants so much more than usual for the context's own heap or buffers.
  void set_extra(CUcontext context, CUlimit limit, Bytes extra);
  // What all contexts of `device` take, where each takes `usual` at least.
  Bytes size(CUdevice device, Bytes usual) const;

  // A stream was made in `context`, with which it goes.
  void add_stream(CUstream stream, CUcontext context);
  // Before the stream is destroyed.
  void remove_stream(CUstream stream);
  // All of the context.
  void destroy_streams(CUcontext context);

  // Waits until the GPU has done all that was submitted to any of them, or to those of `devices`. A capture
  // that is to begin meanwhile waits for that, unless it takes long. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
  // one was in the way, and it has to be done again. Else the error of the calling thread's context; of any,
  // where that is not among them.
  CUresult synchronize();
  CUresult synchronize(const std::vector<CUdevice>& devices);
  // The same for all of them at the end of a turn. Captures may begin as long as there is work, which may be
  // waiting for what the program submits next. False: one was in the way. Any other error counts as done: a
  // lost context runs nothing.
  bool drain();
  // Whether the driver says of all of them that they have nothing to do. Never waits. During a capture, which
  // a question could spoil, the answer is no.
  bool idle();
  // Whether the GPUs have done all that this process gave them. Never waits; where it cannot be known, no.
  bool done();

  // The error that a kernel has left behind, as the driver tells it of `stream`; CUDA_SUCCESS: none. During a
  // capture, which the question could spoil, there is none.
  CUresult error_of(CUstream stream);

  // Does something quick that would spoil a capture, unless there is one.
  template <class Action>
  void unless_capturing(Action action) {
    std::lock_guard lock(mutex_);
    if (!gate::capturing()) action();
  }

  // Counts a capture that begins: not in the middle of a question above, nor at the beginning of a wait.
  void capture_began();

 private:
  struct Live {
    CUcontext context = nullptr;
    CUdevice device = 0;
    bool primary = false;
    int users = 0;
    std::map<CUlimit, Bytes> extra;
  };

  struct Stream {
    CUstream stream = nullptr;
    CUcontext context = nullptr;
  };

  Live* find(CUcontext context);
  template <class Meant>
  CUresult synchronize_if(Meant meant);
  CUresult synchronize_one(CUcontext context);
  void finish_streams(CUcontext context);
  // False: it is gone.
  bool begin_use(CUcontext context);
  void end_use(CUcontext context);

  mutable std::mutex mutex_;
  std::vector<Live> live_;
  std::vector<Stream> streams_;
  std::map<CUdevice, Primary> primaries_;
  int synchronizing_ = 0;  // threads in synchronize_one()
  Wakeup unused_;          // a context is, or nobody synchronizes
};

class Contexts::Removed {
 private:
  friend class Contexts;
  std::vector<Live> live_;
  std::vector<Stream> streams_;
};

// Closes the gate of the process, all of whose contexts are drained. Every session's turn thread may: the
// first one drains for all of them.
class ContextDrain final : public gate::Drain {
 public:
  explicit ContextDrain(Contexts& contexts) : contexts_(contexts) {}
  bool close() {
    std::lock_guard lock(mutex_);
    return gate::close(*this);
  }
  // Brings back what is missing of the memory (null: none), and then lets each thread that waits submit once,
  // see gate::step(). Nothing passes where it cannot all be brought back.
  bool step(TurnMemory* memory) {
    std::lock_guard lock(mutex_);
    if (memory != nullptr && !memory->restore()) return !gate::is_open();
    return gate::step(*this);
  }
  bool drain() override { return contexts_.drain(); }

 private:
  Contexts& contexts_;
  std::mutex mutex_;
};

}  // namespace sharedgpu::session
