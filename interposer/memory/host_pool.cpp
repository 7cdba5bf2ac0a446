// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_pool.h"

#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace sharedgpu {
namespace {

constexpr unsigned kAllThreads = LinuxHost::kMostThreads;
constexpr unsigned kRest = 60;  // growth pauses for this many calls of tend(), which is about a minute

}  // namespace

HostPool::HostPool(Device& device, const HostBudget& budget, HostSystem& system, Bytes granule)
    : device_(device), budget_(budget), system_(system), granule_(granule) {
  for (Worker& worker : workers_) worker.pool = this;
}

HostPool::~HostPool() {
  prepare({}, 1);
  hurry({});
  for (Worker& worker : workers_) system_.join(worker.thread);
  for (const auto& [data, slab] : slabs_) {
    if (device_.unpin_host(data) == CUDA_SUCCESS) system_.unmap(data, size_of(slab));
  }
}

// Hands out memory, and grows the pool if necessary. While a worker is adding a slab, the caller waits for
// this slab. If the caller added a second slab at the same time, both slabs would be ready later.
std::optional<HostRoom> HostPool::take(Bytes size) {
  std::unique_lock lock(mutex_);
  while (minus(held(), used()) < size) {
    if (working()) {
      changed_.wait(lock);
      continue;
    }
    const Bytes goal = used() + size;
    lock.unlock();
    const bool grown = grow(goal, Pace::hurried);
    lock.lock();
    if (!grown && !working()) break;
  }
  if (minus(held(), used()) < size) return std::nullopt;
  HostRoom room;
  std::uint64_t missing = size.count / granule_.count;
  while (missing > 0) {
    std::byte* const data = *open_.begin();
    Slab& slab = slabs_.find(data)->second;
    const unsigned first = static_cast<unsigned>(std::countr_zero(slab.free));
    const unsigned run = static_cast<unsigned>(std::countr_one(slab.free >> first));
    const unsigned count = static_cast<unsigned>(std::min<std::uint64_t>(run, missing));
    slab.free &= ~(all_free(count) << first);
    if (slab.free == 0) open_.erase(data);
    room.push_back({data + first * granule_.count, {count * granule_.count}});
    missing -= count;
  }
  used_ += size.count;
  return room;
}

void HostPool::give(const HostRoom& room) {
  const std::lock_guard lock(mutex_);
  for (const HostPiece& piece : room) {
    const auto owner = std::prev(slabs_.upper_bound(piece.data));
    const std::uint64_t first = static_cast<std::uint64_t>(piece.data - owner->first) / granule_.count;
    const auto count = static_cast<unsigned>(piece.size.count / granule_.count);
    owner->second.free |= all_free(count) << first;
    open_.insert(owner->first);
    used_ -= piece.size.count;
  }
}

void HostPool::prepare(Bytes goal, unsigned sharers) {
  {
    const std::lock_guard lock(mutex_);
    prepared_ = goal;
    sharers_ = std::max(sharers, 1u);
  }
  start();
}

void HostPool::hurry(Bytes goal) {
  {
    const std::lock_guard lock(mutex_);
    hurried_ = goal;
  }
  start();
}

bool HostPool::working() const {
  return std::ranges::any_of(workers_, [](const Worker& worker) { return worker.busy; });
}

// Starts the pool's threads as far as they are needed. If no thread can be started, take() grows the pool in
// the thread that calls it, and the next tend() tries again to start one. While the program may launch work,
// only one thread grows the pool before an eviction, since each pinning delays the program's launches.
void HostPool::start() {
  const std::lock_guard one_at_a_time(start_mutex_);
  for (Worker& worker : workers_) {
    {
      const std::lock_guard lock(mutex_);
      const bool first = &worker == workers_.data();
      const bool wanted = lacks() && (first || hurries() || system_.spare_threads() > 1);
      if (worker.busy || !(wanted || (first && keep_))) continue;
      worker.busy = true;
    }
    system_.join(worker.thread);  // the previous thread of this worker has finished its work
    if (system_.start(worker.thread, work, &worker)) continue;
    const std::lock_guard lock(mutex_);
    worker.busy = false;
    changed_.notify_all();
  }
}

