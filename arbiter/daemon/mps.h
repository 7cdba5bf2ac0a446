// SPDX-License-Identifier: Apache-2.0
// Runs NVIDIA's MPS control daemon if the site wants it (Mps=yes), and restarts it when it has ended. The
// control daemon outlives the arbiter, because jobs lose the GPU when the control daemon ends. A control
// daemon that an earlier arbiter started is found by its pid file, and watched. The control daemon serves all
// users at once (-M); otherwise the jobs of one user would wait until the last process of another user has
// ended. Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <string>

#include "arbiter/daemon/system.h"
#include "protocol/channel.h"

namespace sharedgpu {

class Mps {
 public:
  // `folder` holds the pipes by which programs find the control daemon, `logs` its logs; both are created if
  // missing. `changed` is called whenever serves() changes.
  Mps(asio::io_context& loop, const System& system, std::string folder, std::string logs,
      std::function<void()> changed);

  void start();
  // Returns true if a program that starts now finds MPS.
  bool serves() const { return serves_; }

  // The process that serves `folder`; empty if there is none.
  static UniqueFd find(const System& system, const std::string& folder);

 private:
  UniqueFd launch();
  UniqueFd open_output() const;
  void watch(UniqueFd process);
  void watch_pipe();
  void set_serves(bool serves);
  void ended();

  const System& system_;
  const std::string folder_;
  const std::string logs_;
  const std::function<void()> changed_;
  asio::posix::stream_descriptor death_;  // its pidfd
  asio::steady_timer timer_;
  pid_t child_ = -1;  // set if this process started it
  bool serves_ = false;
  std::chrono::steady_clock::time_point began_;
  std::chrono::seconds pause_{1};
};

}  // namespace sharedgpu
