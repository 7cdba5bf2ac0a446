// SPDX-License-Identifier: Apache-2.0
// The findings of a survey of a GPU, in the words of the core. Plain values; sizes in bytes.
#pragma once

#include <map>
#include <optional>

#include "protocol/messages.h"

namespace sharedgpu {

struct GpuSurvey {
  Bytes unmanaged;    // memory of processes that have no session there
  Bytes hidden = {};  // that of the processes of sessions beyond what these may have
  // The site lets the arbiter hand out so much, see capacity_of().
  Bytes limit;
  Bytes reserve;
  // The memory of the processes of sessions; none: surveys cannot tell of it. Sessions that are missing here
  // may be in the next survey.
  std::map<SessionId, std::optional<Bytes>> sessions = {};
  // The most that counts as contexts of a session; missing: any amount. What it has beyond is hidden.
  std::map<SessionId, Bytes> contexts = {};
};

}  // namespace sharedgpu
