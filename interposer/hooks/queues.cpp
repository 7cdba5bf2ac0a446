// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/queues.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "interposer/gate/control.h"
#include "interposer/gate/gate.h"
#include "interposer/session/session.h"
#include "interposer/session/wakeup.h"

namespace sharedgpu::hooks {
namespace {

using namespace std::chrono_literals;
using session::now;

constexpr Nanoseconds kNap = 100us;  // between looks whether a mark has passed

struct Entry {
  StreamPlace place;
  std::shared_ptr<Queue> queue;
};

struct Queues {
  std::mutex mutex;
  std::map<StreamId, Entry> all;
  std::atomic<std::uint32_t> forgotten{0};

  template <class Gone>
  void drop_if(Gone gone) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [=](const auto& known) { return gone(known.second.place); });
    forgotten.fetch_add(1, std::memory_order_release);
  }
};

// Never destroyed: threads submit until the process ends.
Queues& queues() {
  static auto* made = new Queues;
  return *made;
}

}  // namespace

std::uint32_t Queue::wait_for_room() {
  std::unique_lock lock(mutex_);
  Nanoseconds since = now();
  for (bool waited = false; ahead_.full(); waited = true) {
    if (take_passed(waited)) {
      since = now();
      continue;
    }
    if (gate::capturing() || !gate::oversubscribed()) break;
    if (now() - since >= ahead_.patience()) {
      ahead_.gave_up(now());
      break;
    }
    lock.unlock();
    std::this_thread::sleep_for(kNap);
    lock.lock();
  }
  return ahead_.begin(now());
}

void Queue::count(std::uint32_t submissions) {
  const std::lock_guard lock(mutex_);
  ahead_.count(submissions);
}

void Queue::count_and_mark(std::uint32_t submissions) {
  const std::lock_guard lock(mutex_);
  if (ahead_.count(submissions)) mark();
}

// Whether there were any. Another thread may have taken out those that this one waits for.
bool Queue::take_passed(bool seen_before) {
  const auto end = std::ranges::find_if_not(marks_, [](const FencePtr& mark) { return mark->passed(); });
  const auto passed = static_cast<std::size_t>(end - marks_.begin());
  if (passed == 0) return false;
  ahead_.passed(passed, now(), seen_before);
  marks_.erase(marks_.begin(), end);
  return true;
}

void Queue::mark() {
  FencePtr fence;
  CUresult result = CUDA_SUCCESS;
  session::contexts().unless_capturing([&] { fence = hooks::mark(place_, &result); });
  if (fence == nullptr) return ahead_.not_marked();
  marks_.push_back(std::move(fence));
  ahead_.marked();
}

std::shared_ptr<Queue> queue_of(CUstream stream, StreamId* id) {
  const auto place = locate(stream);
  if (!place) return nullptr;
  *id = place->id;
  const std::lock_guard lock(queues().mutex);
  Entry& entry = queues().all[place->id];
  if (entry.queue == nullptr) entry = {.place = *place, .queue = std::make_shared<Queue>(*place)};
  return entry.queue;
}

std::shared_ptr<Queue> known_queue(StreamId id) {
  const std::lock_guard lock(queues().mutex);
  const auto known = queues().all.find(id);
  return known != queues().all.end() ? known->second.queue : nullptr;
}

std::uint32_t forgotten_queues() { return queues().forgotten.load(std::memory_order_acquire); }

void forget_queue(CUstream stream) {
  queues().drop_if([=](const StreamPlace& place) { return place.stream == stream; });
}

void forget_queues_of(CUcontext context) {
  queues().drop_if([=](const StreamPlace& place) { return place.context == context; });
}

}  // namespace sharedgpu::hooks
