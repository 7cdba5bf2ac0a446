// SPDX-License-Identifier: Apache-2.0
#include "interposer/backlog/submission.h"

#include <array>
#include <utility>

#include "interposer/backlog/queues.h"
#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"
#include "interposer/gate/gate.h"

namespace sharedgpu::backlog {
namespace {

// The submissions that the thread may still make to a stream before it has to count them in the stream's
// queue. While submissions are left, a submission does not touch the queue. The object identifies the queue
// by the queue's number, since the stream may have been destroyed and its handle reused. The object is small,
// since thread-local storage is scarce.
struct Grant {
  std::uintptr_t key = 0;
  StreamId queue;
  std::uint32_t as_of = 0;  // the value of forgotten_queues() at the last check
  std::uint16_t given = 0;
  std::uint16_t left = 0;

  std::uint32_t take_made() { return std::uint32_t{std::exchange(given, 0)} - std::exchange(left, 0); }
  // Returns true if any submissions are left and the stream still exists.
  bool holds() {
    const std::uint32_t now = forgotten_queues();
    if (std::exchange(as_of, now) != now && known_queue(queue) == nullptr) given = left = 0;
    return left != 0;
  }
};

// The thread's grants for up to three streams. A grant for a further stream replaces the oldest of these
// grants.
constinit thread_local std::array<Grant, 3> grants{};
constinit thread_local std::uint32_t next_grant = 0;

// The key of a default stream is the address of its context, since each context has its own default streams,
// plus the number of the stream (1 or 2). The key of any other stream is its handle. Handles are aligned
// addresses, so no two streams have the same key.
std::uintptr_t key_of(StreamWord stream) {
  if (stream > kPerThread) return stream;
  CUcontext context = nullptr;
  SHAREDGPU_REAL(cuCtxGetCurrent, &context);
  return reinterpret_cast<std::uintptr_t>(context) | stream;
}

Grant& grant_of(std::uintptr_t key) {
  for (Grant& grant : grants)
    if (grant.key == key) return grant;
  Grant& grant = grants[next_grant++ % grants.size()];
  if (const std::uint32_t made = grant.take_made(); made != 0)
    if (const auto queue = known_queue(grant.queue)) queue->count(made);
  grant.key = key;
  return grant;
}

}  // namespace

std::size_t Submission::wait_for_room(StreamWord stream, bool own) {
  if (gate::inside() || gate::capturing()) return kNone;
  if (stream == 0) stream = reinterpret_cast<StreamWord>(own ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY);
  Grant& grant = grant_of(key_of(stream));
  if (!grant.holds()) {
    const auto queue = queue_of(reinterpret_cast<CUstream>(stream), &grant.queue);
    if (queue == nullptr) return kNone;
    grant.given = grant.left = static_cast<std::uint16_t>(queue->wait_for_room());
  }
  return static_cast<std::size_t>(&grant - grants.data()) + 1;
}

void Submission::made(std::size_t counted_on) {
  submission_made();
  Grant& grant = grants[counted_on - 1];
  if (grant.left == 0 || --grant.left != 0) return;
  const std::uint32_t made = grant.take_made();
  if (const auto queue = known_queue(grant.queue)) queue->count_and_mark(made);
}

}  // namespace sharedgpu::backlog
