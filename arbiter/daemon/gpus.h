// SPDX-License-Identifier: Apache-2.0
// The GPUs of this host, asked of NVML or of the driver.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/system.h"
#include "protocol/channel.h"
#include "protocol/units.h"

namespace sharedgpu {

struct GpuInfo {
  GpuUuid uuid;
  Bytes total;
  std::string name;
  std::optional<unsigned> minor = {};  // of its device file; only NVML reports it
};

// A first cuInit may have to load the kernel module.
inline constexpr std::chrono::milliseconds kGpuTimeout{15'000};

// Asks in a child process, so that no context, library or device file of the driver stays in the daemon, and
// a driver that crashes or hangs (for longer than `timeout`) takes nobody with it. Empty where there is no
// driver or no GPU. Call it before threads are started.
std::vector<GpuInfo> find_gpus(const System& system, std::chrono::milliseconds timeout = kGpuTimeout);

// Searches for GPUs again and again, less and less often, until it finds some: the driver may be ready later
// than the arbiter. Where NVML tells of them it goes on, once a minute: GPUs come and go. Nothing waits for
// it. One thread, that of the event loop.
class GpuSearch {
 public:
  // `found` is called with one GPU at least.
  GpuSearch(asio::io_context& loop, const System& system,
            std::function<void(const std::vector<GpuInfo>&)> found);
  ~GpuSearch();
  GpuSearch(const GpuSearch&) = delete;
  GpuSearch& operator=(const GpuSearch&) = delete;
  void start();
  // GPUs have been found; the search goes on, where NVML told of them.
  void go_on(const std::vector<GpuInfo>& found);
  // Searches at once, if it is between two searches.
  void hurry();
  // From the next search on it goes on six times a minute, or once.
  void watch_closely(bool closely) { closely_ = closely; }

 private:
  void ask();
  void finish();

  const System& system_;
  std::function<void(const std::vector<GpuInfo>&)> found_;
  asio::steady_timer timer_;
  asio::steady_timer timeout_;
  asio::posix::stream_descriptor death_;  // the child's pidfd
  pid_t child_ = -1;
  UniqueFd answer_;
  std::chrono::seconds pause_;
  bool closely_ = false;
};

}  // namespace sharedgpu
