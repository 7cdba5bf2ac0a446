// SPDX-License-Identifier: Apache-2.0
// The live contexts and streams of the process, for which a drain has to wait.
//
// Thread-safe. A context is not destroyed while a drain uses it: the destruction waits until the drain has
// waited for the context's kernels. This costs no time, since a destruction waits for these kernels anyway.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <vector>

#include "interposer/gate/captures.h"
#include "interposer/gate/closing.h"
#include "interposer/gate/wakeup.h"
#include "interposer/memory/memory.h"
#include "protocol/units.h"

namespace sharedgpu::tracking {

// The references to a primary context, which the driver destroys with the last reference. A thread holds the
// mutex during any driver call that changes the number of references.
struct Primary {
  std::mutex mutex;
  int references = 0;  // number of the program's references
  bool kept = false;   // the interposer holds a reference of its own, which is not counted in `references`
  bool reset = false;  // the program has reset the context, and has taken no reference after that
  int growing = 0;     // number of threads that allocate memory for pools in this context; this memory must
                       // outlive the program's references
  std::uint64_t changes = 0;  // number of changes of the program's references, and of resets
};

class Contexts {
 public:
  // Adds a new context. Does nothing if the context is known, for example when a primary context is retained
  // again.
  void add(CUcontext context, CUdevice device, bool primary);
  // Removes a context that is about to be destroyed, after waiting until no drain uses it. If the driver then
  // fails to destroy the context, put_back() restores the context's entry.
  class Removed;
  Removed remove(CUcontext context);
  void put_back(Removed removed);
  // The primary context of `device`; null if unknown.
  CUcontext primary(CUdevice device) const;
  Primary& references(CUdevice device);
  // Called before a destruction: waits until the GPU has done all work that was submitted to the context.
  // During a capture, does not wait for work in streams that are being captured, or in per-thread default
  // streams.
  void finish(CUcontext context);
  // Returns the device of a live context in *device; false if the context is unknown.
  bool device(CUcontext context, CUdevice* device) const;
  // The number of live contexts.
  std::size_t count() const;
  // Any live context of `device`; null if there is none.
  CUcontext any(CUdevice device) const;
  // Records that the value to which the program has set `limit` makes the context `extra` bytes larger than
  // usual.
  void set_extra(CUcontext context, CUlimit limit, Bytes extra);
  // The size of all contexts of `device`: for each context `usual` bytes and the bytes that set_extra() has
  // recorded.
  Bytes size(CUdevice device, Bytes usual) const;

  // Adds a stream of `context`. The stream is destroyed with the context.
  void add_stream(CUstream stream, CUcontext context);
  // Removes the stream. Call this before the stream is destroyed.
  void remove_stream(CUstream stream);
  // Destroys all streams that the program has created in the context.
  void destroy_streams(CUcontext context);

  // Waits until the GPU has done all work that was submitted to any context, or to the contexts of `devices`.
  // A thread that is about to begin a capture waits until this wait has ended, but for about a second at
  // most. Returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a capture prevented the wait; the caller must then
  // repeat the call. Otherwise, if the wait included the calling thread's context, returns only an error of
  // this context. If it did not, returns an error of any context.
  CUresult synchronize();
  CUresult synchronize(const std::vector<CUdevice>& devices);
  // Does the same for all contexts; ContextDrain calls it. First polls the GPU for a while: captures may
  // begin during polling, but a wait in the driver would delay them. The work may be waiting for a submission
  // that the program must capture first. Returns false if a capture prevented the wait. Returns true after
  // any other error, since a context with an error runs no work.
  bool drain();
  // Returns true if all streams are idle according to the driver: the legacy default streams of the contexts,
  // and the streams that the program has created. Does not wait. Returns false during a capture, which a
  // query could invalidate.
  bool idle();
  // Returns true if the GPUs have certainly done all work of this process. Does not wait.
  bool done();

  // The error of an earlier kernel, as the driver reports it for `stream`; CUDA_SUCCESS if none. Always
  // CUDA_SUCCESS during a capture, which the query could invalidate.
  CUresult error_of(CUstream stream);

  // Runs a short action that would invalidate a capture, unless a capture is in progress.
  template <class Action>
  void unless_capturing(Action action) {
    std::lock_guard lock(mutex_);
    if (!gate::capturing()) action();
  }

  // Counts a capture that is about to begin. First waits until no thread is in idle() or error_of(). Then
  // waits until no thread is in synchronize(), but only for about a second.
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
  // Returns false if the context has been destroyed.
  bool begin_use(CUcontext context);
  void end_use(CUcontext context);

  mutable std::mutex mutex_;
  std::vector<Live> live_;
  std::vector<Stream> streams_;
  std::map<CUdevice, Primary> primaries_;
  int synchronizing_ = 0;  // number of threads in synchronize_one()
  gate::Wakeup unused_;    // raised each time a thread stops using a context, or stops synchronizing
};

class Contexts::Removed {
 private:
  friend class Contexts;
  std::vector<Live> live_;
  std::vector<Stream> streams_;
};

// Closes the gate of the process and drains all of its contexts. The turn thread of every session may call
// close(); the first call drains all contexts.
class ContextDrain final : public gate::Drain {
 public:
  explicit ContextDrain(Contexts& contexts) : contexts_(contexts) {}
  bool close() {
    std::lock_guard lock(mutex_);
    return gate::close(*this);
  }
  // Restores all of the memory, and then lets each waiting thread submit once; see gate::step(). `memory` is
  // null if the session has no GPU yet. If not all memory can be restored, no thread may submit.
  bool step(TurnMemory* memory) {
    std::lock_guard lock(mutex_);
    if (memory != nullptr && !memory->restore()) return !gate::is_open();
    return gate::step(*this);
  }
  // Pauses the gate, drains, and calls `action` while none of the process's work runs or begins. First calls
  // `begin` with the number of the pause, which any thread may end (gate::resume()). Does not call `action`
  // if the gate is closed, `begin` returns false, or the pause ends before all work has ended. If `action`
  // returns false, the pause continues, and no work passes the gate. In this case the function returns the
  // number of the pause, and the caller ends the pause later (gate::resume()), after gate::hold() if the
  // session still holds the lease. Otherwise returns zero. Other sessions close the gate only after this
  // function has returned.
  template <class Begin, class Action>
  std::uint32_t pause(Begin begin, Action action) {
    std::lock_guard lock(mutex_);
    const std::uint32_t pause = gate::is_open() ? gate::pause() : 0;
    if (pause == 0) return 0;
    const bool drained = begin(pause) && gate::close(*this);
    if (drained && !action()) return pause;
    if (drained) gate::hold();
    gate::resume(pause);
    return 0;
  }
  bool drain() override { return contexts_.drain(); }

 private:
  Contexts& contexts_;
  std::mutex mutex_;  // held by the thread that closes or pauses the gate and drains
};

}  // namespace sharedgpu::tracking
