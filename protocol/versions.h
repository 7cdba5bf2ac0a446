// SPDX-License-Identifier: Apache-2.0
// The fields that each version of the protocol has added to older messages.
#pragma once

#include <cstddef>

#include "protocol/messages.h"

namespace sharedgpu {

// A field of a message's body. In a message of an earlier version, the bytes of the field may have any
// values, because they were padding there.
struct AddedField {
  std::uint16_t version;
  MessageType type;
  std::size_t offset;
  std::size_t size;
};

#define SHAREDGPU_ADDED(version, Body, field) \
  AddedField { version, Body::kType, offsetof(Body, field), sizeof(Body{}.field) }

inline constexpr AddedField kAddedFields[] = {
    SHAREDGPU_ADDED(5, Usage, job_host_limit),
    SHAREDGPU_ADDED(5, RunRequest, devices),
    SHAREDGPU_ADDED(5, RegisterJob, devices),
    SHAREDGPU_ADDED(5, RegisterJob, whole),
    SHAREDGPU_ADDED(6, RunRequest, vouched),
    SHAREDGPU_ADDED(6, RunRequest, uid),
    SHAREDGPU_ADDED(6, Usage, moved),
    SHAREDGPU_ADDED(6, Ready, moved),
    SHAREDGPU_ADDED(6, LeaseReply, moved),
    SHAREDGPU_ADDED(6, LeaseReply, waited),
    SHAREDGPU_ADDED(8, Released, submission),
    SHAREDGPU_ADDED(8, RegisterJob, job_class),
    SHAREDGPU_ADDED(8, RunReply, threads),
    SHAREDGPU_ADDED(8, RegisterReply, threads),
    SHAREDGPU_ADDED(11, RegisterJob, gang),
    SHAREDGPU_ADDED(11, JobReply, losses),
    SHAREDGPU_ADDED(12, RunRequest, host_memory),
    SHAREDGPU_ADDED(12, RunReply, confined),
    SHAREDGPU_ADDED(12, RunReply, units),
    SHAREDGPU_ADDED(12, RegisterJob, brought),
    SHAREDGPU_ADDED(13, RegisterJob, element),
    SHAREDGPU_ADDED(13, RefusalQuery, pinned),
    SHAREDGPU_ADDED(14, Attached, oversize),
    SHAREDGPU_ADDED(14, Usage, away),
    SHAREDGPU_ADDED(15, Usage, exchanges),
    SHAREDGPU_ADDED(15, Usage, uncharged),
    SHAREDGPU_ADDED(15, MemoryView, away),
};

#undef SHAREDGPU_ADDED

// In messages, MemoryUse and JobOptions are followed by other fields. A new field in these structs would move
// the fields behind them.
static_assert(sizeof(MemoryUse) == 56 && offsetof(Usage, stuck) == 64);
static_assert(sizeof(JobOptions) == 40 && offsetof(RunRequest, chosen) == 40 &&
              offsetof(RegisterJob, devices) == 56);

// Sets to zero each field that the sender's version does not have.
inline void clear_what_was_added_since(Message& message) {
  for (const AddedField& field : kAddedFields)
    if (field.type == message.type && field.version > message.version)
      std::memset(message.body + field.offset, 0, field.size);
}

}  // namespace sharedgpu
