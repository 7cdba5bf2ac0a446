// SPDX-License-Identifier: Apache-2.0
#include "interposer/backlog/queues.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "interposer/backlog/turn_rest.h"
#include "interposer/gate/captures.h"
#include "interposer/gate/gate.h"
#include "interposer/gate/thread_end.h"
#include "interposer/gate/wakeup.h"
#include "interposer/process/process.h"

namespace sharedgpu::backlog {
namespace {

using namespace std::chrono_literals;
using gate::now;

constexpr Nanoseconds kAnswer = 10ms;  // longest wait for the end of a yielded turn
constexpr Nanoseconds kFreshLook = 5ms;
constexpr Nanoseconds kLately = 5s;  // time for which a submission is regarded as recent
constexpr Nanoseconds kNap = 100us;  // pause between two polls of a fence

struct Entry {
  StreamPlace place;
  std::shared_ptr<Queue> queue;
};

// Decides whether the process yields its turn early (see turn_rest.h). All streams share this object, since
// the turn belongs to the process.
class Turn {
 public:
  bool give_back(Nanoseconds ends, Nanoseconds takes) {
    const std::uint32_t turn = gate::page().gate.load(std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    return LeasePage::is_open(turn) &&
           rest_.give_back(turn, made_in_.load(std::memory_order_relaxed), ends, now(), takes);
  }
  // Called inside the gate after a submission.
  void made() {
    const std::uint32_t turn = gate::page().gate.load(std::memory_order_relaxed);
    if (made_in_.load(std::memory_order_relaxed) != turn) made_in_.store(turn, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> made_in_{0};
  std::mutex mutex_;
  TurnRest rest_;
};

// A global object, so that its address is constant: every submission reads this object while the GPU is
// oversubscribed.
constinit Turn turn;

struct Queues final : session::SubmissionClock {
  std::mutex mutex;
  std::map<StreamId, Entry> all;
  std::atomic<std::uint32_t> forgotten{0};
  // True since the first turn whose end was known. The time of submissions is then measured.
  std::atomic<bool> timed{false};

  Nanoseconds longest() override;

  template <class Gone>
  void drop_if(Gone gone) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [=](const auto& known) { return gone(known.second.place); });
    forgotten.fetch_add(1, std::memory_order_release);
  }
};

// The object is never destroyed, since threads submit until the process ends.
Queues& queues() {
  static auto* made = new Queues;
  return *made;
}

constinit gate::ThreadEnd thread_end([](void* /*unused*/) {
  queues().drop_if([](const StreamPlace& place) { return place.thread == this_thread(); });
});

// A thread that waits for the GPU in the driver does not poll the fences of its streams, so another thread
// calls this function to poll them. Returns the largest of the streams' estimates for one submission, since a
// turn has to be long enough for such a submission.
Nanoseconds Queues::longest() {
  if (!timed.load(std::memory_order_relaxed)) return {};
  std::vector<std::shared_ptr<Queue>> looked_at;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [id, entry] : all) looked_at.push_back(entry.queue);
  }
  Nanoseconds longest{};
  for (const auto& queue : looked_at) longest = std::max(longest, queue->look());
  return longest;
}

// Yields the turn. If other tenants take the turn, the gate closes, and the submission waits at the gate.
void give_turn_back() {
  if (Process* mine = Process::get()) mine->give_turn_back();
  for (const Nanoseconds end = now() + kAnswer; gate::is_open() && now() < end;)
    std::this_thread::sleep_for(kNap);
}

}  // namespace

std::uint32_t Queue::wait_for_room() {
  std::unique_lock lock(mutex_);
  const Nanoseconds goal = gate::queue();
  ahead_.aim_for(goal != Nanoseconds{} ? goal : Ahead::kGoal);
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
  if (const Nanoseconds ends = gate::turn_ends(); ends != Nanoseconds{}) {
    queues().timed.store(true, std::memory_order_relaxed);
    take_passed(fresh());
    looked_ = submitted_ = now();
    const Nanoseconds takes = ahead_.expected();
    lock.unlock();
    if (turn.give_back(ends, takes)) give_turn_back();
    lock.lock();
  }
  return ahead_.begin(now());
}

Nanoseconds Queue::look() {
  const std::lock_guard lock(mutex_);
  if (gate::turn_ends() != Nanoseconds{} && !gate::capturing()) {
    take_passed(fresh());
    looked_ = now();
  }
  return now() - submitted_ < kLately ? ahead_.submission() : Nanoseconds{};
}

// Returns true if the last poll is recent. At this poll, none of the fences that are now in marks_ had
// passed.
bool Queue::fresh() const { return now() - looked_ < kFreshLook; }

void Queue::count(std::uint32_t submissions) {
  const std::lock_guard lock(mutex_);
  ahead_.count(submissions, gate::let_in());
}

void Queue::count_and_mark(std::uint32_t submissions) {
  const std::lock_guard lock(mutex_);
  if (ahead_.count(submissions, gate::let_in())) mark();
}

// Removes the fences that have passed, and returns true if there were any. While this thread waited, another
// thread may have removed some or all of the fences.
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
  if (Process* mine = Process::get())
    mine->contexts().unless_capturing([&] { fence = backlog::mark(place_, &result); });
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
  if (entry.queue == nullptr) {
    entry = {.place = *place, .queue = std::make_shared<Queue>(*place)};
    if (place->thread != 0) thread_end.watch(&thread_end);
  }
  return entry.queue;
}

std::shared_ptr<Queue> known_queue(StreamId id) {
  const std::lock_guard lock(queues().mutex);
  const auto known = queues().all.find(id);
  return known != queues().all.end() ? known->second.queue : nullptr;
}

void submission_made() { turn.made(); }

session::SubmissionClock& submission_clock() { return queues(); }

std::uint32_t forgotten_queues() { return queues().forgotten.load(std::memory_order_acquire); }

void forget_queue(CUstream stream) {
  queues().drop_if([=](const StreamPlace& place) { return place.stream == stream; });
}

void forget_queues_of(CUcontext context) {
  queues().drop_if([=](const StreamPlace& place) { return place.context == context; });
}

}  // namespace sharedgpu::backlog
