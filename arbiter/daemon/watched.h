// SPDX-License-Identifier: Apache-2.0
// Descriptors that the event loop watches.
#pragma once

#include <asio/posix/stream_descriptor.hpp>

#include "protocol/channel.h"

namespace sharedgpu {

// Hands `fd` to `watched`. On an error, such as a lack of kernel memory, `fd` keeps it.
inline asio::error_code hand_over(UniqueFd& fd, asio::posix::stream_descriptor& watched) {
  asio::error_code error;
  watched.assign(fd.get(), error);
  if (!error) fd.release();
  return error;
}

}  // namespace sharedgpu
