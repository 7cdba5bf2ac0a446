// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/growth_account.h"

#include <algorithm>

namespace sharedgpu {

bool GrowthAccount::request(Residency::Count count, Bytes size, Wish wish) {
  const auto lock = one_at_a_time();
  {
    const MutexLock counting(common_.mutex);
    if (!common_.residency.grow(count, size)) return false;
  }
  Books::Answer answer = within_host_limit();
  if (answer.granted) answer = ask();
  const bool opened = !answer.granted && count == Residency::Count::swappable && wish == Wish::needed &&
                      answer.host_most == Bytes{} && open_window(size);
  if (opened) answer = ask();
  if (answer.granted) {
    widen_window();
    answer = within_host_room();
    if (answer.granted && opened) common_.books.went_oversized();
    if (answer.granted) return true;
  }
  take_back(count, size);
  if (count == Residency::Count::pinned && wish == Wish::needed && shrink_window(size)) {
    {
      const MutexLock counting(common_.mutex);
      common_.residency.grow(count, size);
    }
    answer = common_.books.grow();
    if (answer.granted) return true;
    take_back(count, size);
  }
  if (wish == Wish::needed)
    common_.books.refused({.size = size,
                           .host_most = answer.host_most,
                           .host_used = common_.budget.used(),
                           .pinned = count == Residency::Count::pinned});
  return false;
}

// Requests growth. If the arbiter refuses for lack of host memory, releases the unused blocks of away memory
// and requests the growth again.
Books::Answer GrowthAccount::ask() {
  const Books::Answer answer = common_.books.grow();
  const bool lacks_host = !answer.granted && answer.host_most != Bytes{};
  return lacks_host && common_.blocks && common_.blocks->trim({}) ? common_.books.grow() : answer;
}

// Sets the window to the device memory that the arbiter has granted so far. The present growth of `size`
// bytes is not a part of it. Returns false if there is a window already, or the backend or the site permits
// no away memory.
bool GrowthAccount::open_window(Bytes size) {
  if (!common_.blocks || !common_.books.may_be_oversized()) return false;
  const MutexLock lock(common_.mutex);
  if (common_.residency.has_window()) return false;
  common_.residency.set_window(minus(common_.residency.swappable(), size));
  return true;
}

// Asks the arbiter to widen the window by as much as the GPU can still hold. The arbiter grants a growth as a
// whole or not at all. So the process first requests all of its memory beyond the window, then half as much,
// and so on. No handle enters the additional part of the window before this part is granted. Other threads
// may free memory meanwhile. While the arbiter is lost, the window stays as it is. Nothing would limit a
// wider window then, and a later arbiter would never give a turn to a process whose window is larger than the
// GPU.
//
// If the arbiter has restarted meanwhile, it assumes that the process already has the memory of the first
// request. So at the end, the process reports the memory that it really has.
void GrowthAccount::widen_window() {
  const Bytes granule = common_.device.granularity();
  bool asked = false;
  MutexLock lock(common_.mutex);
  for (Bytes part = common_.residency.beyond(); part >= common_.options.handle;) {
    const Bytes before = common_.residency.window();
    common_.residency.set_window(common_.residency.granted() + part);
    common_.residency.keep_free(part);
    widening_ = part;
    lock.unlock();
    const Books::Answer answer = common_.books.grow();
    lock.lock();
    common_.residency.keep_free({});
    widening_ = {};
    asked = true;
    if (answer.granted && !answer.lost) {
      part = std::min(part, common_.residency.beyond());
    } else {
      common_.residency.set_window(before);
      part = answer.lost ? Bytes{} : Bytes{part.count / 2 / granule.count * granule.count};
    }
  }
  lock.unlock();
  if (asked) common_.books.report(false);
}

// Makes room on the GPU for `size` bytes of pinned memory: handles leave the window, and the window shrinks
// by `size` bytes. The arbiter must grant these bytes as memory beyond the window; if it refuses, the
// function requests the old window again. Returns true if the window has shrunk and the caller may request
// the pinned memory. If the arbiter refuses the pinned memory even then, the window stays small.
bool GrowthAccount::shrink_window(Bytes size) {
  if (!common_.blocks || !common_.books.may_be_oversized()) return false;
  {
    const MutexLock lock(common_.mutex);
    if (common_.residency.granted() < size) return false;
    common_.residency.keep_free(size);
  }
  common_.books.went_oversized();
  const bool made = common_.books.make_room();
  {
    const MutexLock lock(common_.mutex);
    common_.wait_for_spare();
    const bool room = made && common_.residency.excess() == Bytes{};
    common_.residency.keep_free({});
    if (!room) return false;
    common_.residency.set_window(minus(common_.residency.granted(), size));
  }
  if (ask().granted) return true;
  {
    const MutexLock lock(common_.mutex);
    common_.residency.set_window(common_.residency.granted() + size);
  }
  // The request has already told the arbiter that the window is smaller. So the process requests the old
  // window again. If the arbiter has given this device memory to other tenants meanwhile, the window stays
  // small. claim() then tells the arbiter about the additional memory beyond the window.
  if (common_.books.grow().granted) return false;
  {
    const MutexLock lock(common_.mutex);
    common_.residency.set_window(minus(common_.residency.granted(), size));
  }
  common_.books.claim();
  return false;
}

void GrowthAccount::take_back(Residency::Count count, Bytes size) {
  {
    const MutexLock lock(common_.mutex);
    common_.residency.shrink(count, size);
  }
  common_.books.report(false);
}

// Checks that the host memory limit is large enough to evict all swappable memory. Reads the limits only if
// the swappable memory exceeds the largest amount that has passed this check since the limit last changed;
// the turn thread also reads the limits from time to time.
Books::Answer GrowthAccount::within_host_limit() {
  MutexLock lock(common_.mutex);
  const Bytes footprint = common_.residency.swappable();
  if (footprint <= within_limit_) return {.granted = true};
  lock.unlock();
  read_host_limit();
  lock.lock();
  if (host_limit_ != Bytes{} && host_limit_ < footprint) return {.granted = false, .host_most = host_limit_};
  within_limit_ = std::max(within_limit_, footprint);
  return {.granted = true};
}

// Checks that host memory is left for the handles that will be away. Without this check, a program that tries
// how much it may allocate would occupy the last host memory of the job, or of the node, until an allocation
// fails.
Books::Answer GrowthAccount::within_host_room() {
  MutexLock lock(common_.mutex);
  const Bytes footprint = common_.residency.swappable();
  const Bytes without_room = minus(common_.residency.in_window(), common_.residency.granted());
  lock.unlock();
  if (without_room == Bytes{} || common_.blocks == nullptr) return {.granted = true};
  const Bytes missing = minus(without_room, common_.blocks->room());
  if (missing == Bytes{}) return {.granted = true};
  return {.granted = false, .host_most = minus(footprint, missing)};
}

// Reads the limits of the host memory. They are reported to the arbiter, which applies them to all processes
// of a job together.
bool GrowthAccount::read_host_limit() {
  const auto or_zero = [](std::optional<Bytes> limit) {
    return limit ? std::max(*limit, Bytes{1}) : Bytes{};
  };
  const Bytes limit = or_zero(common_.budget.limit());
  const Bytes of_job = or_zero(common_.budget.job_limit());
  const MutexLock lock(common_.mutex);
  if (limit != host_limit_) within_limit_ = {};
  const bool changed = limit != host_limit_ || of_job != job_host_limit_;
  host_limit_ = limit;
  job_host_limit_ = of_job;
  return changed;
}

// Returns true if the job may allocate `size` more bytes of host memory. If that requires it, releases the
// unused blocks of away memory.
bool GrowthAccount::has_host_room(Bytes size) {
  if (common_.budget.room() >= size) return true;
  return common_.blocks && common_.blocks->room() >= size && common_.blocks->trim({}) &&
         common_.budget.room() >= size;
}

// If the site forbids away memory, the arbiter would refuse the request. So the arbiter is not asked, and
// only the budget of this process counts the memory.
bool GrowthAccount::take_host(Bytes size) {
  const auto lock = one_at_a_time();
  if (!has_host_room(size)) return false;
  common_.budget.take_uncharged(size);
  const bool reported = common_.books.may_be_oversized();
  {
    const MutexLock counting(common_.mutex);
    (reported ? host_ : host_unreported_) += size;
  }
  if (!reported || ask().granted) return true;
  give_host(size);
  return false;
}

void GrowthAccount::give_host(Bytes size) {
  common_.budget.give_uncharged(size);
  {
    const MutexLock lock(common_.mutex);
    const Bytes reported = std::min(size, host_);
    host_ -= reported;
    host_unreported_ = minus(host_unreported_, size - reported);
  }
  common_.books.report(false);
}

void GrowthAccount::set_context_size(Bytes size) {
  {
    const MutexLock lock(common_.mutex);
    if (context_ == size) return;
    context_ = size;
  }
  common_.books.report(false);
}

// bound() keeps the pool within the amount reported here. So the job's processes together never hold more
// host memory than the arbiter has granted.
ReportSource::Reading GrowthAccount::reading() const {
  const MutexLock lock(common_.mutex);
  const Bytes held =
      common_.pool ? common_.pool->bound(common_.residency.in_window()) : common_.mover->host_held();
  return {.use = {.swappable =
                      common_.residency.lost() ? common_.residency.resident() : common_.residency.granted(),
                  .resident = common_.residency.lost() ? common_.residency.resident()
                                                       : common_.residency.reported_resident(),
                  .pinned = common_.residency.pinned(),
                  .context = context_,
                  .host = held,
                  .settling = common_.residency.settling(),
                  .host_limit = host_limit_},
          .beyond = common_.residency.beyond() + host_,
          .widening = widening_};
}

Bytes GrowthAccount::uncharged() const {
  const Bytes blocks = common_.blocks ? common_.blocks->held() : Bytes{};
  const MutexLock lock(common_.mutex);
  return blocks + host_;
}

Bytes GrowthAccount::job_host_limit() const {
  const MutexLock lock(common_.mutex);
  return job_host_limit_;
}

}  // namespace sharedgpu
