// SPDX-License-Identifier: GPL-2.0-or-later
// Declarations of Slurm's accounting that its public headers lack. They restate Slurm's own interface. A
// comment at each declaration names the releases in which it is valid. No code is copied from Slurm.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "slurm_shared/abi/release.h"

extern "C" {
#include <slurm/slurmdb.h>

// The values of one TRES that a poll returns for one process (22.05) or one task (from 23.02). Before Slurm
// calls a plugin, it sets all fields except last_time to INFINITE64 (no value).
struct acct_gather_data_t {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
  std::uint64_t last_time;
#endif
  std::uint64_t num_reads;
  std::uint64_t num_writes;
  std::uint64_t size_read;
  std::uint64_t size_write;
};
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
static_assert(sizeof(acct_gather_data_t) == 40);
#else
static_assert(sizeof(acct_gather_data_t) == 32);
#endif

// Opaque types of Slurm (22.05 to 26.05): these two and jobacctinfo_t.
struct s_p_options_t;
struct s_p_hashtbl_t;

// Exported by libslurmfull (22.05 to 26.05 unless noted).
int assoc_mgr_find_tres_pos(slurmdb_tres_rec_t* tres, bool locked);
extern slurmdb_tres_rec_t** assoc_mgr_tres_array;
// Polls the step and returns a copy of the record of task `pid`; null if no task of the step has this pid.
// From 23.02 on, an additional argument determines whether the function polls.
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 2, 0)
jobacctinfo_t* jobacct_gather_stat_task(pid_t pid);
#else
jobacctinfo_t* jobacct_gather_stat_task(pid_t pid, bool update);
#endif
void jobacctinfo_2_stats(slurmdb_stats_t* stats, jobacctinfo_t* record);
void jobacctinfo_destroy(void* record);
void slurmdb_free_slurmdb_stats_members(slurmdb_stats_t* stats);
void slurm_info(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_debug(const char* format, ...) __attribute__((format(printf, 1, 2)));
}
