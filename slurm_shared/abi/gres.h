// SPDX-License-Identifier: GPL-2.0-or-later
// Declarations of Slurm's GRES interface that its public headers lack. They restate Slurm's own interface. A
// comment at each declaration names the releases in which it is valid. No code is copied from Slurm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "slurm_shared/abi/release.h"

extern "C" {

// Opaque everywhere (22.05 to 26.05).
struct bitstr_t;
struct list_t;                      // in 22.05, the name of list_t* is List
struct gres_job_state_t;            // changed in 24.11
struct gres_step_state_t;           // changed in 24.11
struct gres_epilog_info_t;          // the name in 22.05; from 23.02 on, the name is gres_prep_t
using gres_internal_flags_t = int;  // an enum (22.05 to 26.05)

// One record of gres.conf, merged with slurm.conf (22.05 to 26.05).
struct gres_slurmd_conf_t {
  std::uint32_t config_flags;
  std::uint64_t count;
  std::uint32_t cpu_cnt;
  char* cpus;
  bitstr_t* cpus_bitmap;
  char* file;
  char* links;
  char* name;
  char* type_name;
  char* unique_id;
  std::uint32_t plugin_id;  // gres_build_id(name)
};
static_assert(offsetof(gres_slurmd_conf_t, name) == 56 && offsetof(gres_slurmd_conf_t, plugin_id) == 80);

// A flag of a gres.conf record (22.05 to 26.05).
constexpr std::uint32_t GRES_CONF_HAS_FILE = 1u << 1;

// The first members of Slurm's type buf_t, a buffer (22.05 to 26.05). `processed` counts the bytes written or
// read.
struct buf_t {
  std::uint32_t magic;
  char* head;
  std::uint32_t size;
  std::uint32_t processed;
};
constexpr std::uint32_t BUF_MAGIC = 0x42554545;

// Slurm passes this to a GRES plugin together with the records.
struct node_config_load_t {
  std::uint32_t cpu_cnt;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
  char* gres_name;
#endif
  bool in_slurmd;  // false: in slurmctld
  int (*xcpuinfo_mac_to_abs)(char* mac, char** abs);
};

// A device file that jobs with a unit of the GRES may open. Slurm reads all members, compares paths, and
// writes `alloc`.
struct gres_device_t {
  int index;  // number of the unit among the units of all records of the node
  int alloc;
  struct {
    std::uint32_t major;
    std::uint32_t minor;
    int type;  // an enum: 0 no device, 1 block device, 2 character device
  } dev_desc;
  int dev_num;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
  std::uint32_t flags;
#endif
  char* path;
  char* unique_id;
};

// Exported by libslurmfull (22.05 to 26.05). The visitor returns 0 to continue.
std::uint32_t gres_build_id(char* name);
int slurm_list_for_each(list_t* list, int (*visit)(void* item, void* argument), void* argument);
list_t* slurm_list_create(void (*destroy)(void* item));
void slurm_list_append(list_t* list, void* item);
void slurm_list_destroy(list_t* list);
std::int64_t slurm_bit_size(bitstr_t* bits);
int slurm_bit_test(bitstr_t* bits, std::int64_t bit);
// Expands "/dev/nvidia[0-1]". The caller has to call free() for each string that slurm_hostlist_shift()
// returns.
struct hostlist;
hostlist* slurm_hostlist_create(const char* text);
char* slurm_hostlist_shift(hostlist* list);
void slurm_hostlist_destroy(hostlist* list);
// slurm_unpackmem_xmalloc() returns 0, or nonzero for a malformed buffer. The caller frees `bytes` with
// slurm_xfree.
void slurm_packmem(void* bytes, std::uint32_t size, buf_t* buffer);
int slurm_unpackmem_xmalloc(char** bytes, std::uint32_t* size, buf_t* buffer);
void slurm_xfree(void** block);
int slurm_env_array_overwrite(char*** environment, const char* name, const char* value);
void slurm_unsetenvp(char** environment, const char* name);
void slurm_info(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_debug(const char* format, ...) __attribute__((format(printf, 1, 2)));
}

// Returns true if the record is of GRES `name`. `plugin_id` is the last member. If it is the ID of `name`,
// all members have the declared layout, so the function may dereference `record.name`.
inline bool is_record_of(const gres_slurmd_conf_t& record, const char* name) {
  return record.plugin_id == gres_build_id(const_cast<char*>(name)) && std::strcmp(record.name, name) == 0;
}
