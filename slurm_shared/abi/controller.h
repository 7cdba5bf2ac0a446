// SPDX-License-Identifier: GPL-2.0-or-later
// Declarations of slurmctld's tables and of its job_submit interface that Slurm's public headers lack. They
// restate Slurm's own interface. A comment at each declaration names the releases in which it is valid. No
// code is copied from Slurm.
//
// A job_submit plugin is called with locks on the configuration, the jobs, the nodes and the partitions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "slurm_shared/abi/release.h"

extern "C" {
#include <slurm/slurm.h>

// Opaque (22.05 to 26.05).
struct job_record;

// A partition. Members that only fill the layout have no comment.
struct part_record {
  std::uint32_t magic;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
  void* allow_accts_list;
#endif
  char* allow_accounts;
  char** allow_account_array;
  char* allow_alloc_nodes;
  char* allow_groups;
  uid_t* allow_uids;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 3)
  int allow_uids_cnt;
#endif
  char* allow_qos;
  bitstr_t* allow_qos_bitstr;
  char* alternate;
  double* billing_weights;
  char* billing_weights_str;
  std::uint32_t cpu_bind;
  std::uint64_t def_mem_per_cpu;  // default memory in MiB per node, or per CPU with the flag MEM_PER_CPU; 0:
                                  // that of the cluster applies
  std::uint32_t default_time;
  char* deny_accounts;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
  void* deny_accts_list;
#endif
  char** deny_account_array;
  char* deny_qos;
  bitstr_t* deny_qos_bitstr;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
  std::uint32_t flags;
#else
  std::uint16_t flags;
#endif
  std::uint32_t grace_time;
  xlist* job_defaults_list;  // a list of job_defaults_t, or null
  std::uint32_t max_cpus_per_node;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
  std::uint32_t max_cpus_per_socket;
#endif
  std::uint64_t max_mem_per_cpu;
  std::uint32_t max_nodes;
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(26, 5, 0)
  std::uint32_t max_nodes_orig;
#endif
  std::uint16_t max_share;  // 0: OverSubscribe=EXCLUSIVE
  std::uint32_t max_time;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0)
  std::uint32_t num_sched_jobs;
#endif
  std::uint32_t min_nodes;
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(26, 5, 0)
  std::uint32_t min_nodes_orig;
#endif
  char* name;
  bitstr_t* node_bitmap;  // null: no nodes
  char* nodes;
  char* orig_nodes;
  char* nodesets;
  double norm_priority;
  std::uint16_t over_time_limit;
  std::uint16_t preempt_mode;
  std::uint16_t priority_job_factor;
  std::uint16_t priority_tier;
  char* qos_char;
  void* qos_ptr;
  std::uint16_t resume_timeout;
  std::uint16_t state_up;
  std::uint32_t suspend_time;
  std::uint16_t suspend_timeout;
  std::uint32_t total_nodes;
  std::uint32_t total_cpus;
  std::uint32_t max_cpu_cnt;
  std::uint32_t max_core_cnt;
  std::uint16_t cr_type;  // SelectTypeParameters of the partition; 0 if those of the cluster apply
};
constexpr std::uint32_t PART_MAGIC = 0xaefe8495;

// A line NodeName= of slurm.conf. Members that only fill the layout have no comment.
struct config_record {
  std::uint16_t boards;
  std::uint16_t core_spec_cnt;  // cores reserved for the system
  std::uint16_t cores;          // per socket
  std::uint32_t cpu_bind;
  char* cpu_spec_list;
  std::uint16_t cpus;
  char* feature;
  char* gres;  // Gres=, or null
  std::uint32_t magic;
  std::uint64_t mem_spec_limit;  // MiB reserved for the system
  bitstr_t* node_bitmap;
  char* nodes;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
  char* parameters;
#endif
  std::uint64_t real_memory;  // MiB
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
  std::uint16_t res_cores_per_gpu;
#endif
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
  std::uint32_t suspend_time;
#endif
  std::uint16_t threads;  // per core
};
constexpr std::uint32_t CONFIG_MAGIC = 0xc065eded;

// Flags of SelectTypeParameters (22.05 to 26.05). In Slurm their names begin with CR_ before 25.05, and with
// SELECT_ since.
constexpr std::uint16_t kSelectSocket = 0x0002;
constexpr std::uint16_t kSelectCore = 0x0004;
constexpr std::uint16_t kSelectMemory = 0x0010;
constexpr std::uint16_t kSelectOneTaskPerCore = 0x0100;

// Exported by slurmctld (22.05 to 26.05).
extern part_record* default_part_loc;  // null: none
part_record* find_part_record(char* name);
// Returns a copy of a job that has not ended. Reads the job's script and environment from files.
// `environment[0]` points to one allocation that holds all strings of the environment. Free this allocation
// and the array before slurm_free_job_desc_msg(), which would free each string separately.
job_desc_msg_t* copy_job_record_to_job_desc(job_record* job);

// Exported by libslurmfull (22.05 to 26.05). The visitor returns 0 to continue.
extern slurm_conf_t slurm_conf;
extern xlist* config_list;  // list of config_record; xlist is Slurm's list type
int slurm_list_for_each(xlist* list, int (*visit)(void* item, void* argument), void* argument);
int slurm_bit_overlap_any(bitstr_t* a, bitstr_t* b);
void slurm_free_job_desc_msg(job_desc_msg_t* job);
char* slurm_xstrdup(const char* text);
void slurm_xfree(void** block);
void slurm_info(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_debug(const char* format, ...) __attribute__((format(printf, 1, 2)));
}
