// SPDX-License-Identifier: Apache-2.0
// Finds the GPUs of this host through NVML or the driver.
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
  std::optional<unsigned> minor = {};  // minor number of the GPU's device file; only NVML reports this number
};

// The default of `timeout`, and the timeout of GpuSearch. It is long, since the first cuInit may have to load
// the kernel module.
inline constexpr std::chrono::milliseconds kGpuTimeout{15'000};

// Lists the GPUs of the host: asks NVML or the driver in a child process. If the driver crashes, or hangs for
// longer than `timeout`, only the child is affected, and the list has only the GPUs that the child has
// reported by then. Returns an empty list if there is no driver or no GPU, or if no child can be started.
// Call before threads are started.
std::vector<GpuInfo> find_gpus(const System& system, std::chrono::milliseconds timeout = kGpuTimeout);

// Searches for GPUs repeatedly, at growing intervals, until it finds some, because the driver may be ready
// later than the arbiter. Once NVML has reported GPUs, the search is repeated once a minute, or six times a
// minute (watch_closely()), because GPUs may be added or removed. Never blocks. Event-loop thread only.
class GpuSearch {
 public:
  // `found` is called after each search that finds a GPU.
  GpuSearch(asio::io_context& loop, const System& system,
            std::function<void(const std::vector<GpuInfo>&)> found);
  ~GpuSearch();
  GpuSearch(const GpuSearch&) = delete;
  GpuSearch& operator=(const GpuSearch&) = delete;
  void start();
  // Call after GPUs have been found. If NVML has ever reported GPUs, continues to search, with the pause that
  // watch_closely() sets.
  void go_on(const std::vector<GpuInfo>& found);
  // If a search is planned, starts it now. Does nothing while a search is running, or if no search is planned
  // because only the driver has ever reported GPUs.
  void hurry();
  // Sets the pause between searches from the next search on: six searches a minute if `closely`, else one.
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
  bool has_nvml_ = false;  // NVML has reported GPUs at least once
};

}  // namespace sharedgpu
