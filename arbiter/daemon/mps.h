// SPDX-License-Identifier: Apache-2.0
// Runs NVIDIA's MPS control daemon where the site wants it (Mps=yes), and starts it again when it has ended.
// The control daemon outlives the arbiter, since jobs lose the GPU with it: one that an earlier arbiter has
// started is found by its pid file and watched. It serves all users at once (-M); otherwise the jobs of one
// user would wait for the last process of another. One thread, that of the event loop.
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
  // `folder` holds the pipes by which programs find it, `logs` its logs; both are made if they are missing.
  // `changed` is called whenever it begins or ceases to serve.
  Mps(asio::io_context& loop, const System& system, std::string folder, std::string logs,
      std::function<void()> changed);

  void start();
  // True if a program that starts at this moment finds it.
  bool serves() const { return serves_; }

  // The process that serves `folder`; empty: there is none.
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
  pid_t child_ = -1;  // it is one of this process
  bool serves_ = false;
  std::chrono::steady_clock::time_point began_;
  std::chrono::seconds pause_{1};
};

}  // namespace sharedgpu
