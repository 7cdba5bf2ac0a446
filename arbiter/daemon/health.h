// SPDX-License-Identifier: Apache-2.0
// The health of the host's GPUs: derives each GPU's condition from NVML's reports, records which GPUs
// administrators have drained, and reacts to failures as OnGpuLoss= says.
//
// A GPU is lost if NVML reports it as lost, if it reports Xid 79, or if NVML stops listing it. A GPU is
// failing if it reports an error that only a reset clears; tenants may continue to use a failing GPU. While
// NVML does not answer, no GPU becomes lost or failing. Event-loop thread only.
//
// To add a sign that a GPU fails:
//   1. If no code asks NVML for the sign, ask in survey_child.cpp, and add the answer to SurveyLine
//      (survey_child.h). Let survey.cpp pass the answer on in GpuHealth or GpuSign (survey.h).
//   2. React to the sign in looked() or saw() of health.cpp. If surveys have to be counted, add the count to
//      Sightings.
//   3. Test the sign in survey.cpp and health.cpp of tests/unit/arbiter/daemon, and in
//      tests/integration/health.bats. For health.bats, let tests/simgpu/nvml.cpp report the sign when
//      tests/simgpu/simgpu_fault.cpp requests it. Add a new kind of SurveyLine to tests/fuzz/crowd.h, too.
//   4. Document the sign in the table of docs/design/health.md.
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

// The state of a GPU, with the reasons that the core does not store.
struct GpuState {
  GpuCondition condition = GpuCondition::healthy;
  std::string fault;                 // why the GPU is not healthy
  std::optional<std::string> drain;  // the reason for the drain; nullopt if the GPU is not drained
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

  // Restores the state from the ledger. Call after the core has its state, and before the first GPUs are
  // found.
  void restore(const std::map<GpuUuid, GpuRecord>& past);
  // Call with the result of each search for GPUs.
  void found(const std::vector<GpuInfo>& gpus);
  // Callbacks for NVML's answers (GpuWatch).
  void looked(const std::vector<GpuHealth>& gpus, bool all);
  void saw(const GpuSign& sign);
  // Notes that a session of the tenant has left the GPU.
  void note_gone(const TenantInfo& tenant, const GpuUuid& gpu);
  // Returns true if a session has ended recently: a GPU loss that NVML has not reported yet may be the
  // reason. Surveys continue while this is true.
  bool may_miss_a_loss() const;
  // Returns true if a GPU loss may be the reason why the tenant's last session ended. This is so if the last
  // survey is recent, and came before this end.
  bool may_miss_a_loss(const TenantInfo& tenant) const;
  // Call only if the sender is an administrator.
  void drain(Client& client, const DrainGpus& request);

  const std::map<GpuUuid, GpuState>& states() const { return states_; }

 private:
  // NVML's reports of a GPU.
  struct Sightings {
    unsigned misses = 0;  // number of surveys and searches in a row that do not list the GPU
    // while the GPU is lost: when NVML began to report it as healthy again
    std::optional<Nanoseconds> well_since;
    std::optional<std::uint64_t> ecc_errors;  // NVML's count at the last survey
    // number of losses in succession, each soon after the previous loss
    unsigned losses = 0;
    Nanoseconds lost{};  // the time of the last loss
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
  // A tenant that has or recently had a session on the GPU, or is placed on it and has had no session yet.
  // The tenant may have ended.
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
  std::map<GpuUuid, GpuState> states_;      // GPUs that have been lost, failing or drained
  std::map<GpuUuid, Sightings> sightings_;  // GPUs that NVML has listed
  std::deque<Guest> gone_;                  // tenants that left a GPU recently
  std::optional<Nanoseconds> looked_;       // the time of the last survey
};

}  // namespace sharedgpu
