// SPDX-License-Identifier: Apache-2.0
// The GPUs that the arbiter hands out: those found on the host, and those known from a session only.
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

  // Adds the GPUs that were found. If there are none, it goes on searching.
  void start(const std::vector<GpuInfo>& found);
  // A session attaches to this GPU. One that is not known is added as the session describes it; fails if the
  // description is impossible or there are too many.
  Status attach(const Attach& attach);
  // Forgets the names of GPUs that the core has dropped: the last session that knew of them has ended.
  void forget_gone();

  // The driver's names of them.
  const std::map<GpuUuid, std::string>& names() const { return names_; }

 private:
  void add(const GpuInfo& gpu, bool learned);

  CoreRunner& core_;
  Administration& administration_;
  GpuSearch search_;
  std::map<GpuUuid, std::string> names_;
};

}  // namespace sharedgpu
