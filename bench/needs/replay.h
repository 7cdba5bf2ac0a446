// SPDX-License-Identifier: Apache-2.0
// Replays a trace of needs (traces.h) with a window of device memory, and counts the bytes that enter and
// leave the window. A handle is away until its first need. A need that is larger than the window is skipped.
#pragma once

#include <cstdint>

#include "bench/needs/traces.h"

namespace sharedgpu::needs {

// The result of a replay. The first needs of the trace, Trace::learned in number, do not count.
struct Moved {
  Bytes bytes;  // the bytes that entered and left the window
  std::uint64_t exchanges = 0;
};

// The bytes that move if NeedOrder and plan() choose the handles. In an exchange, handles enter the window
// before they are needed only while at most `most` bytes enter it altogether.
Moved with_plans(const Trace& trace, Bytes window, Bytes most);
// The bytes that move if the least recently used handles leave, and no handle enters the window before it is
// needed.
Moved least_recently_used(const Trace& trace, Bytes window);
// A lower bound: the bytes that move if all future needs are known and parts of handles can move. No policy
// that moves whole handles moves fewer bytes. If all sizes are equal and divide the window, this is Belady's
// optimum of whole handles.
Moved optimum(const Trace& trace, Bytes window);

}  // namespace sharedgpu::needs
