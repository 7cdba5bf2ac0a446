// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/submission.h"

#include <algorithm>
#include <array>
#include <utility>

#include "interposer/gate/control.h"
#include "interposer/hooks/queues.h"

namespace sharedgpu::hooks {
namespace {

// How many submissions the thread may still make to a stream until they are counted there. So those between
// two marks touch nothing but this.
struct Grant {
  StreamWord stream = 0;
  std::uint32_t given = 0;
  std::uint32_t left = 0;

  std::shared_ptr<Queue> queue() const { return queue_of(reinterpret_cast<CUstream>(stream)); }
  std::uint32_t take_made() { return std::exchange(given, 0) - std::exchange(left, 0); }
};

// Of the streams that the thread used last.
constinit thread_local std::array<Grant, 4> grants{};
constinit thread_local std::uint32_t next_grant = 0;

Grant* grant_of(StreamWord stream) {
  auto* found = std::ranges::find(grants, stream, &Grant::stream);
  return found == grants.end() ? nullptr : found;
}

Grant& new_grant(StreamWord stream) {
  Grant& grant = grants[next_grant++ % grants.size()];
  if (const std::uint32_t made = grant.take_made(); made != 0)
    if (const auto queue = grant.queue()) queue->count(made);
  grant.stream = stream;
  return grant;
}

}  // namespace

StreamWord Submission::wait_for_room(StreamWord stream, bool own) {
  if (gate::inside() || gate::capturing()) return kNone;
  if (stream == 0) stream = reinterpret_cast<StreamWord>(own ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY);
  Grant* known = grant_of(stream);
  Grant& grant = known != nullptr ? *known : new_grant(stream);
  if (grant.left == 0) {
    const auto queue = grant.queue();
    if (queue == nullptr) return kNone;
    grant.given = grant.left = queue->wait_for_room();
  }
  return stream;
}

void Submission::made(StreamWord stream) {
  Grant* grant = grant_of(stream);
  if (grant == nullptr || --grant->left != 0) return;
  const std::uint32_t made = grant->take_made();
  if (const auto queue = grant->queue()) queue->count_and_mark(made);
}

}  // namespace sharedgpu::hooks
