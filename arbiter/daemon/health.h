// SPDX-License-Identifier: Apache-2.0
// The health of the host's GPUs: derives each GPU's condition from NVML's reports, keeps the drains of
// administrators, and acts on failures as OnGpuLoss= says.
//
// A GPU is lost if NVML reports it as lost, if it reports Xid 79, or if NVML stops listing it. A GPU is
// failing if it reports an error that only a reset clears; its tenants continue as far as the driver lets
// them. If NVML does not answer, no condition changes. Event-loop thread only.
//
// To add a sign that a GPU fails:
//   1. If NVML is not asked for it yet: survey_child.cpp asks, and SurveyLine (survey_child.h) carries the
//      answer; survey.cpp passes it on in GpuHealth or GpuSign (survey.h).
//   2. Its consequence in health.cpp: looked() or saw(). A count over surveys is a field of Sightings.
//   3. Test it in tests/unit/arbiter/survey.cpp and health.cpp, and in tests/integration/health.bats, for
//      which tests/simgpu/nvml.cpp reports the sign, on request of tests/simgpu/simgpu_fault.cpp. A new kind
//      of SurveyLine goes into tests/fuzz/crowd.h, too.
//   4. Document it in the table of docs/design/health.md.
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

// The state of a GPU beyond what the core knows.
struct GpuState {
  GpuCondition condition = GpuCondition::healthy;
  std::string fault;                 // why it is not healthy
  std::optional<std::string> drain;  // the reason for the drain; none if not drained
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

  // Restores the state from the ledger. Call it after the core has its state, and before the first GPUs are
  // found.
  void restore(const std::map<GpuUuid, GpuRecord>& past);
  // Takes the result of a search.
  void found(const std::vector<GpuInfo>& gpus);
  // The callbacks of GpuWatch.
  void looked(const std::vector<GpuHealth>& gpus, bool all);
  void saw(const GpuSign& sign);
  // Notes that a session of the tenant has left the GPU.
  void note_gone(const TenantInfo& tenant, const GpuUuid& gpu);
  // Returns true while the cause of a session's recent end may be the loss of a GPU that NVML has not
  // reported yet. Surveys continue during that time.
  bool may_miss_a_loss() const;
  // Returns true if no survey has come since the last session of the tenant left.
  bool may_miss_a_loss(const TenantInfo& tenant) const;
  // Call only if the sender is an administrator.
  void drain(Client& client, const DrainGpus& request);

  const std::map<GpuUuid, GpuState>& states() const { return states_; }

 private:
  // NVML's reports of a GPU.
  struct Sightings {
    unsigned misses = 0;  // number of surveys in a row that do not list it
    std::optional<Nanoseconds>
        well_since;  // while the GPU is lost: when NVML began to report it as well again
    std::optional<std::uint64_t> ecc_errors;  // at the last survey
    unsigned losses = 0;                      // number of losses, each soon after the previous one
    Nanoseconds lost{};                       // the time of the last loss
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
  // A tenant that was on the GPU or is placed there; it may have ended since.
  struct Guest {
    TenantId id;
    std::string label;
    std::uint32_t job = 0;  // zero: not a job
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
  std::map<GpuUuid, GpuState> states_;      // GPUs with a condition or drain
  std::map<GpuUuid, Sightings> sightings_;  // GPUs that NVML has listed
  std::deque<Guest> gone_;                  // left recently
  std::optional<Nanoseconds> looked_;       // the time of the last survey
};

}  // namespace sharedgpu
