// SPDX-License-Identifier: Apache-2.0
// Uses arbitrary requests for units and memory. The sum must have a size that Slurm can store. It must be at
// least the job's own request, unless partitions have limits. With one partition at most, subtracting the
// memory of the job's units must yield the job's own request again.
#include "job_submit/memory.h"

#include "input.h"

namespace {

using namespace sharedgpu;
using namespace sharedgpu::job_submit;

constexpr std::uint64_t kBelow = std::uint64_t{1} << 40;  // sums of larger sizes and counts would saturate

std::optional<std::uint64_t> count(fuzz::Input& in) {
  if (in.one_in(2)) return {};
  return std::uint64_t{1} + (std::uint64_t{in.byte()} << in.below(24));
}

std::optional<Request> request(fuzz::Input& in) {
  if (in.one_in(4)) return {};
  const auto per = static_cast<Per>(in.below(3));
  return Request{per, std::uint64_t{in.byte()} << in.below(54), "--mem"};
}

Partition partition(fuzz::Input& in, std::string_view gres) {
  constexpr std::string_view kOffers[] = {"", "sharedgpu:8", "gpu:2,sharedgpu:a100:4,sharedgpu:h100:4"};
  Partition partition;
  if (in.one_in(2)) partition.defaults.memory = request(in);
  if (in.one_in(2)) partition.defaults.memory_per_gpu = in.byte();
  partition.whole_nodes = in.one_in(4);
  if (in.one_in(4)) partition.most = Request{in.one_in(2) ? Per::cpu : Per::node, in.byte() + 1u, "limit"};
  for (unsigned kinds = in.below(3); kinds > 0; --kinds)
    partition.nodes.push_back({.gres = in.one_in(4) ? gres : in.one_of(kOffers),
                               .cpus = in.byte(),
                               .cpu_step = in.below(3),
                               .memory = std::uint64_t{in.byte()} << in.below(24)});
  return partition;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kNumbers = 48;
  fuzz::Input in(data, std::min(size, kNumbers));
  const std::string_view text = fuzz::text_of(data, size).substr(std::min(size, kNumbers));
  static const UnitMemory kUnits(*parse_typed_sizes("a100:3000KiB,h100:auto,7GiB", true),
                                 *parse_typed_sizes("80GiB", false), 8);

  Job job;
  for (std::string_view* request :
       {&job.tres_per_node, &job.tres_per_socket, &job.tres_per_task, &job.tres_per_job, &job.cpus_per_tres})
    if (in.one_in(3)) *request = text;
  job.memory = request(in);
  for (auto* number : {&job.least_nodes, &job.most_nodes, &job.tasks, &job.tasks_per_node, &job.cpus_per_task,
                       &job.cpus, &job.cpus_per_node, &job.sockets_per_node})
    *number = count(in);
  job.whole_nodes = in.one_in(4);
  std::vector<Partition> partitions;
  for (unsigned each = in.below(3); each > 0; --each) partitions.push_back(partition(in, text));

  const Decision decision = decide(job, partitions, kUnits);
  fuzz::require(decision.refusal.empty() || decision.sum, "a refusal without a sum");
  if (!decision.sum) return 0;
  const Request sum = decision.sum->request;
  fuzz::require(sum.size > 0 && sum.size <= std::uint64_t{1} << 62, "a size that Slurm cannot hold");
  if (!job.memory) return 0;
  const bool has_limits =
      std::ranges::any_of(partitions, [](const Partition& each) { return each.most.has_value(); });
  fuzz::require(has_limits || decision.sum->per_node >= job.memory->size, "less than the job requests");
  if (job.memory->per != sum.per || sum.size >= kBelow) return 0;
  Job treated = job;
  treated.memory = sum;
  fuzz::require(partitions.size() > 1 || without_units(treated, partitions, kUnits) == job.memory,
                "the part of the units cannot be taken out");
  return 0;
}
