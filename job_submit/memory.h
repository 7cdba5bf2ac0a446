// SPDX-License-Identifier: GPL-2.0-or-later
// Computes the host memory for a job's units (SwapPerUnit=), and adds it to the job's own request. This is
// the logic of the job_submit plugin, without Slurm and without I/O.
//
// Slurm has two fields for the memory of a job: one for memory per node or per CPU, and one for memory per
// GPU. The memory for units is memory per node, so the sum is a request per node if such a request can be
// computed:
//
//   the job's own request                        the request with E, the memory of its units on a node
//   M per node (--mem, DefMemPerNode)            M + E per node
//   all of the node (--mem=0, or no default)     unchanged
//   m per CPU (--mem-per-cpu, DefMemPerCPU)      m x C + E per node, C: the most CPUs it may get on a node
//   the same, of a job that gets whole nodes     m x C + E per node, C: the CPUs of the largest node; no more
//                                                than the memory of a node and Slurm's limits
//   g per GPU of gres/gpu (DefMemPerGPU)         g x G + E per node, G: the most GPUs it may get on a node
//   the same, stated by the job (--mem-per-gpu)  g + E / h per GPU, h: the least GPUs it may get on a node
//
// Counts and quotients are rounded up. CPUs are counted in whole cores, but a core has only the CPUs that the
// job may use (--threads-per-core). With --overcommit, all tasks on a node share the CPUs of one task. If
// Slurm may distribute a job's tasks over the nodes freely, the job gets the same memory on every node: the
// memory for the largest possible number of tasks on a node. So on every node, the sum is at least the job's
// own request.
//
// Memory is in MiB, as in Slurm. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/swap_per_unit.h"
#include "job_submit/gres.h"

namespace sharedgpu::job_submit {

using Mebibytes = std::uint64_t;

enum class Per : std::uint8_t { node, cpu, gpu };

// A request for memory, which the job states itself or takes from the defaults.
struct Request {
  Per per = Per::node;
  Mebibytes size = 0;
  std::string_view source;  // a literal: "--mem"
  bool operator==(const Request& other) const { return per == other.per && size == other.size; }
};

// A job's requests at submission. The texts have Slurm's syntax; a count is nullopt if the job does not
// state it.
struct Job {
  std::string_view tres_per_node, tres_per_socket, tres_per_task, tres_per_job;
  std::string_view cpus_per_tres;
  std::optional<Request> memory;  // nullopt: the job gets the default
  std::optional<std::uint64_t> least_nodes, most_nodes, tasks, tasks_per_node, cpus_per_task, cpus,
      cpus_per_node, sockets_per_node, tasks_per_core, threads_per_core;
  bool whole_nodes = false;
  bool overcommit = false;
};

// The default requests in a partition: those of the partition or, if it has none, those of the cluster;
// nullopt if neither is configured.
struct Defaults {
  std::optional<Request> memory;  // per node or per CPU
  std::optional<Mebibytes> memory_per_gpu;
};

// The nodes of one line of slurm.conf.
struct NodeKind {
  std::string_view gres;       // the value of Gres=
  std::uint64_t cpus = 0;      // CPUs that jobs may get
  std::uint64_t cpu_step = 1;  // Slurm allocates CPUs in steps of this size: whole cores or sockets
  Mebibytes memory = 0;        // memory that jobs may get
  std::uint64_t threads = 1;   // CPUs of a core if jobs get whole cores, otherwise 1
};

// The least and the largest count of a GRES that a job may get on one node; both are empty if the job does
// not request this GRES.
struct Demand {
  std::vector<TypedCount> least;
  std::vector<TypedCount> most;
};
Demand demand_of(const Job& job, std::string_view name);

// The request that replaces the job's own request: the job's own memory and the memory of the units, per
// node, CPU or GPU as the table above states.
struct Sum {
  Request request;
  Mebibytes per_node = 0;  // the least memory that the job gets on each node
  std::string text;        // "12288M per node: 4096M (--mem) + 8192M for 1 unit"
};

// A partition that the job may run in.
struct Partition {
  Defaults defaults;
  std::optional<Request> most;  // the limit MaxMemPerCPU or MaxMemPerNode
  std::vector<NodeKind> nodes;
  bool whole_nodes = false;        // OverSubscribe=EXCLUSIVE
  bool one_task_per_core = false;  // CR_ONE_TASK_PER_CORE
};

// The action of the plugin for a job that is submitted or changed.
struct Decision {
  std::optional<Sum> sum;  // nullopt: the plugin leaves the job's request unchanged
  std::string refusal;     // if no node has as much memory as `sum`: the text for the user; otherwise empty
};
// A job that requests several partitions gets the largest of the sums for these partitions. The job is
// refused if no node of these partitions has this much memory.
Decision decide(const Job& job, const std::vector<Partition>& partitions, const UnitMemory& unit_memory);

// The reverse of decide(): `job` has the memory that decide() computed. Returns the job's own request;
// nullopt if `job` states no memory. If the stated memory is too small to include the memory of the units and
// a request of the job, returns it unchanged.
std::optional<Request> without_units(const Job& job, const std::vector<Partition>& partitions,
                                     const UnitMemory& unit_memory);

// Returns true if `job` has the memory that decide() computes from the default request in `partitions`. Also
// returns true if the job itself requested exactly this amount.
bool has_default_memory(const Job& job, const std::vector<Partition>& partitions,
                        const UnitMemory& unit_memory);

}  // namespace sharedgpu::job_submit
