// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_submit/controller.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "protocol/split.h"

namespace sharedgpu::job_submit {
namespace {

// The flag of AllowSpecResourcesUsage=yes. Its name differs between releases of Slurm.
#ifdef CTL_CONF_ASRU
constexpr std::uint32_t kAllowsCoreSpec = CTL_CONF_ASRU;
#else
constexpr std::uint32_t kAllowsCoreSpec = CONF_FLAG_ASRU;
#endif

// partitions_of() finds nothing in a longer text, so that a hostile request costs slurmctld little time.
constexpr std::size_t kLongestNames = 65536;

std::string_view text_of(const char* text) { return text == nullptr ? std::string_view() : text; }

// Returns nullopt for zero and for Slurm's special values that mean "no number".
std::optional<std::uint64_t> count_of(std::uint16_t number) {
  return number == 0 || number >= NO_VAL16 ? std::nullopt : std::optional<std::uint64_t>(number);
}
std::optional<std::uint64_t> count_of(std::uint32_t number) {
  return number == 0 || number >= NO_VAL ? std::nullopt : std::optional<std::uint64_t>(number);
}

Request per_node_or_cpu(std::uint64_t memory, std::string_view per_node, std::string_view per_cpu) {
  const bool is_per_cpu = (memory & MEM_PER_CPU) != 0;
  return {is_per_cpu ? Per::cpu : Per::node, memory & ~MEM_PER_CPU, is_per_cpu ? per_cpu : per_node};
}

int find_memory_per_gpu(void* item, void* argument) {
  const auto& entry = *static_cast<const job_defaults_t*>(item);
  if (entry.type == JOB_DEF_MEM_PER_GPU) *static_cast<std::optional<Mebibytes>*>(argument) = entry.value;
  return 0;
}

std::optional<Mebibytes> memory_per_gpu(xlist* defaults) {
  std::optional<Mebibytes> memory;
  if (defaults != nullptr) slurm_list_for_each(defaults, find_memory_per_gpu, &memory);
  return memory;
}

Defaults defaults_of(const part_record& partition) {
  Defaults defaults;
  const std::uint64_t memory =
      partition.def_mem_per_cpu != 0 ? partition.def_mem_per_cpu : slurm_conf.def_mem_per_cpu;
  defaults.memory = per_node_or_cpu(memory, "DefMemPerNode", "DefMemPerCPU");
  defaults.memory_per_gpu = memory_per_gpu(partition.job_defaults_list);
  if (!defaults.memory_per_gpu) defaults.memory_per_gpu = memory_per_gpu(slurm_conf.job_defaults_list);
  return defaults;
}

// Follows Slurm's select plugin: a partition's own consumable resources replace those of the cluster, but
// only if the cluster's consumable resources include cores or sockets.
std::uint16_t consumable_in(const part_record& partition) {
  const std::uint16_t cluster = slurm_conf.select_type_param;
  return partition.cr_type != 0 && (cluster & (kSelectSocket | kSelectCore)) != 0 ? partition.cr_type
                                                                                  : cluster;
}

struct Reading {
  const part_record& partition;
  std::uint16_t consumable;
  std::vector<NodeKind>& kinds;
};

int read_kind(void* item, void* argument) {
  const auto& record = *static_cast<const config_record*>(item);
  auto& reading = *static_cast<Reading*>(argument);
  if (record.magic != CONFIG_MAGIC || record.gres == nullptr || record.node_bitmap == nullptr ||
      reading.partition.node_bitmap == nullptr ||
      slurm_bit_overlap_any(record.node_bitmap, reading.partition.node_bitmap) == 0)
    return 0;
  const std::uint64_t per_core = std::max<std::uint64_t>(record.threads, 1);
  const std::uint64_t reserved = record.core_spec_cnt < NO_VAL16 ? record.core_spec_cnt * per_core : 0;
  const bool gives_cores = (reading.consumable & (kSelectSocket | kSelectCore)) != 0;
  NodeKind kind;
  kind.threads = gives_cores ? per_core : 1;
  kind.gres = record.gres;
  kind.cpus = record.cpus > reserved ? record.cpus - reserved : 0;
  if ((reading.consumable & kSelectSocket) != 0)
    kind.cpu_step = per_core * std::max<std::uint64_t>(record.cores, 1);
  else if ((reading.consumable & kSelectCore) != 0)
    kind.cpu_step = per_core;
  kind.memory = record.real_memory - std::min(record.mem_spec_limit, record.real_memory);
  reading.kinds.push_back(kind);
  return 0;
}

}  // namespace

std::optional<Request> memory_in(const job_desc_msg_t& message) {
  if (message.pn_min_memory != NO_VAL64)
    return per_node_or_cpu(message.pn_min_memory, "--mem", "--mem-per-cpu");
  if (const auto counts = counts_of(text_of(message.mem_per_tres), "gpu"); !counts.empty())
    return Request{Per::gpu, sum(counts), "--mem-per-gpu"};
  return std::nullopt;
}

Job changed(Job job, const job_desc_msg_t& change) {
  const auto take = [](auto& value, auto stated) {
    if (stated) value = stated;
  };
  const auto take_text = [](std::string_view& value, const char* stated) {
    if (stated != nullptr) value = stated;
  };
  take_text(job.tres_per_node, change.tres_per_node);
  take_text(job.tres_per_socket, change.tres_per_socket);
  take_text(job.tres_per_task, change.tres_per_task);
  take_text(job.tres_per_job, change.tres_per_job);
  take_text(job.cpus_per_tres, change.cpus_per_tres);
  take(job.least_nodes, count_of(change.min_nodes));
  take(job.most_nodes, count_of(change.max_nodes));
  take(job.tasks, count_of(change.num_tasks));
  take(job.tasks_per_node, count_of(change.ntasks_per_node));
  take(job.cpus_per_task, count_of(change.cpus_per_task));
  take(job.cpus, count_of(change.min_cpus));
  take(job.cpus_per_node, count_of(change.pn_min_cpus));
  take(job.sockets_per_node, count_of(change.sockets_per_node));
  take(job.tasks_per_core, count_of(change.ntasks_per_core));
  take(job.threads_per_core, count_of(change.threads_per_core));
  if (change.overcommit != NO_VAL8) job.overcommit = change.overcommit != 0;
  if (change.shared != NO_VAL16) job.whole_nodes = change.shared == JOB_SHARED_NONE;
  return job;
}

Job job_of(const job_desc_msg_t& message) {
  Job job = changed({}, message);
  // A job that reserves cores for the system gets whole nodes, unless slurm.conf forbids such reservations.
  if (message.core_spec != NO_VAL16 && (slurm_conf.conf_flags & kAllowsCoreSpec) != 0) job.whole_nodes = true;
  job.memory = memory_in(message);
  return job;
}

std::vector<Partition> partitions_of(const char* names) {
  std::vector<Partition> partitions;
  std::vector<const part_record*> taken;
  const auto take = [&](const part_record* record) {
    if (record == nullptr || record->magic != PART_MAGIC || std::ranges::find(taken, record) != taken.end())
      return;
    taken.push_back(record);
    const std::uint16_t consumable = consumable_in(*record);
    if ((consumable & kSelectMemory) == 0) return;
    Partition& partition = partitions.emplace_back();
    partition.defaults = defaults_of(*record);
    partition.whole_nodes = record->max_share == 0;
    const std::uint64_t most =
        record->max_mem_per_cpu != 0 ? record->max_mem_per_cpu : slurm_conf.max_mem_per_cpu;
    if ((most & ~MEM_PER_CPU) != 0) partition.most = per_node_or_cpu(most, "MaxMemPerNode", "MaxMemPerCPU");
    // Slurm ignores CR_ONE_TASK_PER_CORE in a partition's setting, and reads only the cluster's setting.
    partition.one_task_per_core = (slurm_conf.select_type_param & kSelectOneTaskPerCore) != 0;
    Reading reading{*record, consumable, partition.nodes};
    if (config_list != nullptr) slurm_list_for_each(config_list, read_kind, &reading);
  };
  if (names == nullptr) {
    take(default_part_loc);
  } else if (std::strlen(names) <= kLongestNames) {
    for (const std::string_view name : split(names, ',')) take(find_part_record(std::string(name).data()));
  }
  return partitions;
}

}  // namespace sharedgpu::job_submit
