// SPDX-License-Identifier: Apache-2.0
#include "interposer/tracking/contexts.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "interposer/driver/call.h"
#include "interposer/gate/marks.h"
#include "interposer/tracking/current.h"

namespace sharedgpu::tracking {

using gate::now;

namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kAsking = 1s;      // a thread that synchronizes has certainly begun to wait in the
                                         // driver after this time
constexpr Nanoseconds kShortNap = 20us;  // first pause between polls of the GPU
constexpr Nanoseconds kLongNap = 500us;
constexpr Nanoseconds kPolitely = 5s;  // a drain polls for this time before it waits in the driver

// Returns true for the errors that the driver returns if a capture is in progress.
bool is_capture_error(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

}  // namespace

Contexts::Live* Contexts::find(CUcontext context) {
  auto found = std::ranges::find(live_, context, &Live::context);
  return found == live_.end() ? nullptr : &*found;
}

void Contexts::add(CUcontext context, CUdevice device, bool primary) {
  std::lock_guard lock(mutex_);
  if (find(context) == nullptr)
    live_.push_back({.context = context, .device = device, .primary = primary, .users = 0, .extra = {}});
}

Contexts::Removed Contexts::remove(CUcontext context) {
  Removed removed;
  unused_.wait_until([&] {
    const std::lock_guard lock(mutex_);
    Live* const live = find(context);
    if (live == nullptr) return true;
    if (live->users != 0) return false;
    removed.live_.push_back(std::move(*live));
    live_.erase(live_.begin() + (live - live_.data()));
    std::erase_if(streams_, [&](const Stream& known) {
      if (known.context != context) return false;
      removed.streams_.push_back(known);
      return true;
    });
    return true;
  });
  return removed;
}

void Contexts::put_back(Removed removed) {
  std::lock_guard lock(mutex_);
  std::ranges::move(removed.live_, std::back_inserter(live_));
  std::ranges::move(removed.streams_, std::back_inserter(streams_));
}

CUcontext Contexts::primary(CUdevice device) const {
  std::lock_guard lock(mutex_);
  for (const Live& live : live_)
    if (live.primary && live.device == device) return live.context;
  return nullptr;
}

Primary& Contexts::references(CUdevice device) {
  std::lock_guard lock(mutex_);
  return primaries_[device];
}

bool Contexts::device(CUcontext context, CUdevice* device) const {
  std::lock_guard lock(mutex_);
  for (const Live& live : live_) {
    if (live.context != context) continue;
    *device = live.device;
    return true;
  }
  return false;
}

std::size_t Contexts::count() const {
  std::lock_guard lock(mutex_);
  return live_.size();
}

CUcontext Contexts::any(CUdevice device) const {
  std::lock_guard lock(mutex_);
  for (const Live& live : live_)
    if (live.device == device) return live.context;
  return nullptr;
}

void Contexts::set_extra(CUcontext context, CUlimit limit, Bytes extra) {
  std::lock_guard lock(mutex_);
  if (Live* live = find(context)) live->extra[limit] = extra;
}

Bytes Contexts::size(CUdevice device, Bytes usual) const {
  std::lock_guard lock(mutex_);
  Bytes sum;
  for (const Live& live : live_) {
    if (live.device != device) continue;
    sum += usual;
    for (const auto& [limit, extra] : live.extra) sum += extra;
  }
  return sum;
}

void Contexts::add_stream(CUstream stream, CUcontext context) {
  std::lock_guard lock(mutex_);
  streams_.push_back({.stream = stream, .context = context});
}

void Contexts::remove_stream(CUstream stream) {
  std::lock_guard lock(mutex_);
  std::erase_if(streams_, [=](const Stream& known) { return known.stream == stream; });
}

void Contexts::destroy_streams(CUcontext context) {
  std::vector<CUstream> its;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(streams_, [&](const Stream& known) {
      if (known.context != context) return false;
      its.push_back(known.stream);
      return true;
    });
  }
  Current current(context);
  for (CUstream stream : its) SHAREDGPU_REAL(cuStreamDestroy_v2, stream);
}

CUresult Contexts::synchronize() {
  return synchronize_if([](const Live&) { return true; });
}

CUresult Contexts::synchronize(const std::vector<CUdevice>& devices) {
  return synchronize_if(
      [&](const Live& live) { return std::ranges::find(devices, live.device) != devices.end(); });
}

void Contexts::finish(CUcontext context) {
  if (!begin_use(context)) return;
  {
    Current current(context);
    if (current.ok() && is_capture_error(SHAREDGPU_REAL(cuCtxSynchronize))) finish_streams(context);
  }
  end_use(context);
}

