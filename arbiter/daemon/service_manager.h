// SPDX-License-Identifier: Apache-2.0
// Reports to the service manager (systemd or `sharedgpu supervise`) that the daemon is ready, reloads its
// settings or ends. Also reports a summary of what the daemon serves, and that the event loop is alive. The
// service manager ends and restarts a daemon that is silent for too long.
//
// The protocol is described in sd_notify(3) and sd_watchdog_enabled(3): datagrams to NOTIFY_SOCKET.
// Event-loop thread only.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "protocol/channel.h"

namespace sharedgpu {

class ServiceManager {
 public:
  // Removes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment, so that no child process
  // reports for the daemon. If NOTIFY_SOCKET is not set, the other methods have no effect.
  ServiceManager();

  // Reports that this daemon, or another daemon on the host, is ready to serve.
  void tell_ready() const { tell("READY=1"); }
  void tell_reloading() const;  // tell_ready() follows
  void tell_stopping() const { tell("STOPPING=1"); }
  // Reports twice in each watchdog interval that `loop` is alive. The reports come from a timer of the loop
  // itself, so they stop if the loop hangs. With each of these reports, or every ten seconds if there is no
  // watchdog, reports `summary()` if it has changed; null: no summary. This object must outlive the loop.
  void keep_telling(asio::io_context& loop, std::function<std::string()> summary = nullptr) const;

 private:
  void tell(const char* state) const;
  struct Beat {
    asio::steady_timer timer;
    std::function<std::string()> summary;
    std::string told;  // the last summary
  };
  void beat(const std::shared_ptr<Beat>& its) const;

  UniqueFd socket_;  // empty: no service manager
  sockaddr_un address_{};
  socklen_t address_size_ = 0;
  std::chrono::microseconds interval_{};  // 0: no watchdog
};

}  // namespace sharedgpu
