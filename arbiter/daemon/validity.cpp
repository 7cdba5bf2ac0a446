// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/validity.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace sharedgpu {
namespace {

// maximum of the total number of bytes that a process moves
constexpr std::uint64_t kMostMoved = std::uint64_t{1} << 60;
// maximum of a time that is summed over all threads of a process
constexpr Nanoseconds kMostTime = std::chrono::hours(24 * 365 * 100);
// maximum number of deadlines in one message
constexpr std::uint64_t kMostDeadlines = std::uint64_t{1} << 32;

bool is_valid(const MemoryUse& use) {
  for (Bytes bytes : {use.swappable, use.resident, use.pinned, use.context, use.host})
    if (bytes > kLargest) return false;
  return use.settling <= use.resident && use.settling <= use.swappable && use.settling <= use.pinned;
}

bool is_valid(Traffic moved) {
  return moved.evicted.count <= kMostMoved && moved.restored.count <= kMostMoved;
}

bool is_valid(const Exchanges& exchanges) {
  return is_valid(exchanges.moved) && exchanges.copied.count <= kMostMoved &&
         exchanges.fastest.count <= kMostMoved &&
         std::ranges::all_of(std::array{exchanges.moving, exchanges.waited, exchanges.slowed},
                             [](Nanoseconds time) { return time >= Nanoseconds{} && time <= kMostTime; });
}

bool is_valid(Nanoseconds time) { return time >= Nanoseconds{} && time < std::chrono::hours(24 * 365); }

bool is_valid(const JobOptions& options) {
  return options.memory <= kLargest && options.backend <= Backend::native && options.gpus <= GpuList::kMost &&
         options.units <= JobOptions::kMostUnits && options.share_request <= 100 &&
         options.share_limit <= 100;
}

// Returns false for names with spaces or unprintable characters, which would be ambiguous in the ledger.
template <std::size_t kSize>
bool is_valid(const char (&name)[kSize]) {
  const std::size_t length = strnlen(name, sizeof name);
  return length < sizeof name && std::all_of(name, name + length, [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

bool is_valid(const Hello& hello) { return hello.backend <= Backend::native; }

bool is_valid(const Usage& usage) {
  return is_valid(usage.use) && is_valid(usage.moved) && usage.away <= kLargest &&
         usage.uncharged <= kLargest && is_valid(usage.exchanges);
}

bool is_valid(const Ready& ready) { return is_valid(ready.use) && is_valid(ready.moved); }

bool is_valid(const Released& released) { return is_valid(released.use) && is_valid(released.submission); }

bool is_valid(const Idle& idle) { return is_valid(idle.idle); }

bool is_valid(const Deadlines& deadlines) {
  return deadlines.met <= kMostDeadlines && deadlines.missed <= kMostDeadlines;
}

bool is_valid(const RefusalQuery& query) { return query.size <= kLargest; }

bool is_valid(const RunRequest& request) {
  return is_valid(request.options) && request.host_memory <= kLargest;
}

bool is_valid(const Attach& attach) { return attach.gpu != GpuUuid{}; }

bool is_valid(const RegisterJob& job) {
  return job.step.job != 0 && is_valid(job.options) && is_valid(job.job_class.partition) &&
         is_valid(job.job_class.qos) &&
         (job.brought <= RegisterJob::kMostBrought || job.brought == RegisterJob::kUnlimited);
}

bool is_valid(const RegisterGang& gang) {
  return gang.job != 0 && gang.nodes > 1 && gang.coordinator[0] != '\0' && gang.coordinator[0] != '-' &&
         is_valid(gang.coordinator);
}

bool is_valid(const EndJob& end) { return end.job != 0; }

bool is_valid(const SuspendJob& job) { return job.step.job != 0; }

}  // namespace sharedgpu