void Contexts::finish_streams(CUcontext context) {
  std::vector<CUstream> its{CU_STREAM_LEGACY};
  {
    std::lock_guard lock(mutex_);
    for (const Stream& known : streams_)
      if (known.context == context) its.push_back(known.stream);
  }
  for (CUstream stream : its) SHAREDGPU_REAL(cuStreamSynchronize, stream);
}

// Marks only one context at a time as used: the context for whose work this function waits. If all contexts
// were marked, there could be a deadlock, since this work may be waiting for a thread that is destroying
// another context.
template <class Meant>
CUresult Contexts::synchronize_if(Meant meant) {
  std::vector<CUcontext> meant_ones;
  {
    std::lock_guard lock(mutex_);
    for (const Live& live : live_)
      if (meant(live)) meant_ones.push_back(live.context);
  }
  CUcontext own = nullptr;
  SHAREDGPU_REAL(cuCtxGetCurrent, &own);
  const bool among_them = std::ranges::find(meant_ones, own) != meant_ones.end();
  bool captured = false;
  CUresult error = CUDA_SUCCESS;
  for (CUcontext context : meant_ones) {
    const CUresult result = synchronize_one(context);
    captured = captured || is_capture_error(result);
    if (result != CUDA_SUCCESS && (context == own || !among_them)) error = result;
  }
  return captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : error;
}

// Waits for the work of one context. synchronizing_ makes capture_began() wait meanwhile, for about a second
// at most. If the context has been destroyed, there is no work to wait for.
CUresult Contexts::synchronize_one(CUcontext context) {
  {
    std::lock_guard lock(mutex_);
    if (gate::capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ++synchronizing_;
  }
  CUresult result = CUDA_SUCCESS;
  if (begin_use(context)) {
    {
      Current current(context);
      if (current.ok()) result = SHAREDGPU_REAL(cuCtxSynchronize);
    }
    end_use(context);
  }
  {
    std::lock_guard lock(mutex_);
    --synchronizing_;
  }
  unused_.raise();
  return result;
}

bool Contexts::begin_use(CUcontext context) {
  std::lock_guard lock(mutex_);
  Live* live = find(context);
  if (live != nullptr) ++live->users;
  return live != nullptr;
}

void Contexts::end_use(CUcontext context) {
  {
    std::lock_guard lock(mutex_);
    --find(context)->users;
  }
  unused_.raise();
}

bool Contexts::drain() {
  Nanoseconds waited{};
  for (Nanoseconds nap = kShortNap; waited < kPolitely && !idle(); nap = std::min(2 * nap, kLongNap)) {
    if (gate::capturing()) return false;
    std::this_thread::sleep_for(nap);
    waited += nap;
  }
  // cuCtxSynchronize also waits for work in per-thread default streams, which idle() cannot query.
  return synchronize() != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool Contexts::idle() {
  std::lock_guard lock(mutex_);
  if (gate::capturing()) return false;
  // cuStreamQuery needs a current context.
  auto busy = [](CUcontext context, CUstream stream) {
    Current current(context);
    return current.ok() && SHAREDGPU_REAL(cuStreamQuery, stream) == CUDA_ERROR_NOT_READY;
  };
  return std::ranges::none_of(live_,
                              [&](const Live& live) { return busy(live.context, CU_STREAM_LEGACY); }) &&
         std::ranges::none_of(streams_,
                              [&](const Stream& known) { return busy(known.context, known.stream); });
}

// A per-thread default stream can be queried only by its own thread. So once such a stream has got work, it
// counts as busy until its thread ends.
bool Contexts::done() { return !gate::activity().own_streams && idle(); }

CUresult Contexts::error_of(CUstream stream) {
  std::lock_guard lock(mutex_);
  if (gate::capturing()) return CUDA_SUCCESS;
  const CUresult result = SHAREDGPU_REAL(cuStreamQuery, stream);
  return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

// No thread may call the driver to synchronize after a capture has begun. A thread that called the driver
// more than kAsking ago is already waiting in the driver. The capture must not wait for this thread any
// longer, since the thread may be waiting for work that waits for the capture.
void Contexts::capture_began() {
  const Nanoseconds long_ago = now() + kAsking;
  unused_.wait_until([&] {
    const std::lock_guard lock(mutex_);
    const bool may_begin = synchronizing_ == 0 || now() >= long_ago;
    if (may_begin) gate::capture_began();
    return may_begin;
  });
}

}  // namespace sharedgpu::tracking
