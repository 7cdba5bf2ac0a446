// SPDX-License-Identifier: Apache-2.0
// The GPUs that the arbiter manages: GPUs that it has found on the host, and GPUs that only a session has
// reported.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/gpus.h"
#include "arbiter/daemon/system.h"
#include "protocol/messages.h"
#include "protocol/status.h"

namespace sharedgpu {

class HostGpus {
 public:
  // `found` is called with the GPUs of each search, after new GPUs have been added.
  HostGpus(asio::io_context& loop, const System& system, CoreRunner& core, Administration& administration,
           Complaints& complaints, std::function<void(const std::vector<GpuInfo>&)> found);

  // Adds the GPUs that were found. Continues to search if NVML found them, or if there are none.
  void start(const std::vector<GpuInfo>& found);
  // Call when NVML's list of GPUs differs from the result of the last search, or when a GPU is lost or
  // failing.
  void search_now() { search_.hurry(); }
  // Sets whether searches are frequent, for example while a lost GPU may come back.
  void watch_closely(bool closely) { search_.watch_closely(closely); }
  // The process that reports a GPU: its account (see account_of()), and whether its tenant has units.
  struct Teller {
    uid_t uid = 0;
    bool has_units = false;
  };
  // Adds the GPU that the message describes to the core, unless the core knows this GPU already. The arbiter
  // has not found such a GPU itself (it may be a MIG instance), and must take its size from the message.
  // Fails if the description is impossible. Fails also if there are too many GPUs, so that no user can fill
  // the table with GPUs that do not exist. Some entries of the table are reserved for users with units, and
  // some for root.
  Status attach(const Attach& attach, const Teller& teller);
  // Forgets the names of GPUs that the core dropped because the last session on them ended.
  void forget_gone();

  // The model names of the GPUs: from NVML or the driver, or as a session has reported them.
  const std::map<GpuUuid, std::string>& names() const { return names_; }

 private:
  void take(const std::vector<GpuInfo>& found);
  bool has_room_for(const Teller& teller, std::size_t known) const;
  void add(const GpuInfo& gpu, std::optional<uid_t> teller = {});

  CoreRunner& core_;
  Administration& administration_;
  Complaints& complaints_;
  const std::function<void(const std::vector<GpuInfo>&)> found_;
  GpuSearch search_;
  std::map<GpuUuid, std::string> names_;
  std::map<GpuUuid, Teller> told_;  // GPUs reported only by sessions
};

}  // namespace sharedgpu
