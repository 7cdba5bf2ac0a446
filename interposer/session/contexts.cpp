// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/contexts.h"

#include <algorithm>

#include "interposer/driver/call.h"

namespace sharedgpu::session {
namespace {

// Current on this thread from construction to destruction, where ok().
class Current {
 public:
  explicit Current(CUcontext context) : ok_(SHAREDGPU_REAL(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS) {}
  ~Current() {
    CUcontext popped = nullptr;
    if (ok_) SHAREDGPU_REAL(cuCtxPopCurrent_v2, &popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  bool ok() const { return ok_; }

 private:
  bool ok_;
};

// What the driver says where a stream of the context is being captured.
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

void Contexts::remove(CUcontext context) {
  for (;;) {
    std::uint32_t seen = unused_.seen();
    {
      std::lock_guard lock(mutex_);
      Live* live = find(context);
      if (live == nullptr) return;
      if (live->users == 0) {
        live_.erase(live_.begin() + (live - live_.data()));
        std::erase_if(streams_, [=](const Stream& known) { return known.context == context; });
        return;
      }
    }
    unused_.wait(seen, std::chrono::milliseconds(100));
  }
}

CUcontext Contexts::primary(CUdevice device) const {
  std::lock_guard lock(mutex_);
  for (const Live& live : live_)
    if (live.primary && live.device == device) return live.context;
  return nullptr;
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

bool Contexts::synchronize() {
  std::vector<CUcontext> used;
  {
    std::lock_guard lock(mutex_);
    for (Live& live : live_) {
      ++live.users;
      used.push_back(live.context);
    }
  }
  bool done = true;
  for (CUcontext context : used) {
    Current current(context);
    if (current.ok() && is_capture_error(SHAREDGPU_REAL(cuCtxSynchronize))) done = false;
  }
  {
    std::lock_guard lock(mutex_);
    for (CUcontext context : used) --find(context)->users;
  }
  unused_.raise();
  return done;
}

bool Contexts::idle() {
  std::lock_guard lock(mutex_);
  if (gate::capturing()) return false;
  for (const Live& live : live_) {
    Current current(live.context);
    if (current.ok() && SHAREDGPU_REAL(cuStreamQuery, CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY) return false;
  }
  return std::ranges::none_of(streams_, [](const Stream& known) {
    return SHAREDGPU_REAL(cuStreamQuery, known.stream) == CUDA_ERROR_NOT_READY;
  });
}

void Contexts::capture_began() {
  std::lock_guard lock(mutex_);
  gate::capture_began();
}

}  // namespace sharedgpu::session
