// SPDX-License-Identifier: Apache-2.0
// Tells the service manager, systemd or `sharedgpu supervise`, that the daemon serves and that its event loop
// goes on. The service manager ends and restarts a daemon that is silent for too long.
//
// The protocol is that of sd_notify(3) and sd_watchdog_enabled(3): datagrams to NOTIFY_SOCKET. One thread,
// that of the event loop.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <memory>

#include "protocol/channel.h"

namespace sharedgpu {

class ServiceManager {
 public:
  // Takes NOTIFY_SOCKET and WATCHDOG_USEC out of the environment, so that no child process speaks for the
  // daemon. Without them there is nobody to tell, and nothing else here does anything.
  ServiceManager();

  // The daemon serves, or has found that another one does.
  void tell_ready() const { tell("READY=1"); }
  // Tells twice in each interval that `loop` goes on. Lives longer than the loop.
  void keep_telling(asio::io_context& loop) const;

 private:
  void tell(const char* state) const;
  void beat(const std::shared_ptr<asio::steady_timer>& timer) const;

  UniqueFd socket_;  // empty: there is no service manager
  sockaddr_un address_{};
  socklen_t address_size_ = 0;
  std::chrono::microseconds interval_{};  // 0: it does not care
};

}  // namespace sharedgpu
