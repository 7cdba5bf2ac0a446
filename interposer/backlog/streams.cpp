// SPDX-License-Identifier: Apache-2.0
#include "interposer/backlog/streams.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "interposer/driver/beside_captures.h"
#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"
#include "interposer/gate/clock.h"
#include "interposer/gate/thread_end.h"
#include "interposer/process/process.h"
#include "interposer/tracking/current.h"

namespace sharedgpu::backlog {

namespace {

class EventFence;

// The numbers of streams, and the fences recorded in streams.
struct Streams {
  using Key = std::tuple<CUcontext, CUstream,
                         std::uint64_t>;  // context, handle and, for a per-thread stream, the thread

  std::mutex mutex;
  std::map<Key, StreamId> ids;
  std::uint64_t last_id = 0;
  std::map<CUcontext, std::vector<CUevent>> spare;
  std::set<EventFence*> fences;
  std::uint64_t last_fence = 0;
};

// The object is never destroyed, since programs free memory until they end.
Streams& streams() {
  static auto* made = new Streams;
  return *made;
}

class EventFence final : public Fence {
 public:
  EventFence(CUcontext context, CUevent event) : context_(context), event_(event) {}
  ~EventFence() override {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    all.fences.erase(this);
    if (event_ != nullptr) all.spare[context_].push_back(event_);
  }
  EventFence(const EventFence&) = delete;
  EventFence& operator=(const EventFence&) = delete;

  bool passed() override {
    const std::lock_guard lock(streams().mutex);
    if (event_ == nullptr) return true;
    const driver::BesideCaptures beside;
    const tracking::Current in(context_);
    return !ahead();
  }

  // Called with the lock of streams() held, in the fence's context and in a BesideCaptures scope. Any error
  // other than CUDA_ERROR_NOT_READY means that nothing is running.
  bool ahead() const {
    return event_ != nullptr && SHAREDGPU_REAL(cuEventQuery, event_) == CUDA_ERROR_NOT_READY;
  }
  // Called with the lock of streams() held.
  void wait_in(CUstream stream) const {
    if (event_ != nullptr) SHAREDGPU_REAL(cuStreamWaitEvent, stream, event_, 0u);
  }
  CUcontext context() const { return context_; }
  CUevent take() { return std::exchange(event_, nullptr); }
  void recorded(std::uint64_t number) { number_ = number; }
  bool recorded_by(std::uint64_t last) const { return number_ != 0 && number_ <= last; }

 private:
  const CUcontext context_;
  CUevent event_;             // null if the event's context has been destroyed
  std::uint64_t number_ = 0;  // counts up in the order of recording; 0: not recorded yet
};

CUresult take_event(CUcontext context, CUevent* event) {
  {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    std::vector<CUevent>& spare = all.spare[context];
    if (!spare.empty()) {
      *event = spare.back();
      spare.pop_back();
      return CUDA_SUCCESS;
    }
  }
  return SHAREDGPU_REAL(cuEventCreate, event, CU_EVENT_DISABLE_TIMING);
}

constinit gate::ThreadEnd thread_end([](void* /*unused*/) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.ids, [](const auto& known) { return std::get<2>(known.first) == this_thread(); });
});

}  // namespace

std::uint64_t this_thread() {
  static constinit std::atomic<std::uint64_t> last{0};
  static constinit thread_local std::uint64_t mine = 0;
  if (mine == 0) mine = ++last;
  return mine;
}

std::optional<StreamPlace> locate(CUstream stream) {
  StreamPlace place;
  const bool own_context = stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  const CUresult result = own_context ? SHAREDGPU_REAL(cuStreamGetCtx, stream, &place.context)
                                      : SHAREDGPU_REAL(cuCtxGetCurrent, &place.context);
  if (result != CUDA_SUCCESS || place.context == nullptr) return std::nullopt;
  const Process* mine = Process::get();
  if (mine == nullptr || !mine->contexts().device(place.context, &place.device)) return std::nullopt;
  place.stream = stream == nullptr ? CU_STREAM_LEGACY : stream;
  if (stream == CU_STREAM_PER_THREAD) place.thread = this_thread();
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  StreamId& id = all.ids[{place.context, place.stream, place.thread}];
  if (id == StreamId{}) {
    id = {++all.last_id};
    if (place.thread != 0) thread_end.watch(&thread_end);
  }
  place.id = id;
  return place;
}

FencePtr mark(const StreamPlace& place, CUresult* result) {
  const tracking::Current in(place.context);
  CUevent event = nullptr;
  *result = take_event(place.context, &event);
  if (*result != CUDA_SUCCESS) return nullptr;
  auto fence = std::make_shared<EventFence>(place.context, event);
  {
    const std::lock_guard lock(streams().mutex);
    streams().fences.insert(fence.get());
  }
  *result = SHAREDGPU_REAL(cuEventRecord, event, place.stream);
  if (*result != CUDA_SUCCESS) return nullptr;
  const std::lock_guard lock(streams().mutex);
  fence->recorded(++streams().last_fence);
  return fence;
}

void wait_in(CUstream stream, Fence& fence) {
  const std::lock_guard lock(streams().mutex);
  static_cast<EventFence&>(fence).wait_in(stream);
}

void forget_stream(CUstream stream) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.ids, [=](const auto& known) { return std::get<CUstream>(known.first) == stream; });
}

void finish_streams_of(CUcontext context) {
  Streams& all = streams();
  const driver::BesideCaptures beside;
  std::uint64_t last = 0;
  {
    const std::lock_guard lock(all.mutex);
    last = all.last_fence;
  }
  if (Process* mine = Process::get()) mine->contexts().finish(context);
  const tracking::Current in(context);
  std::unique_lock lock(all.mutex);
  const auto is_its = [=](const EventFence* fence) {
    return fence->context() == context && fence->recorded_by(last);
  };
  // finish() above does not wait for streams that are being captured. Captured streams may still have fences
  // from before the capture.
  while (std::ranges::any_of(all.fences, [&](EventFence* each) { return is_its(each) && each->ahead(); })) {
    lock.unlock();
    gate::nap(std::chrono::microseconds(100));
    lock.lock();
  }
  for (EventFence* fence : all.fences)
    if (CUevent event = is_its(fence) ? fence->take() : nullptr) all.spare[context].push_back(event);
  for (CUevent event : all.spare[context]) SHAREDGPU_REAL(cuEventDestroy_v2, event);
  all.spare.erase(context);
}

void forget_streams_of(CUcontext context) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.ids, [=](const auto& known) { return std::get<CUcontext>(known.first) == context; });
}

bool captured(CUstream stream) {
  if (!gate::capturing()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return SHAREDGPU_REAL(cuStreamIsCapturing, stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace sharedgpu::backlog
