// SPDX-License-Identifier: Apache-2.0
#include "interposer/backlog/in_order.h"

#include <algorithm>
#include <vector>

#include "interposer/backlog/streams.h"
#include "interposer/driver/call.h"
#include "interposer/gate/clock.h"
#include "interposer/memory/mutex.h"

namespace sharedgpu::backlog {
namespace {

using namespace std::chrono_literals;

// If a single submission has not returned after this time with an open gate, the driver has already received
// its work, and the call only waits for the GPU. The GPU may be waiting for work of another thread, so this
// other thread must not be held back any longer.
constexpr Nanoseconds kMostPatience = 5s;
constexpr Nanoseconds kLook = 100us;  // pause between two checks; threads rarely exclude each other, and then
                                      // mostly wait for milliseconds

struct Holder {
  std::uint64_t ticket = 0;  // the number of this holder; a later holder has a larger number
  std::uint64_t thread = 0;
  CUstream stream = nullptr;
  bool sequence = false;
};

struct Holders {
  Mutex mutex;
  std::uint64_t last GUARDED_BY(mutex) = 0;
  std::vector<Holder> all GUARDED_BY(mutex);  // in the order of their tickets
};

Holders& holders() {
  static auto* made = new Holders;
  return *made;
}

// The default streams are blocking, too. If the driver does not know the stream, the program's call fails
// anyway.
bool is_blocking(CUstream stream) {
  unsigned flags = 0;
  return SHAREDGPU_REAL(cuStreamGetFlags, stream, &flags) == CUDA_SUCCESS &&
         (flags & CU_STREAM_NON_BLOCKING) == 0;
}

bool is_ordered(CUstream a, CUstream b) {
  if (a == b) return a != CU_STREAM_PER_THREAD;  // each thread has its own per-thread default stream
  return (a == CU_STREAM_LEGACY && is_blocking(b)) || (b == CU_STREAM_LEGACY && is_blocking(a));
}

bool exclude_each_other(const Holder& a, const Holder& b) {
  return a.thread != b.thread && (a.sequence || b.sequence) && is_ordered(a.stream, b.stream);
}

}  // namespace

InOrder::InOrder(StreamWord stream, bool own, Extent extent) {
  if (gate::inside()) return;
  Holder mine{.thread = this_thread(),
              .stream = reinterpret_cast<CUstream>(stream),
              .sequence = extent == Extent::sequence};
  if (stream == 0) mine.stream = own ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  Holders& their = holders();
  MutexLock lock(their.mutex);
  mine.ticket = ticket_ = ++their.last;
  their.all.push_back(mine);
  Nanoseconds waited{};  // counts only time in which the gate is open
  const auto comes_first = [&](const Holder& other) {
    return other.ticket < mine.ticket && exclude_each_other(other, mine) &&
           (other.sequence || waited < kMostPatience);
  };
  while (std::ranges::any_of(their.all, comes_first)) {
    lock.unlock();
    gate::nap(kLook);
    if (gate::is_open()) waited += kLook;
    lock.lock();
  }
}

InOrder::~InOrder() {
  if (ticket_ == 0) return;
  Holders& their = holders();
  const MutexLock lock(their.mutex);
  std::erase_if(their.all, [&](const Holder& each) { return each.ticket == ticket_; });
}

}  // namespace sharedgpu::backlog
