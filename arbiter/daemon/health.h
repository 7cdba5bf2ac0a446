// SPDX-License-Identifier: Apache-2.0
// The health of the host's GPUs: judges what NVML tells of them, keeps what administrators have drained, and
// does what the site wants when one fails (OnGpuLoss).
//
// A GPU is lost when NVML says so, when it reports Xid 79, or when NVML does not list it any more. It has
// failed when it reports an error that only a reset mends; who is there goes on, as far as the driver lets
// it. In doubt, as where NVML does not answer, all stays as it was. One thread, that of the event loop.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/client.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/gpus.h"
#include "arbiter/daemon/host_gpus.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/scontrol.h"
#include "arbiter/daemon/survey.h"
#include "arbiter/ledger/history.h"

namespace sharedgpu {

// What is known of a GPU beyond what the core has.
struct GpuState {
  GpuCondition condition = GpuCondition::healthy;
  std::string fault;                 // why it is not healthy
  std::optional<std::string> drain;  // why it is drained; none: it is not
};

class Health {
 public:
  struct Parts {
    const System& system;
    CoreRunner& core;
    Journal& journal;
    Tenants& tenants;
    const Administration& administration;
    Complaints& complaints;
    HostGpus& gpus;
    Scontrol& scontrol;
  };
  explicit Health(const Parts& parts) : its_(parts) {}

  // As the ledger has it. Call it when the core has its state, and before the first GPUs are found.
  void restore(const std::map<GpuUuid, GpuRecord>& past);
  // A search has found these.
  void found(const std::vector<GpuInfo>& gpus);
  // What GpuWatch hears.
  void looked(const std::vector<GpuHealth>& gpus, bool all);
  void saw(const GpuSign& sign);
  // A session of the tenant has gone from the GPU.
  void note_gone(const TenantInfo& tenant, const GpuUuid& gpu);
  // True while somebody has gone so short a time ago that it may have been for a loss that is not known yet:
  // it is looked for.
  bool may_miss_a_loss() const;
  // The same of this tenant: nobody has looked since its last session went.
  bool may_miss_a_loss(const TenantInfo& tenant) const;
  // The sender is an administrator.
  void drain(Client& client, const DrainGpus& request);

  const std::map<GpuUuid, GpuState>& states() const { return states_; }

 private:
  // What NVML has told of it.
  struct Sightings {
    unsigned misses = 0;                      // in a row
    std::optional<Nanoseconds> well_since;    // while it counts as lost
    std::optional<std::uint64_t> ecc_errors;  // at the last look
    unsigned losses = 0;                      // each soon after the one before
    Nanoseconds lost{};                       // when, the last time
  };
  static Nanoseconds well_for(const Sightings& seen);
  void sync(const GpuUuid& gpu);
  void set(const GpuUuid& gpu, GpuCondition condition, const std::string& fault);
  void note_well(const GpuUuid& gpu);
  void note_missing(const GpuUuid& gpu);
  void note_ecc_errors(const GpuUuid& gpu, std::uint64_t errors);
  void note_status(const GpuUuid& gpu, std::uint64_t status);
  void set_drained(const GpuUuid& gpu, const std::optional<std::string>& reason);
  void record(const GpuUuid& gpu);
  bool knows_better() const;
  // A tenant that was on the GPU, or was about to come; it may have ended since.
  struct Guest {
    TenantId id;
    std::string label;
    std::uint32_t job = 0;  // zero: it is none
    GpuUuid gpu;
    Nanoseconds gone{};
  };
  void note_losses(const GpuUuid& gpu, const std::vector<Guest>& guests);
  void tell_slurm(const GpuUuid& gpu, const std::vector<Guest>& guests);
  std::string complaint() const;
  std::string complaint_of(const GpuUuid& gpu, const GpuState& its) const;
  std::string name_of(const GpuUuid& gpu) const;
  std::vector<Guest> guests_of(const GpuUuid& gpu) const;

  const Parts its_;
  std::map<GpuUuid, GpuState> states_;      // of which something is told
  std::map<GpuUuid, Sightings> sightings_;  // of those that NVML has listed
  std::deque<Guest> gone_;                  // lately
  std::optional<Nanoseconds> looked_;       // the last time
};

}  // namespace sharedgpu
