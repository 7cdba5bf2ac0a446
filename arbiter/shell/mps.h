// SPDX-License-Identifier: Apache-2.0
// Runs NVIDIA's MPS control daemon where the site wants it (Mps=yes), and starts it again when it has ended.
//
// It outlives the arbiter, since jobs lose the GPU with it: one that an arbiter before has started is found
// by its pid file and watched. It runs for all users at once (-M), for else the jobs of one would wait for
// the last process of another. One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <string>

#include "protocol/channel.h"

namespace sharedgpu {

class Mps {
 public:
  // `folder`: of the pipes by which programs find it; `logs`: of its logs. Made where they are missing.
  Mps(asio::io_context& loop, std::string folder, std::string logs);

  void start();
  // Whether a program that starts now finds it.
  bool serves() const;

 private:
  UniqueFd find() const;
  UniqueFd launch();
  void watch(UniqueFd process);
  void ended();

  const std::string folder_;
  const std::string logs_;
  asio::posix::stream_descriptor death_;  // its pidfd
  asio::steady_timer timer_;
  pid_t child_ = -1;  // it is one of this process
  std::chrono::steady_clock::time_point began_;
  std::chrono::seconds pause_{1};
};

}  // namespace sharedgpu
