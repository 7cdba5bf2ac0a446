// SPDX-License-Identifier: Apache-2.0
// Reports to the service manager (systemd or `sharedgpu supervise`) that the daemon is ready and that its
// event loop is alive. The service manager ends and restarts a daemon that is silent for too long.
//
// The protocol is described in sd_notify(3) and sd_watchdog_enabled(3): datagrams to NOTIFY_SOCKET.
// Event-loop thread only.
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
  // Removes NOTIFY_SOCKET and WATCHDOG_USEC from the environment, so that no child process reports for the
  // daemon. If these variables are not set, the other methods have no effect.
  ServiceManager();

  // Reports that this daemon, or another daemon on the host, is ready to serve.
  void tell_ready() const { tell("READY=1"); }
  // Reports twice in each watchdog interval that `loop` is alive. This object must outlive the loop.
  void keep_telling(asio::io_context& loop) const;

 private:
  void tell(const char* state) const;
  void beat(const std::shared_ptr<asio::steady_timer>& timer) const;

  UniqueFd socket_;  // empty: no service manager
  sockaddr_un address_{};
  socklen_t address_size_ = 0;
  std::chrono::microseconds interval_{};  // 0: no watchdog
};

}  // namespace sharedgpu
