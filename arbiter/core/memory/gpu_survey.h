// SPDX-License-Identifier: Apache-2.0
// The result of a survey of a GPU, for the core. Plain values; sizes in bytes.
#pragma once

#include <map>
#include <optional>

#include "protocol/messages.h"

namespace sharedgpu {

struct GpuSurvey {
  Bytes unmanaged;    // memory of processes that have no session on the GPU
  Bytes hidden = {};  // memory of processes beyond the limits of their sessions on the GPU
  // For each session, the part of the hidden memory that counts as if the session had reported it.
  std::map<SessionId, Bytes> unreported = {};
  // The site's limits on the memory that the arbiter may hand out, see capacity_of().
  Bytes limit;
  Bytes reserve;
  // For each session, the memory of its process on this GPU; none if surveys cannot see the process. A
  // session that is newer than the survey has no entry.
  std::map<SessionId, std::optional<Bytes>> sessions = {};
  // For each session, the most memory that counts as its contexts; memory beyond that is hidden. A session
  // without an entry has no such bound.
  std::map<SessionId, Bytes> contexts = {};
};

}  // namespace sharedgpu
