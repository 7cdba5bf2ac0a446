// SPDX-License-Identifier: Apache-2.0
// Streams as stream-ordered memory sees them: which one a handle means, and marking a place in one.
//
// Safe from all threads.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "interposer/memory/stream_pool.h"

namespace sharedgpu::hooks {

// The context is current on this thread from construction to destruction, if it can be.
class InContext {
 public:
  explicit InContext(CUcontext context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  bool pushed_ = false;
};

struct StreamPlace {
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  CUdevice device = 0;
  StreamId id;
  std::uint64_t thread = 0;  // of a per-thread default stream, which goes with it; see this_thread()
};

// The number of the calling thread: unlike the system's, it is not used again.
std::uint64_t this_thread();

// What a handle means to the calling thread. nullopt: nothing, and the driver will say so.
std::optional<StreamPlace> locate(CUstream stream);

// A fence behind all that was submitted to the stream so far; null: *result says why.
FencePtr mark(const StreamPlace& place, CUresult* result);

// The stream is about to be destroyed: the next one with its handle is another.
void forget_stream(CUstream stream);
// The context is about to be destroyed, and with it its events: waits for its work, so that all fences have
// passed.
void finish_streams_of(CUcontext context);
// It has been destroyed, and its streams with it.
void forget_streams_of(CUcontext context);

// Whether the stream is being captured; so too where the driver does not like the question, which then
// answers what is asked of that stream.
bool captured(CUstream stream);

}  // namespace sharedgpu::hooks
