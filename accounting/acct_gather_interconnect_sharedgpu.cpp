// SPDX-License-Identifier: GPL-2.0-or-later
// The accounting plugin: writes the usage of each step into two TRES. Into gres/sharedgpu_lease, it writes
// the seconds for which the step held a lease, and the seconds for which it waited for a lease. Into
// gres/sharedgpu_swap, it writes the MiB copied to the GPU, and the MiB copied from the GPU. In sacct,
// TRESUsageInTot shows the time with a lease and the MiB to the GPU. TRESUsageOutTot shows the time of
// waiting and the MiB from the GPU. The plugin is one of Slurm's interconnect plugins, because interconnect
// plugins may write any TRES, and a site can list several of them.
//
// Loaded by slurmd, slurmstepd and slurmctld; works in slurmstepd only, from the first poll of a step that
// holds sharedgpu units.
#include <mutex>
#include <optional>
#include <string>

#include "accounting/usage_poller.h"
#include "slurm_shared/abi/accounting.h"
#include "slurm_shared/siblings.h"
#include "slurm_shared/step.h"

#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const std::uint32_t plugin_version;
const char plugin_name[] = "AcctGatherInterconnect sharedgpu plugin";
const char plugin_type[] = "acct_gather_interconnect/sharedgpu";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;
}

namespace {

// Indices of sharedgpu's two TRES in Slurm's arrays; negative if Slurm does not have the TRES.
int lease_position = -1;
int swap_position = -1;

// Returns the number of TRES gres/`given`, and sets `position` to its index; nullopt if Slurm does not have
// this TRES. Logs a missing TRES at level info, because an error would appear in the job's own output.
std::optional<std::uint32_t> find(const char* given, int& position) {
  char type[] = "gres";
  std::string name = given;
  slurmdb_tres_rec_t tres = {};
  tres.type = type;
  tres.name = name.data();
  position = assoc_mgr_find_tres_pos(&tres, false);
  if (position >= 0) return assoc_mgr_tres_array[position]->id;
  slurm_info("acct_gather_interconnect/sharedgpu: off: AccountingStorageTRES in slurm.conf lacks gres/%s",
             given);
  return std::nullopt;
}

void start() {
  // Keeps the SPANK plugin loaded: it owns the SharedGpuStep, which the thread that is started below uses.
  auto* this_step = reinterpret_cast<SharedGpuStepFunction*>(
      sharedgpu::sibling_function("spank_sharedgpu.so", "sharedgpu_step", true));
  SharedGpuStep* step = this_step == nullptr ? nullptr : this_step();
  if (step == nullptr) return;
  const sharedgpu::OurTres tres{.lease = find("sharedgpu_lease", lease_position),
                                .swap = find("sharedgpu_swap", swap_position)};
  if (tres.lease || tres.swap) sharedgpu::start_usage_poller(*step, tres);
}

// Returns true if no plugin has written the entry yet. No other plugin writes sharedgpu's TRES. So if the
// entry has been written, it belongs to another TRES, and the layout of the data is unknown.
bool is_untouched(const acct_gather_data_t& entry) {
  return entry.num_reads == INFINITE64 && entry.num_writes == INFINITE64 && entry.size_read == INFINITE64 &&
         entry.size_write == INFINITE64;
}

}  // namespace

extern "C" {

int init() { return SLURM_SUCCESS; }
int fini() { return SLURM_SUCCESS; }

// `data` has an entry for each TRES.
int acct_gather_interconnect_p_get_data(acct_gather_data_t* data) {
  static std::once_flag started;
  std::call_once(started, start);
  sharedgpu::StepCounts counts;
  const bool off = lease_position < 0 && swap_position < 0;
  if (data == nullptr || off || !sharedgpu::poller_writes(counts)) return SLURM_SUCCESS;
  for (int position : {lease_position, swap_position}) {
    if (position < 0 || is_untouched(data[position])) continue;
    slurm_info(
        "acct_gather_interconnect/sharedgpu: off: this release of Slurm has an unknown layout of "
        "acct_gather_data_t");
    lease_position = swap_position = -1;
    return SLURM_SUCCESS;
  }
  if (lease_position >= 0) {
    data[lease_position].size_read = counts.seconds;
    data[lease_position].size_write = counts.waited;
  }
  if (swap_position >= 0) {
    data[swap_position].size_read = counts.restored;
    data[swap_position].size_write = counts.evicted;
  }
  return SLURM_SUCCESS;
}

// Slurm calls this function for profiling, which this plugin does not support.
int acct_gather_interconnect_p_node_update() { return SLURM_SUCCESS; }

// This plugin has no keys in acct_gather.conf.
void acct_gather_interconnect_p_conf_options(s_p_options_t**, int*) {}
void acct_gather_interconnect_p_conf_set(s_p_hashtbl_t*) {}
void acct_gather_interconnect_p_conf_values(void*) {}
}
#pragma GCC visibility pop
