// SPDX-License-Identifier: Apache-2.0
// The GPUs that the arbiter hands out: those found on the host, and those known from a session only.
//
// One thread, that of the event loop.
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
  // `found` is called with the GPUs that a search has found, when those that are new have been added.
  HostGpus(asio::io_context& loop, const System& system, CoreRunner& core, Administration& administration,
           Complaints& complaints, std::function<void(const std::vector<GpuInfo>&)> found);

  // Adds the GPUs that were found, and goes on searching.
  void start(const std::vector<GpuInfo>& found);
  // NVML lists others than those that were found.
  void search_now() { search_.hurry(); }
  // A GPU is missing, and may come back.
  void watch_closely(bool closely) { search_.watch_closely(closely); }
  // The process that tells of a GPU: its account, see account_of(), and whether it is of a tenant that
  // holds units.
  struct Teller {
    uid_t uid = 0;
    bool has_units = false;
  };
  // A session attaches to this GPU. One that is not known, as a MIG instance, is added as the session
  // describes it. Fails if the description is impossible or there are too many: no user fills the table with
  // GPUs that do not exist, and those without units leave room for those with them, as all users do for root.
  Status attach(const Attach& attach, const Teller& teller);
  // Forgets the names of GPUs that the core has dropped: the last session that knew of them has ended.
  void forget_gone();

  // The driver's names of them.
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
  std::map<GpuUuid, Teller> told_;  // GPUs that sessions only know
};

}  // namespace sharedgpu
