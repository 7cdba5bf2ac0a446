// SPDX-License-Identifier: Apache-2.0
// Descriptors that the event loop watches.
#pragma once

#include <poll.h>

#include <asio/posix/stream_descriptor.hpp>
#include <utility>

#include "protocol/channel.h"

namespace sharedgpu {

// Moves `fd` into `watched`. On an error, for example if kernel memory is short, `fd` keeps the descriptor.
inline asio::error_code hand_over(UniqueFd& fd, asio::posix::stream_descriptor& watched) {
  asio::error_code error;
  watched.assign(fd.get(), error);
  if (!error) fd.release();
  return error;
}

// Calls `died` once when the process of the pidfd has ended. Does not call it if `pidfd` is closed or
// destroyed before.
//
// Checks the pidfd again before the call, because asio 1.22 can end a wait too early. If a handler closes a
// descriptor and opens another, the new descriptor may get events that the loop has already fetched for the
// closed descriptor (epoll_reactor reuses its descriptor_state).
template <class Died>
void await_death(asio::posix::stream_descriptor& pidfd, Died died) {
  pidfd.async_wait(asio::posix::descriptor_base::wait_read,
                   [&pidfd, died = std::move(died)](const asio::error_code& error) mutable {
                     if (error) return;
                     pollfd entry = {.fd = pidfd.native_handle(), .events = POLLIN, .revents = 0};
                     if (poll(&entry, 1, 0) == 0) return await_death(pidfd, std::move(died));
                     died();
                   });
}

}  // namespace sharedgpu
