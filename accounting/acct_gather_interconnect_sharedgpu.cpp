// SPDX-License-Identifier: GPL-2.0-or-later
// The accounting plugin: brings the lease seconds of each step into TRES gres/sharedgpu_lease, which sacct
// shows in TRESUsageInTot. It takes the interconnect's hook because that one may write any TRES and several
// such plugins can be listed side by side.
//
// Loaded by slurmd, slurmstepd and slurmctld; works in slurmstepd only, from the first poll of a step that
// holds sharedgpu units.
#include <mutex>

#include "accounting/pulse.h"
#include "accounting/step.h"
#include "gres/slurm_abi/accounting.h"

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

int position = -1;  // of the TRES in Slurm's arrays

void start() {
  SharedGpuStep* step = sharedgpu::this_step();
  if (step == nullptr) return;
  char type[] = "gres";
  char name[] = "sharedgpu_lease";
  slurmdb_tres_rec_t tres = {};
  tres.type = type;
  tres.name = name;
  position = assoc_mgr_find_tres_pos(&tres, false);
  if (position < 0) {
    // Not as an error: that would appear in the job's own output.
    slurm_info(
        "acct_gather_interconnect/sharedgpu: off: AccountingStorageTRES in slurm.conf lacks "
        "gres/sharedgpu_lease");
    return;
  }
  sharedgpu::start_pulse(*step, assoc_mgr_tres_array[position]->id);
}

// Nobody else writes this TRES, so what is not as Slurm prepared it is something else: nothing is written
// there.
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
  std::uint64_t seconds = 0;
  if (data == nullptr || position < 0 || !sharedgpu::pulse_writes(seconds)) return SLURM_SUCCESS;
  acct_gather_data_t& entry = data[position];
  if (!is_untouched(entry)) {
    slurm_info(
        "acct_gather_interconnect/sharedgpu: off: this Slurm lays out acct_gather_data_t in another way");
    position = -1;
    return SLURM_SUCCESS;
  }
  entry.size_read = seconds;
  return SLURM_SUCCESS;
}

// For profiling, which this plugin has nothing for.
int acct_gather_interconnect_p_node_update() { return SLURM_SUCCESS; }

// No keys in acct_gather.conf.
void acct_gather_interconnect_p_conf_options(s_p_options_t**, int*) {}
void acct_gather_interconnect_p_conf_set(s_p_hashtbl_t*) {}
void acct_gather_interconnect_p_conf_values(void*) {}
}
#pragma GCC visibility pop
