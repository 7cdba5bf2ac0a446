// SPDX-License-Identifier: GPL-2.0-or-later
// The GRES plugin: tells each batch, interactive and srun step how many sharedgpu units it holds on its node.
//
// Loaded by slurmctld, slurmd and slurmstepd, which call it with a lock held: nothing here waits, allocates
// for long or can fail. Slurm itself counts the units. The functions are a superset of what the releases
// from 22.05 to 26.05 ask for; a missing one would be fatal to the daemon.
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "gres/slurm_abi/gres.h"

#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const std::uint32_t plugin_version;
const char plugin_name[] = "GRES sharedgpu plugin";
const char plugin_type[] = "gres/sharedgpu";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;
}

namespace {

constexpr char kUnits[] = "SHAREDGPU_UNITS";

std::uint64_t advertised = 0;  // by this node, once node_config_load has run

int read_record(void* item, void* total) {
  const auto& record = *static_cast<const gres_slurmd_conf_t*>(item);
  if (!is_record_of(record, "sharedgpu")) return 0;
  *static_cast<std::uint64_t*>(total) += record.count;
  if (record.file != nullptr)
    slurm_error("gres/sharedgpu: gres.conf: File=%s: sharedgpu units have no device files; leave File= out",
                record.file);
  return 0;
}

// The variable that the SPANK plugin goes by. It is always set or removed, so that a value that the user
// exported never counts.
void set_units(char*** environment, std::uint64_t count) {
  if (environment == nullptr || *environment == nullptr) return;
  if (count == 0) {
    slurm_unsetenvp(*environment, kUnits);
    return;
  }
  char text[24];
  std::snprintf(text, sizeof text, "%" PRIu64, count);
  slurm_env_array_overwrite(environment, kUnits, text);
}

}  // namespace

extern "C" {

int init() {
  slurm_debug("gres/sharedgpu: loaded");
  return SLURM_SUCCESS;
}

int fini() { return SLURM_SUCCESS; }

// What gres.conf and slurm.conf give this node; Slurm has compared the two already. In slurmd, and in
// slurmctld for cloud nodes.
int gres_p_node_config_load(list_t* records, node_config_load_t*) {
  std::uint64_t total = 0;
  if (records != nullptr) slurm_list_for_each(records, read_record, &total);
  advertised = total;
  slurm_info("gres/sharedgpu: this node offers %" PRIu64 " units", total);
  return SLURM_SUCCESS;
}

// The units that this node offers, for the SPANK plugin in the same slurmd.
std::uint64_t sharedgpu_units_advertised() { return advertised; }

void gres_p_job_set_env(char*** environment, bitstr_t*, std::uint64_t count, gres_internal_flags_t) {
  set_units(environment, count);
}

void gres_p_step_set_env(char*** environment, bitstr_t*, std::uint64_t count, gres_internal_flags_t) {
  set_units(environment, count);
}

// A task holds what its step holds: units are not bound to tasks.
void gres_p_task_set_env(char*** environment, bitstr_t*, std::uint64_t count, bitstr_t*,
                         gres_internal_flags_t) {
  set_units(environment, count);
}

// slurmstepd needs nothing from slurmd: both sides of the buffer are empty.
void gres_p_send_stepd(buf_t*) {}
void gres_p_recv_stepd(buf_t*) {}

// Units have no devices. A plugin that listed some would deny them to its own jobs.
list_t* gres_p_get_devices() { return nullptr; }

void gres_p_step_hardware_init(bitstr_t*, char*) {}
void gres_p_step_hardware_fini() {}

// To 24.05.
int gres_p_get_job_info(gres_job_state_t*, std::uint32_t, int, void*) { return EINVAL; }
int gres_p_get_step_info(gres_step_state_t*, std::uint32_t, int, void*) { return EINVAL; }

// Nothing is added to the environment of prolog and epilog: in 22.05 by these names...
gres_epilog_info_t* gres_p_epilog_build_env(gres_job_state_t*) { return nullptr; }
void gres_p_epilog_set_env(char***, gres_epilog_info_t*, int) {}
// ... and from 23.02 by these.
void* gres_p_prep_build_env(gres_job_state_t*) { return nullptr; }
void gres_p_prep_set_env(char***, void*, int) {}
}
#pragma GCC visibility pop
