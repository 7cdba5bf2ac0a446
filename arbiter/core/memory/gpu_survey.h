// SPDX-License-Identifier: Apache-2.0
// The findings of a survey of a GPU, in the words of the core. Plain values; sizes in bytes.
#pragma once

#include <map>
#include <optional>

#include "protocol/messages.h"

namespace sharedgpu {

struct GpuSurvey {
  Bytes unmanaged;  // memory of processes that have no session there
  // What the site lets the arbiter hand out, see capacity_of().
  Bytes limit;
  Bytes reserve;
  // The memory of the processes of sessions; none: surveys cannot tell of it. Sessions that are missing here
  // may be in the next survey.
  std::map<SessionId, std::optional<Bytes>> sessions = {};
};

}  // namespace sharedgpu
