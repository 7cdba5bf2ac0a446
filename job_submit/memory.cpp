// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_submit/memory.h"

#include <algorithm>
#include <utility>

namespace sharedgpu::job_submit {
namespace {

constexpr std::string_view kGres = "sharedgpu";
constexpr Mebibytes kLargest = Mebibytes{1} << 62;  // Slurm uses the highest bit as a flag

std::uint64_t add_up(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kLargest : std::min(sum, kLargest);
}

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kLargest : std::min(product, kLargest);
}

std::uint64_t quotient(std::uint64_t a, std::uint64_t b) { return a / b + (a % b == 0 ? 0 : 1); }

std::uint64_t minus(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

std::uint64_t least_nodes(const Job& job) { return std::max<std::uint64_t>(job.least_nodes.value_or(1), 1); }
bool is_on_one_node(const Job& job) { return job.most_nodes == 1u; }

// Returns the largest number of `total` tasks or other items that one node may get. Slurm must place at least
// one item on each node, and may place all others on one node.
std::uint64_t most_of(std::uint64_t total, const Job& job) {
  return std::max<std::uint64_t>(minus(total, least_nodes(job) - 1), 1);
}

std::uint64_t most_tasks(const Job& job) {
  if (job.tasks_per_node) return std::min(*job.tasks_per_node, job.tasks.value_or(*job.tasks_per_node));
  return most_of(job.tasks.value_or(1), job);
}

// Returns the number of tasks for which Slurm allocates CPUs on a node: all of --ntasks-per-node, even if the
// job has fewer tasks.
std::uint64_t tasks_with_cpus(const Job& job) {
  return job.overcommit ? 1 : job.tasks_per_node.value_or(most_tasks(job));
}

std::uint64_t least_tasks(const Job& job) { return is_on_one_node(job) ? most_tasks(job) : 1; }

// A summary of the nodes that have enough units for a job.
struct Nodes {
  std::uint64_t most_cpus = 0;
  std::uint64_t cpu_step = 1;
  std::uint64_t threads = 1;
  Mebibytes most_memory = 0;
  std::vector<std::string_view> types;  // types of the nodes' units
  bool any() const { return most_cpus > 0; }
};

std::uint64_t tasks_per_core(const Job& job, const Nodes& nodes) {
  return std::min(job.tasks_per_core.value_or(nodes.threads), nodes.threads);
}

// Returns the number of CPUs on the node with the most tasks, in whole cores or sockets. Tasks share a core
// only if the job permits several tasks per core. If whole sockets are allocated, each task is counted with a
// socket of its own, because Slurm spreads tasks over sockets.
std::uint64_t cpus_of_tasks(const Job& job, const Nodes& nodes) {
  const std::uint64_t tasks = tasks_with_cpus(job);
  const std::uint64_t cpus_per_task = job.cpus_per_task.value_or(1);
  const std::uint64_t together = tasks_per_core(job, nodes);
  const auto cores = [&](std::uint64_t count) {
    return quotient(times(count, cpus_per_task), nodes.threads);
  };
  const std::uint64_t cpus =
      times(add_up(times(tasks / together, cores(together)), cores(tasks % together)), nodes.threads);
  const bool has_sockets = nodes.cpu_step > nodes.threads;
  return has_sockets ? std::max(cpus, times(tasks, nodes.cpu_step)) : cpus;
}

std::uint64_t most_cpus(const Job& job, const Nodes& nodes) {
  if (job.whole_nodes && nodes.any()) return nodes.most_cpus;
  std::uint64_t cpus = cpus_of_tasks(job, nodes);
  if (!job.tasks_per_node) cpus = std::max(cpus, most_of(job.cpus.value_or(1), job));
  // With one task per core, each CPU of --mincpus takes a whole core.
  cpus = std::max(cpus, times(job.cpus_per_node.value_or(1), nodes.threads / tasks_per_core(job, nodes)));
  if (const auto per_gpu = counts_of(job.cpus_per_tres, "gpu"); !per_gpu.empty())
    cpus = std::max(cpus, times(sum(demand_of(job, "gpu").most), sum(per_gpu)));
  cpus = times(quotient(cpus, nodes.cpu_step), nodes.cpu_step);
  return nodes.any() ? std::min(cpus, nodes.most_cpus) : cpus;
}

std::vector<TypedCount> multiply(std::vector<TypedCount> counts, std::uint64_t factor) {
  for (TypedCount& count : counts) count.count = std::min(times(count.count, factor), kLargestCount);
  return counts;
}

std::string megabytes(Mebibytes size) { return std::to_string(size) + "M"; }

std::string plural(std::uint64_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// Returns text such as "4096M (--mem)" or "4096M (DefMemPerCPU=1024M x 4 CPUs)".
std::string describe(const Request& own, std::uint64_t count, const char* noun) {
  const std::string source(own.source);
  if (own.per == Per::node) return megabytes(own.size) + " (" + source + ")";
  return megabytes(times(own.size, count)) + " (" + source + "=" + megabytes(own.size) + " x " +
         plural(count, noun) + ")";
}

// The smallest number of GPUs that a job gets on a node.
std::uint64_t least_gpus(const Job& job) {
  return std::max<std::uint64_t>(sum(demand_of(job, "gpu").least), 1);
}

std::uint64_t count_of(const std::vector<TypedCount>& offer, std::string_view type) {
  std::uint64_t total = 0;
  for (const TypedCount& count : offer)
    if (type.empty() || same_type(count.type, type)) total += count.count;
  return total;
}

// Returns the kind of node with only those CPUs of each core that the job may use (--threads-per-core).
NodeKind with_used_threads(NodeKind kind, const Job& job) {
  const std::uint64_t threads = std::max<std::uint64_t>(kind.threads, 1);
  kind.threads = std::min(threads, job.threads_per_core.value_or(threads));
  kind.cpus = kind.cpus / threads * kind.threads;
  kind.cpu_step = kind.cpu_step / threads * kind.threads;
  return kind;
}

// Returns the nodes of `kinds` that have at least `units.least`. Lowers `units.most` to the largest count
// that one of these nodes has.
Nodes nodes_with(const std::vector<NodeKind>& kinds, const Job& job, Demand& units) {
  Nodes nodes;
  std::vector<TypedCount> largest = units.most;
  for (TypedCount& count : largest) count.count = 0;
  for (const NodeKind& each : kinds) {
    const NodeKind kind = with_used_threads(each, job);
    const auto offer = counts_of(kind.gres, kGres);
    if (kind.cpus == 0 || !has_all(offer, units.least)) continue;
    nodes.most_cpus = std::max(nodes.most_cpus, kind.cpus);
    nodes.cpu_step = std::max({nodes.cpu_step, kind.cpu_step, std::uint64_t{1}});
    nodes.threads = std::max(nodes.threads, kind.threads);
    nodes.most_memory = std::max(nodes.most_memory, kind.memory);
    for (const TypedCount& count : offer) nodes.types.push_back(count.type);
    for (TypedCount& count : largest) count.count = std::max(count.count, count_of(offer, count.type));
  }
  if (nodes.any())
    for (std::size_t i = 0; i < largest.size(); ++i)
      units.most[i].count = std::min(units.most[i].count, largest[i].count);
  return nodes;
}

// Returns the host memory of a unit. For a unit without a type, this is the host memory of the largest type
// that the nodes have.
std::optional<Bytes> size_of_unit(std::string_view type, const UnitMemory& unit_memory, const Nodes& nodes) {
  if (!type.empty() || nodes.types.empty()) return unit_memory.of(type);
  std::optional<Bytes> largest;
  for (const std::string_view each : nodes.types) largest = std::max(largest, unit_memory.of(each));
  return largest;
}

// The host memory for `units`. A unit whose type has no configured size counts as zero.
Mebibytes memory_of(const std::vector<TypedCount>& units, const UnitMemory& unit_memory, const Nodes& nodes) {
  Bytes total;
  for (const TypedCount& count : units)
    if (const auto size = size_of_unit(count.type, unit_memory, nodes))
      total.count = add_up(total.count, times(size->count, count.count));
  return quotient(total.count, mebibytes(1).count);
}

// The job's own request; nullopt if the job requests all memory of its nodes.
std::optional<Request> own_request(const Job& job, const Defaults& defaults) {
  std::optional<Request> own = job.memory;
  if (!own && defaults.memory_per_gpu && !demand_of(job, "gpu").most.empty())
    own = Request{Per::gpu, *defaults.memory_per_gpu, "DefMemPerGPU"};
  if (!own) own = defaults.memory;
  return own && own->size > 0 ? own : std::nullopt;
}

// The host memory for a job's units in one partition, and the values from which it is computed.
struct Brought {
  Job job;  // in `job`, `whole_nodes` is also true if the partition gives only whole nodes
  Demand units;
  Nodes nodes;
  std::optional<Request> most;  // the memory limit of the partition
  Mebibytes memory = 0;
};

// Returns true if the request is for all CPUs of its nodes. Slurm gives the memory of these nodes to no other
// job.
bool is_for_whole_nodes(const Request& own, const Brought& brought) {
  return own.per == Per::cpu && brought.job.whole_nodes;
}

// Limits the sum of a request for whole nodes to the memory that the job can use. If the job's own request
// alone exceeds the memory that the job can use, returns the sum unchanged, and the job is refused.
Mebibytes limited(Mebibytes own, Mebibytes sum, const Brought& brought) {
  const std::optional<Request>& limit = brought.most;
  Mebibytes most = brought.nodes.most_memory;
  if (limit)
    most = std::min(most, limit->per == Per::cpu ? times(limit->size, brought.nodes.most_cpus) : limit->size);
  return own <= most ? std::min(sum, most) : sum;
}

// Lowers a request for whole nodes to MaxMemPerCPU, as Slurm itself does.
Request lowered(Request own, const Brought& brought) {
  if (is_for_whole_nodes(own, brought) && brought.most && brought.most->per == Per::cpu)
    own.size = std::min(own.size, brought.most->size);
  return own;
}

// Returns the sum that the table in memory.h states. If the job itself states a request per GPU, the sum is
// also a request per GPU. Otherwise the environment would state memory both per GPU (set by sbatch and
// salloc) and per node (set by slurmd), and srun would refuse to start.
Sum add(const Request& stated, const Brought& from) {
  const Request own = lowered(stated, from);
  const Mebibytes units_memory = from.memory;
  const std::uint64_t units = job_submit::sum(from.units.most);
  const Job& job = from.job;
  const Nodes& nodes = from.nodes;
  Sum sum;
  const std::string brought = megabytes(units_memory) + " for " + plural(units, "unit");
  if (own.per == Per::gpu && job.memory) {
    const std::uint64_t count = least_gpus(job);
    sum.request = {own.per, add_up(own.size, quotient(units_memory, count)), own.source};
    sum.per_node = times(sum.request.size, count);
    sum.text = megabytes(sum.request.size) + " per GPU, on each node at least " +
               describe(own, count, "GPU") + " + " + brought;
    return sum;
  }
  const std::uint64_t count = own.per == Per::cpu   ? most_cpus(job, nodes)
                              : own.per == Per::gpu ? job_submit::sum(demand_of(job, "gpu").most)
                                                    : 1;
  const Mebibytes total = add_up(times(own.size, count), units_memory);
  sum.per_node = is_for_whole_nodes(own, from) ? limited(times(own.size, count), total, from) : total;
  sum.request = {Per::node, sum.per_node, own.source};
  sum.text = megabytes(sum.per_node) +
             " per node: " + (sum.per_node < total ? "the most of a whole node, less than " : "") +
             describe(own, count, own.per == Per::cpu ? "CPU" : "GPU") + " + " + brought;
  return sum;
}

// The inverse of add(): subtracts the memory of the units. A request per CPU contains no memory of units.
Request subtract(const Request& sum, Mebibytes units_memory, const Job& job) {
  if (sum.per == Per::cpu) return sum;
  const Mebibytes part = sum.per == Per::node ? units_memory : quotient(units_memory, least_gpus(job));
  Request own = sum;
  if (own.size > part) own.size -= part;
  return own;
}

Brought brought_in(const Partition& partition, const Job& job, const Demand& units,
                   const UnitMemory& unit_memory) {
  Brought brought{.job = job, .units = units, .nodes = {}, .most = partition.most, .memory = 0};
  brought.job.whole_nodes = job.whole_nodes || partition.whole_nodes;
  if (partition.one_task_per_core && !job.tasks_per_core) brought.job.tasks_per_core = 1;
  brought.nodes = nodes_with(partition.nodes, job, brought.units);
  brought.memory = memory_of(brought.units.most, unit_memory, brought.nodes);
  return brought;
}

}  // namespace

Demand demand_of(const Job& job, std::string_view name) {
  if (auto counts = counts_of(job.tres_per_node, name); !counts.empty()) return {counts, counts};
  if (auto counts = counts_of(job.tres_per_socket, name); !counts.empty()) {
    counts = multiply(counts, job.sockets_per_node.value_or(1));
    return {counts, counts};
  }
  if (auto counts = counts_of(job.tres_per_task, name); !counts.empty())
    return {multiply(counts, least_tasks(job)), multiply(counts, most_tasks(job))};
  auto counts = counts_of(job.tres_per_job, name);
  if (is_on_one_node(job)) return {counts, counts};
  Demand demand;
  for (const TypedCount& count : counts) {
    demand.least.push_back({count.type, 1});
    demand.most.push_back({count.type, most_of(count.count, job)});
  }
  return demand;
}

Decision decide(const Job& job, const std::vector<Partition>& partitions, const UnitMemory& unit_memory) {
  Decision decision;
  Mebibytes most_memory = 0;
  bool nodes_known = true;
  const Demand units = demand_of(job, kGres);
  for (const Partition& partition : partitions) {
    const Brought brought = brought_in(partition, job, units, unit_memory);
    const std::optional<Request> own = own_request(job, partition.defaults);
    if (brought.memory == 0 || !own) continue;
    Sum sum = add(*own, brought);
    if (!decision.sum || sum.per_node > decision.sum->per_node) decision.sum = std::move(sum);
    nodes_known = nodes_known && brought.nodes.any();
    most_memory = std::max(most_memory, brought.nodes.most_memory);
  }
  // If no node has the job's units, the job is not refused here, because Slurm itself handles such jobs.
  if (decision.sum && nodes_known && decision.sum->per_node > most_memory)
    decision.refusal = "no node has the host memory: " + decision.sum->text +
                       "; the largest node with such units has " + megabytes(most_memory);
  return decision;
}

std::optional<Request> without_units(const Job& job, const std::vector<Partition>& partitions,
                                     const UnitMemory& unit_memory) {
  if (!job.memory || job.memory->size == 0) return job.memory;
  Mebibytes most = 0;
  const Demand units = demand_of(job, kGres);
  for (const Partition& partition : partitions)
    most = std::max(most, brought_in(partition, job, units, unit_memory).memory);
  return subtract(*job.memory, most, job);
}

bool has_default_memory(const Job& job, const std::vector<Partition>& partitions,
                        const UnitMemory& unit_memory) {
  Job without_request = job;
  without_request.memory.reset();
  const Decision decision = decide(without_request, partitions, unit_memory);
  return decision.sum && decision.sum->request == job.memory;
}

}  // namespace sharedgpu::job_submit