void* HostPool::work(void* worker) {
  auto& self = *static_cast<Worker*>(worker);
  self.pool->work(self);
  return nullptr;
}

void HostPool::work(Worker& worker) {
  prctl(PR_SET_NAME, "sharedgpu-pool");
  std::unique_lock lock(mutex_);
  for (bool grown = true; keep_ || (grown && lacks());) {
    if (keep_) {
      const Bytes keep = std::max(*std::exchange(keep_, std::nullopt), hurried_);
      lock.unlock();
      shrink(keep);
      lock.lock();
      continue;
    }
    const Pace pace = hurries() ? Pace::hurried : Pace::ahead;
    const Bytes goal = std::max(hurried_, prepared_);
    lock.unlock();
    grown = grow(goal, pace);
    lock.lock();
    // Growth before an eviction may have been refused. If an eviction has begun in the meantime, tries again
    // at once.
    if (!grown) grown = hurries() && (pace == Pace::ahead || hurried_ > goal);
  }
  worker.busy = false;
  changed_.notify_all();
}

// Adds one slab if the pool holds less than `goal`. `pace` is Pace::ahead for growth before an eviction. If
// the driver or the Linux kernel refuses memory for such growth, such growth pauses for about a minute.
bool HostPool::grow(Bytes goal, Pace pace) {
  Bytes size;
  std::byte* data = nullptr;
  {
    // Only one thread at a time may read the budget and touch pages: the budget counts the pages of a slab
    // only when they have been touched. At the same time, the other worker may pin its slab.
    const std::lock_guard one_at_a_time(touch_mutex_);
    size = claim_slab(goal, pace);
    if (size == Bytes{}) return false;
    data = system_.map(size, pace == Pace::ahead ? system_.spare_threads() : kAllThreads);
    const std::lock_guard lock(mutex_);
    touching_ = false;
  }
  if (data != nullptr) {
    const std::lock_guard one_at_a_time(pin_mutex_);
    if (device_.pin_host(data, size) != CUDA_SUCCESS) {
      system_.unmap(data, size);
      data = nullptr;
    }
  }
  const std::lock_guard lock(mutex_);
  growing_ -= size;
  if (data == nullptr) {
    if (pace == Pace::ahead) resting_ = kRest;
    return false;
  }
  const auto granules = static_cast<unsigned>(size.count / granule_.count);
  slabs_.emplace(data, Slab{granules, all_free(granules)});
  open_.insert(data);
  held_ += size.count;
  changed_.notify_all();
  return true;
}

// Counts the next slab in growing_, so that a concurrent bound() includes it. Returns the size of the slab;
// zero if no slab may be added.
Bytes HostPool::claim_slab(Bytes goal, Pace pace) {
  Bytes missing;
  {
    const std::lock_guard lock(mutex_);
    missing = minus(goal, coming());
  }
  if (missing == Bytes{}) return {};
  const Bytes size = next_slab(missing, pace);
  const std::lock_guard lock(mutex_);
  if (barred_ != 0 || coming() + size > most_) return {};
  growing_ += size;
  touching_ = true;
  return size;
}

Bytes HostPool::bound(Bytes most) {
  const std::lock_guard lock(mutex_);
  most_ = most;
  return coming();
}

// Samples the memory that is left. The pool's own growth and shrinking must not count as memory that the job
// allocates. If the job has several sessions, this session cannot tell growth of the other pools from memory
// that the job allocates, so it takes no samples.
void HostPool::watch() {
  Bytes before;
  {
    const std::lock_guard lock(mutex_);
    before = coming();
  }
  const Bytes left = budget_.room();
  const std::lock_guard lock(mutex_);
  // If the pool's size changes during room(), `left` may be from before or after this change.
  const bool changes = touching_ || shrinking_ != Bytes{} || coming() != before;
  // Skips the sample if `left` is zero: either the budget could not be read, or no memory is left and the
  // speed does not matter.
  if (sharers_ == 1 && !changes && left != Bytes{}) growth_.look(left + before, system_.now());
}

Bytes HostPool::room() const {
  const Bytes left = budget_.room();
  const std::lock_guard lock(mutex_);
  return sharers_ == 1 ? minus(left, growth_.a_second()) : left;
}

