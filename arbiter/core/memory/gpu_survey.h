// SPDX-License-Identifier: Apache-2.0
// The result of a survey of a GPU, for the core. Plain values; sizes in bytes.
#pragma once

#include <map>
#include <optional>

#include "protocol/messages.h"

namespace sharedgpu {

struct GpuSurvey {
  Bytes unmanaged;    // memory of processes without a session there
  Bytes hidden = {};  // memory of processes beyond the limits of their sessions there
  // The part of the hidden memory that counts for a session as if it had reported it.
  std::map<SessionId, Bytes> unreported = {};
  // The site's limits on the memory that the arbiter may hand out, see capacity_of().
  Bytes limit;
  Bytes reserve;
  // The memory of the processes of sessions; none if surveys cannot see it. Sessions that are missing here
  // may be in the next survey.
  std::map<SessionId, std::optional<Bytes>> sessions = {};
  // The most that counts as contexts of a session; missing: any amount. Memory beyond that is hidden.
  std::map<SessionId, Bytes> contexts = {};
};

}  // namespace sharedgpu
