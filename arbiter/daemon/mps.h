// SPDX-License-Identifier: Apache-2.0
// Runs NVIDIA's MPS control daemon if Mps=yes, and restarts the control daemon when it has ended. The control
// daemon outlives the arbiter, because jobs lose the GPU when the control daemon ends. If an earlier arbiter
// started the control daemon, this arbiter finds it by its pid file, and watches it. The control daemon
// serves all users at the same time (-M); otherwise the jobs of one user would wait until the last process of
// another user has ended. Event-loop thread only.
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
  // `folder`: the folder of the pipes by which programs find the control daemon. `logs`: the folder of the
  // control daemon's logs. Both are created if missing. `changed` is called whenever serves() changes.
  Mps(asio::io_context& loop, const System& system, std::string folder, std::string logs,
      std::function<void()> changed);

  void start();
  // Returns true if the control daemon is ready: programs that start use MPS.
  bool serves() const { return serves_; }

  // The pidfd of the control daemon that serves `folder`; empty if none runs.
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
  asio::posix::stream_descriptor death_;  // the control daemon's pidfd
  asio::steady_timer timer_;
  pid_t child_ = -1;  // the control daemon's pid if this process started it, else -1
  bool serves_ = false;
  std::chrono::steady_clock::time_point began_;
  std::chrono::seconds pause_{1};
};

}  // namespace sharedgpu
