// SPDX-License-Identifier: Apache-2.0
// Finds the stream and the context to which a stream handle refers, and records fences in streams. Used by
// stream-ordered memory and by the backlog.
//
// Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "interposer/memory/stream_pool.h"

namespace sharedgpu::backlog {

struct StreamPlace {
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  CUdevice device = 0;
  StreamId id;
  std::uint64_t thread = 0;  // for a per-thread default stream, the number of its thread: the stream ends
                             // when this thread ends; otherwise 0
};

// The number of the calling thread. Unlike the system's thread id, this number is never reused.
std::uint64_t this_thread();

// Converts a stream handle of a function in which stream 0 is the default stream of the calling thread.
inline CUstream per_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

// Returns the stream to which a handle refers on the calling thread; nullopt if there is none (the driver
// then reports the error), or if the interposer does not know the stream's context.
std::optional<StreamPlace> locate(CUstream stream);

// Records a fence after all work that was submitted to the stream so far. Returns null on failure, with the
// error in *result.
FencePtr mark(const StreamPlace& place, CUresult* result);
// Work that is submitted to the stream from now on waits for the fence, which mark() has made. If the fence's
// context has been destroyed, there is nothing to wait for.
void wait_in(CUstream stream, Fence& fence);

// Called before the stream is destroyed, since its handle may be reused for another stream.
void forget_stream(CUstream stream);
// Called before the context and its events are destroyed. Waits for the work of the context, so that all
// fences recorded in its streams before this call have passed.
void finish_streams_of(CUcontext context);
// Called after the context and its streams have been destroyed.
void forget_streams_of(CUcontext context);

// Returns true if the stream is being captured, or if the driver rejects the query; in that case the driver
// also rejects the actual call on that stream.
bool captured(CUstream stream);

}  // namespace sharedgpu::backlog