void HostPool::bar() {
  const std::lock_guard lock(mutex_);
  barred_ = kRest;
  resting_ = kRest;
}

// Returns the size of the next slab; zero if the budget is too small for a slab. The sessions of a job share
// the job's limits, and each session reads how much memory is left before it takes more. Every other session
// may be allocating a slab at the same time, so each session leaves enough memory for the slabs of all
// others. So all sessions together never exceed the limit. The size of a slab is divided by the number of
// sessions, which keeps this reserve small. If the budget is too small for a whole slab, the slab is only as
// large as the amount that the pool lacks.
Bytes HostPool::next_slab(Bytes missing, Pace pace) {
  std::unique_lock lock(mutex_);
  const unsigned sharers = sharers_;
  const std::uint64_t left = minus(most_, coming()).count / granule_.count;
  lock.unlock();
  const std::uint64_t share = std::max(kGranulesPerSlab / sharers, 1u);
  const Bytes of_others{(sharers - 1) * share * granule_.count};
  const Bytes size{std::min(share, left) * granule_.count};
  if (pace == Pace::ahead && budget_.tight(of_others + size)) return {};
  watch();
  const Bytes room = minus(this->room(), of_others);
  if (room >= size) return size;
  missing = std::min(size, {(missing.count + granule_.count - 1) / granule_.count * granule_.count});
  return room >= missing ? missing : Bytes{};
}

void HostPool::trim(Bytes keep) {
  {
    const std::lock_guard lock(mutex_);
    needed_ = keep;
    keep = std::max(keep, prepared_);
  }
  shrink(keep);
}

// After a shortage the pool does not grow before an eviction for about a minute, so that it does not
// alternate between releasing and growing.
void HostPool::tend(bool works) {
  Bytes keep;
  {
    const std::lock_guard lock(mutex_);
    if (held() == used() && prepared_ == Bytes{} && resting_ == 0 && barred_ == 0) return;
  }
  const bool tight = budget_.tight({});
  const bool used_up = budget_.used_up();
  {
    const std::lock_guard lock(mutex_);
    resting_ = tight ? kRest : resting_ - std::min(resting_, 1u);
    if (barred_ != 0) barred_ = used_up ? kRest : barred_ - 1;
    if (tight || prepared_ == Bytes{}) needed_ = {};
    if (!tight) keep = std::min(std::max(prepared_, needed_), most_);
    if (!tight && works) keep = std::max(keep, minus(held(), {kGranulesPerSlab * granule_.count}));
    if (exceeds(keep)) keep_ = keep;
    if (!keep_ && budget_.tight({kGranulesPerSlab * granule_.count})) return;
  }
  start();
}

// Returns true if a slab can be released, and the pool then still holds `keep` bytes.
bool HostPool::exceeds(Bytes keep) const {
  return std::any_of(slabs_.begin(), slabs_.end(), [&](const auto& slab) {
    return slab.second.free == all_free(slab.second.granules) && held() >= keep + size_of(slab.second);
  });
}

void HostPool::shrink(Bytes keep) {
  std::unique_lock lock(mutex_);
  for (auto next = slabs_.end(); next != slabs_.begin();) {
    const auto slab = std::prev(next);
    const Bytes size = size_of(slab->second);
    if (slab->second.free != all_free(slab->second.granules) || held() < keep + size) {
      next = slab;
      continue;
    }
    std::byte* const data = slab->first;
    const Slab shape = slab->second;
    open_.erase(data);
    next = slabs_.erase(slab);
    held_ -= size.count;
    shrinking_ += size;
    lock.unlock();
    // Memory that is still registered must not be unmapped: the driver would mistake the next mapping at this
    // address for the registered memory.
    const bool gone = device_.unpin_host(data) == CUDA_SUCCESS;
    if (gone) system_.unmap(data, size);
    lock.lock();
    shrinking_ -= size;
    if (!gone) {
      slabs_.emplace(data, shape);
      open_.insert(data);
      held_ += size.count;
      return;
    }
    next = slabs_.upper_bound(data);
  }
}

}  // namespace sharedgpu
