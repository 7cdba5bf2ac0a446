// SPDX-License-Identifier: Apache-2.0
// What each version of the protocol has added to messages that there were before.
#pragma once

#include <cstddef>

#include "protocol/messages.h"

namespace sharedgpu {

// A field of a message's body: a peer of an earlier version may have anything in its place, since padding is
// sent as it is.
struct AddedField {
  std::uint16_t version;
  MessageType type;
  std::size_t offset;
  std::size_t size;
};

#define SHAREDGPU_ADDED(version, Body, field) \
  AddedField { version, Body::kType, offsetof(Body, field), sizeof(Body{}.field) }

inline constexpr AddedField kAddedFields[] = {
    SHAREDGPU_ADDED(4, Verdict, host_most),       SHAREDGPU_ADDED(4, Want, host_short),
    SHAREDGPU_ADDED(4, RunRequest, options.gpus), SHAREDGPU_ADDED(4, RunRequest, chosen),
    SHAREDGPU_ADDED(4, RunReply, gpus),           SHAREDGPU_ADDED(4, RegisterJob, options.gpus),
    SHAREDGPU_ADDED(4, RegisterReply, gpus),      SHAREDGPU_ADDED(5, Usage, job_host_limit),
    SHAREDGPU_ADDED(5, RunRequest, devices),      SHAREDGPU_ADDED(5, RegisterJob, devices),
    SHAREDGPU_ADDED(5, RegisterJob, whole),
};

#undef SHAREDGPU_ADDED

// Sets what the sender did not know of yet to zero.
inline void clear_what_was_added_since(Message& message) {
  for (const AddedField& field : kAddedFields)
    if (field.type == message.type && field.version > message.version)
      std::memset(message.body + field.offset, 0, field.size);
}

}  // namespace sharedgpu
