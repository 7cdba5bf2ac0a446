// SPDX-License-Identifier: Apache-2.0
// The GPUs that the arbiter hands out: those found on the host, and those that only a session has told of.
//
// One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <map>
#include <string>
#include <vector>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/gpus.h"
#include "arbiter/daemon/system.h"
#include "protocol/messages.h"
#include "protocol/status.h"

namespace sharedgpu {

class HostGpus {
 public:
  HostGpus(asio::io_context& loop, const System& system, CoreRunner& core, Administration& administration);

  // Takes in those that were found; where there are none, looks for them from now on.
  void start(const std::vector<GpuInfo>& found);
  // A session uses this GPU: one that is not known is taken in as the session tells of it, or it fails.
  Status attach(const Attach& attach);
  // Of those that only sessions told of, and whose last has gone, nothing is kept.
  void forget_gone();

  // By which the driver knows them.
  const std::map<GpuUuid, std::string>& names() const { return names_; }

 private:
  void add(const GpuInfo& gpu, bool learned);

  CoreRunner& core_;
  Administration& administration_;
  GpuSearch search_;
  std::map<GpuUuid, std::string> names_;
};

}  // namespace sharedgpu
