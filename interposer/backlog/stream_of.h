// SPDX-License-Identifier: Apache-2.0
// Finds the stream whose queue a submission fills, from the function's name and arguments. Only kernels,
// copies and fills count as filling a queue here; hooks/graph_memory.cpp counts launches of graphs. All other
// submissions never wait for the backlog limit: they fill no queue, or the GPU may be waiting for them (host
// functions, writes in stream order).
//
// Needs no cuda.h: names and argument words suffice, and tests/unit/interposer/driver/functions.cpp compares
// the result with cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "interposer/backlog/submission.h"

namespace sharedgpu::backlog {

// Returns true for the variants of functions in which stream 0 is the default stream of the calling thread.
constexpr bool to_own_stream(std::string_view name) {
  return name.ends_with("_ptsz") || name.ends_with("_ptds");
}

constexpr bool copies(std::string_view name) { return name.starts_with("cuMemcpy"); }

// stream_at() returns the index of an argument, or one of these constants.
inline constexpr int kFillsNoQueue = -1;
inline constexpr int kStreamZero = -2;  // the function takes no stream
inline constexpr int kInConfig = -3;  // in the struct to which the first argument of cuLaunchKernelEx points

constexpr int stream_at(std::string_view name, int words) {
  const bool moves = copies(name) || name.starts_with("cuMemset");
  const bool launches = name.starts_with("cuLaunch") && !name.starts_with("cuLaunchHostFunc") &&
                        name.find("MultiDevice") == name.npos;
  if (!moves && !launches) return kFillsNoQueue;
  if (name.starts_with("cuLaunchKernelEx")) return kInConfig;
  if (name.find("Kernel") != name.npos) return 8;
  return name.find("Async") != name.npos ? words - 1 : kStreamZero;
}

// Returns the index of the argument that holds the call's stream, or one of the constants above. In this
// stream, in_order.h orders the call with the submissions of other threads. Host functions fill no queue, but
// read what earlier work has written.
constexpr int ordered_at(std::string_view name, int words) {
  const bool host = name.starts_with("cuLaunchHostFunc") || name.starts_with("cuStreamAddCallback");
  return host ? 0 : stream_at(name, words);
}

// The first word of cuLaunchKernelEx points to a CUlaunchConfig: seven numbers, then the stream.
inline constexpr std::size_t kStreamInConfig = 32;

template <int at, class... Words>
StreamWord stream_of(Words... words) {
  const StreamWord all[] = {words...};
  if constexpr (at >= 0) return all[at];
  if constexpr (at == kStreamZero) return 0;
  StreamWord stream = 0;
  if (all[0] != 0)
    std::memcpy(&stream, reinterpret_cast<const char*>(all[0]) + kStreamInConfig, sizeof stream);
  return stream;
}

}  // namespace sharedgpu::backlog
