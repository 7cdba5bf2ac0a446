// SPDX-License-Identifier: Apache-2.0
#include "interposer/tracking/captures.h"

#include <algorithm>
#include <new>

#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"
#include "interposer/gate/thread_end.h"

namespace sharedgpu::tracking {
namespace {

// Calls drop_thread() at the end of each thread that has begun a capture on its per-thread default stream. If
// the program has used up all keys for thread-specific data, drop_thread() is never called. A capture that
// such a thread has not ended then counts as in progress until its context is destroyed.
constinit gate::ThreadEnd thread_end([](void* captures) { static_cast<Captures*>(captures)->drop_thread(); });

pthread_t owner_of(CUstream stream) { return stream == CU_STREAM_PER_THREAD ? pthread_self() : pthread_t{}; }

}  // namespace

bool Captures::Capture::is(CUstream its, pthread_t owner) const {
  return stream == its && pthread_equal(thread, owner) != 0;
}

template <class Over>
void Captures::remove_if(Over over) {
  std::lock_guard lock(mutex_);
  for (std::size_t ended = std::erase_if(all_, over); ended != 0; --ended) gate::capture_ended();
}

void Captures::add(CUstream stream) {
  Capture capture = {.stream = stream, .thread = owner_of(stream)};
  SHAREDGPU_REAL(cuStreamGetCtx, stream, &capture.context);
  if (stream == CU_STREAM_PER_THREAD) thread_end.watch(this);
  std::lock_guard lock(mutex_);
  all_.push_back(capture);
}

bool Captures::contain(CUstream stream) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      all_, [=, owner = owner_of(stream)](const Capture& capture) { return capture.is(stream, owner); });
}

void Captures::remove(CUstream stream) {
  remove_if([=, owner = owner_of(stream)](const Capture& capture) { return capture.is(stream, owner); });
}

void Captures::drop(CUcontext context) {
  remove_if([context](const Capture& capture) { return capture.context == context; });
}

void Captures::drop_thread() { remove(CU_STREAM_PER_THREAD); }

void Captures::after_fork() { new (this) Captures; }

}  // namespace sharedgpu::tracking
