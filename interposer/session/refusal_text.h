// SPDX-License-Identifier: Apache-2.0
// The message to the user about an allocation that was refused: which limit it exceeds, and which option with
// which value would help. Pure; any thread.
#pragma once

#include "interposer/session/settings.h"
#include "protocol/messages.h"

namespace sharedgpu::session {

struct RefusalText {
  char text[400] = {};  // NUL-terminated
};

// `why.bound` must not be `none`. `host_used`: the host memory that the job uses now, for its own data and
// for evicted data.
RefusalText describe(const RefusalReply& why, Bytes host_used, BatchSystem batch);

}  // namespace sharedgpu::session
