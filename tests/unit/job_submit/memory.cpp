// SPDX-License-Identifier: GPL-2.0-or-later
#include <catch2/catch.hpp>

#include "job_submit/memory.h"

using namespace sharedgpu;
using namespace sharedgpu::job_submit;

namespace {

// A unit of type a100 has 2.5 MiB, and any other unit has 1000 MiB.
const UnitMemory kUnits(*parse_typed_sizes("1000MiB,a100:2560KiB", true), {}, 8);

Request per_node(Mebibytes size) { return {Per::node, size, "--mem"}; }
Request per_cpu(Mebibytes size) { return {Per::cpu, size, "--mem-per-cpu"}; }
Request per_gpu(Mebibytes size) { return {Per::gpu, size, "--mem-per-gpu"}; }

Partition partition() {
  Partition partition;
  partition.defaults.memory = Request{Per::cpu, 100, "DefMemPerCPU"};
  partition.nodes = {{.gres = "gpu:4,sharedgpu:8", .cpus = 16, .cpu_step = 1, .memory = 10000},
                     {.gres = "sharedgpu:a100:4", .cpus = 8, .cpu_step = 1, .memory = 5000},
                     {.gres = "gpu:8", .cpus = 64, .cpu_step = 1, .memory = 90000}};
  return partition;
}

Job job(std::string_view tres_per_node, std::optional<Request> memory = {}) {
  Job job;
  job.tres_per_node = tres_per_node;
  job.memory = memory;
  return job;
}

// Returns the request that the job gets; fails if the job is refused or left unchanged.
Request result(const Job& job, const Partition& where = partition()) {
  const Decision decision = decide(job, {where}, kUnits);
  REQUIRE(decision.refusal.empty());
  REQUIRE(decision.sum);
  return decision.sum->request;
}

std::string text(const Job& job, const Partition& where = partition()) {
  const Decision decision = decide(job, {where}, kUnits);
  return decision.sum ? decision.sum->text : "";
}

bool is_left_alone(const Job& job, const Partition& where = partition()) {
  const Decision decision = decide(job, {where}, kUnits);
  return !decision.sum && decision.refusal.empty();
}

}  // namespace

TEST_CASE("Units bring their memory on top of each form of request") {
  CHECK(result(job("gres:sharedgpu:2", per_node(500))) == per_node(2500));
  CHECK(result(job("gres:sharedgpu:2", per_cpu(300))) == per_node(2300));
  CHECK(result(job("gres:sharedgpu:2")) == per_node(2100));
  CHECK(result(job("gres:sharedgpu:a100:2", per_node(500))) == per_node(505));
  Partition where = partition();
  where.defaults.memory = per_node(700);
  CHECK(result(job("gres:sharedgpu:1"), where) == per_node(1700));
}

TEST_CASE("Jobs with all memory of a node, without default memory or without units are left unchanged") {
  CHECK(is_left_alone(job("gres:sharedgpu:1", per_node(0))));
  CHECK(is_left_alone(job("gres:sharedgpu:1", per_cpu(0))));
  CHECK(is_left_alone(job("gres:gpu:1", per_node(500))));
  CHECK(is_left_alone(job("", per_node(500))));
  Partition where = partition();
  where.defaults = {};
  CHECK(is_left_alone(job("gres:sharedgpu:1"), where));
  where.defaults.memory = per_node(0);
  CHECK(is_left_alone(job("gres:sharedgpu:1"), where));
}

TEST_CASE("Units of a type without a stated size bring no memory") {
  const UnitMemory units(*parse_typed_sizes("h100:1000MiB", true), {}, 8);
  CHECK_FALSE(decide(job("gres:sharedgpu:a100:1", per_node(500)), {partition()}, units).sum);
}

TEST_CASE("Units without a type stand for the largest type that the nodes have") {
  const UnitMemory units(*parse_typed_sizes("a100:10MiB,h100:20MiB,l40:90MiB", true), {}, 8);
  Partition where = partition();
  where.nodes = {{.gres = "sharedgpu:a100:8", .cpus = 8, .cpu_step = 1, .memory = 10000}};
  const auto size = [&] {
    return decide(job("gres:sharedgpu:1", per_node(500)), {where}, units).sum->request.size;
  };
  CHECK(size() == 510);
  where.nodes.push_back({.gres = "sharedgpu:H100:8", .cpus = 8, .cpu_step = 1, .memory = 10000});
  CHECK(size() == 520);
  where.nodes.push_back({.gres = "sharedgpu:8", .cpus = 8, .cpu_step = 1, .memory = 10000});
  CHECK(size() == 590);
  where.nodes.clear();
  CHECK(size() == 590);
}

TEST_CASE("No node gives more units of a type than it has") {
  const UnitMemory units(*parse_typed_sizes("a100:10MiB,h100:20MiB", true), {}, 8);
  Partition where = partition();
  where.nodes = {{.gres = "sharedgpu:a100:3,sharedgpu:h100:2", .cpus = 8, .cpu_step = 1, .memory = 10000}};
  Job each;
  each.memory = per_node(500);
  each.tasks = 50;
  each.tres_per_task = "gres/sharedgpu:a100=1";
  CHECK(decide(each, {where}, units).sum->request.size == 530);
  each.tres_per_task = "gres/sharedgpu:h100=1";
  CHECK(decide(each, {where}, units).sum->request.size == 540);
  each.tres_per_task = "gres/sharedgpu=1";
  CHECK(decide(each, {where}, units).sum->request.size == 600);
}

TEST_CASE("Memory per CPU becomes memory for the most CPUs that a node may give") {
  Job each = job("gres:sharedgpu:1", per_cpu(100));
  CHECK(result(each) == per_node(1100));
  each.cpus_per_task = 3;
  CHECK(result(each) == per_node(1300));
  each.tasks = 4;
  CHECK(result(each) == per_node(2200));
  each.least_nodes = 2;  // at least one of the four tasks runs on the other node
  CHECK(result(each) == per_node(1900));
  each.tasks_per_node = 2;
  CHECK(result(each) == per_node(1600));
  each.tasks = 1;  // Slurm nevertheless allocates CPUs for two tasks per node
  CHECK(result(each) == per_node(1600));
  each.cpus_per_node = 7;
  CHECK(result(each) == per_node(1700));
  each = job("gres:sharedgpu:1", per_cpu(100));
  each.cpus = 5;
  CHECK(result(each) == per_node(1500));
  each.tasks = 100;  // more CPUs than any node with units has
  CHECK(result(each) == per_node(2600));
  Partition where = partition();
  where.nodes[0].cpu_step = where.nodes[0].threads = 2;
  each = job("gres:sharedgpu:1", per_cpu(100));
  each.tasks = 3;
  CHECK(result(each, where) == per_node(1400));
}

TEST_CASE("Cores are counted as Slurm allocates them") {
  // Two threads per core. The expected counts are the CPUs by which Slurm multiplies the memory per CPU of
  // jobs without units.
  Partition where = partition();
  where.nodes = {{.gres = "sharedgpu:8", .cpus = 16, .cpu_step = 2, .memory = 90000, .threads = 2}};
  std::optional<std::uint64_t> least;
  const auto cpus = [&](std::uint64_t tasks, std::uint64_t cpus_per_task,
                        std::optional<std::uint64_t> tasks_per_core = {},
                        std::optional<std::uint64_t> threads_per_core = {}) {
    Job each = job("gres:sharedgpu:1", per_cpu(100));
    each.tasks = tasks;
    each.cpus_per_task = cpus_per_task;
    each.cpus_per_node = least;
    each.tasks_per_core = tasks_per_core;
    each.threads_per_core = threads_per_core;
    each.most_nodes = 1;
    return (result(each, where).size - 1000) / 100;
  };
  CHECK(4 == cpus(4, 1));
  CHECK(8 == cpus(4, 1, 1));
  CHECK(4 == cpus(4, 1, 2));
  least = 4;  // CPUs per node (--mincpus)
  CHECK(8 == cpus(1, 1, 1));
  CHECK(4 == cpus(1, 1));
  least = {};
  CHECK(12 == cpus(3, 3, 1));
  CHECK(10 == cpus(3, 3));
  CHECK(4 == cpus(1, 3));
  CHECK(3 == cpus(1, 3, {}, 1));
  CHECK(4 == cpus(1, 3, {}, 2));
  CHECK(6 == cpus(2, 3, 1, 1));
  CHECK(8 == cpus(12, 1, {}, 1));  // the node has eight cores
  where.one_task_per_core = true;
  CHECK(8 == cpus(4, 1));
  CHECK(8 == cpus(2, 3));
  CHECK(4 == cpus(4, 1, 2));
  where.one_task_per_core = false;
  where.nodes[0].cpu_step = 8;  // Slurm allocates whole sockets
  CHECK(8 == cpus(1, 3));
  CHECK(16 == cpus(2, 1));
  CHECK(16 == cpus(4, 1));
  CHECK(8 == cpus(3, 1, {}, 1));
  where.one_task_per_core = true;
  where.nodes[0].threads = where.nodes[0].cpu_step = 1;
  CHECK(4 == cpus(4, 1));
}

TEST_CASE("With overcommit, all tasks of a node share the CPUs of one task") {
  Job each = job("gres:sharedgpu:1", per_cpu(100));
  each.tasks = 16;
  each.overcommit = true;
  CHECK(result(each) == per_node(1100));
  each.cpus_per_task = 3;
  CHECK(result(each) == per_node(1300));
  each.tasks_per_node = 8;
  CHECK(result(each) == per_node(1300));
}

TEST_CASE("CPUs per GPU count") {
  Job each = job("gres:gpu:2,gres:sharedgpu:1", per_cpu(100));
  each.cpus_per_tres = "gres:gpu:4";
  CHECK(result(each) == per_node(1800));
}

TEST_CASE("A job with whole nodes gets memory for all CPUs, and no more than a node has") {
  Job each = job("gres:sharedgpu:5", per_cpu(100));
  each.whole_nodes = true;
  Partition where = partition();
  CHECK(result(each, where) == per_node(6600));
  each.memory = per_cpu(600);
  CHECK(result(each, where) == per_node(10000));
  CHECK(text(each, where) ==
        "10000M per node: the most of a whole node, less than 9600M (--mem-per-cpu=600M x 16 CPUs) + 5000M "
        "for 5 units");
  each.memory = per_cpu(700);  // more than any node has, even without units
  CHECK_FALSE(decide(each, {where}, kUnits).refusal.empty());
  each.whole_nodes = false;
  where.whole_nodes = true;
  each.memory = per_cpu(100);
  CHECK(result(each, where) == per_node(6600));
  CHECK(result(job("gres:sharedgpu:5"), where) == per_node(6600));
  CHECK(result(job("gres:sharedgpu:1", per_node(500)), where) == per_node(1500));
  // The largest node determines the number of CPUs and the limit of the memory.
  where.nodes.push_back({.gres = "sharedgpu:8", .cpus = 32, .cpu_step = 1, .memory = 12000});
  CHECK(result(each, where) == per_node(8200));
  each.memory = per_cpu(300);
  CHECK(result(each, where) == per_node(12000));
  // A second partition, which gives parts of nodes, does not change the result.
  CHECK(decide(each, {partition(), where}, kUnits).sum->request == per_node(12000));
  each.threads_per_core = 1;
  where.nodes = {{.gres = "sharedgpu:8", .cpus = 16, .cpu_step = 2, .memory = 90000, .threads = 2}};
  CHECK(result(each, where) == per_node(7400));
}

TEST_CASE("A job with whole nodes gets as much as Slurm's limits permit") {
  Job each = job("gres:sharedgpu:4", per_cpu(100));
  each.whole_nodes = true;
  Partition where = partition();
  where.most = per_cpu(400);
  CHECK(result(each, where) == per_node(5600));
  where.most = per_cpu(200);
  CHECK(result(each, where) == per_node(3200));
  where.most = per_node(3000);
  CHECK(result(each, where) == per_node(3000));
  where.most = per_node(1500);
  CHECK(result(each, where) == per_node(5600));  // Slurm refuses the job's own request, too
  each.memory = per_cpu(500);
  where.most = per_cpu(300);  // Slurm itself lowers the request
  CHECK(result(each, where) == per_node(4800));
  each.whole_nodes = false;
  CHECK(result(each, where) == per_node(4500));
}

TEST_CASE("Memory per GPU") {
  Partition where = partition();
  where.defaults.memory_per_gpu = 200;
  CHECK(result(job("gres:gpu:2,gres:sharedgpu:1"), where) == per_node(1400));
  CHECK(result(job("gres:sharedgpu:1"), where) == per_node(1100));  // jobs without a GPU use DefMemPerCPU
  CHECK(result(job("gres:gpu:2,gres:sharedgpu:1", per_gpu(300)), where) == per_gpu(800));
  Job each = job("gres:sharedgpu:1", per_gpu(300));
  each.tres_per_job = "gres:gpu:4";
  CHECK(result(each, where) == per_gpu(1300));  // a node may have only one of the four GPUs
  each.most_nodes = 1;
  CHECK(result(each, where) == per_gpu(550));
}

TEST_CASE("Units per task, per socket and per job") {
  Job each;
  each.memory = per_node(500);
  each.tres_per_task = "gres:sharedgpu:2";
  CHECK(result(each) == per_node(2500));
  each.tasks = 3;
  CHECK(result(each) == per_node(6500));
  each.tasks_per_node = 2;
  CHECK(result(each) == per_node(4500));
  each.tasks_per_node = {};
  each.tasks = 100;  // no node has more than eight units
  CHECK(result(each) == per_node(8500));

  each = {};
  each.memory = per_node(500);
  each.tres_per_socket = "gres:sharedgpu:2";
  CHECK(result(each) == per_node(2500));
  each.sockets_per_node = 2;
  CHECK(result(each) == per_node(4500));

  each = {};
  each.memory = per_node(500);
  each.tres_per_job = "gres:sharedgpu:4";
  CHECK(result(each) == per_node(4500));
  each.least_nodes = 3;
  CHECK(result(each) == per_node(2500));
  each.tres_per_node = "gres:sharedgpu:1";  // tres_per_node states the exact number
  CHECK(result(each) == per_node(1500));
}

TEST_CASE("A request that fits no node with such units is refused, with the sum") {
  CHECK(decide(job("gres:sharedgpu:8", per_node(2000)), {partition()}, kUnits).refusal.empty());
  CHECK(decide(job("gres:sharedgpu:8", per_node(2001)), {partition()}, kUnits).refusal ==
        "no node has the host memory: 10001M per node: 2001M (--mem) + 8000M for 8 units; the largest node "
        "with "
        "such units has 10000M");
  // The plugin accepts a job that no node can run: Slurm itself refuses the job, or learns of suitable nodes
  // later.
  CHECK(decide(job("gres:sharedgpu:9", per_node(1)), {partition()}, kUnits).refusal.empty());
}

TEST_CASE(
    "With several partitions the largest sum counts, and one partition with a large enough node suffices") {
  Partition other = partition();
  other.defaults.memory = per_node(1500);
  other.nodes = {{.gres = "sharedgpu:8", .cpus = 4, .cpu_step = 1, .memory = 2000}};
  const Decision decision = decide(job("gres:sharedgpu:1"), {other, partition()}, kUnits);
  CHECK(decision.sum->request == per_node(2500));
  CHECK(decision.refusal.empty());
  CHECK_FALSE(decide(job("gres:sharedgpu:1"), {other}, kUnits).refusal.empty());
  CHECK_FALSE(decide(job("gres:sharedgpu:1"), {}, kUnits).sum);
}

TEST_CASE("The sum is spelled out") {
  CHECK(text(job("gres:sharedgpu:1", per_node(500))) == "1500M per node: 500M (--mem) + 1000M for 1 unit");
  CHECK(text(job("gres:sharedgpu:2")) ==
        "2100M per node: 100M (DefMemPerCPU=100M x 1 CPU) + 2000M for 2 units");
  CHECK(text(job("gres:gpu:2,gres:sharedgpu:1", per_gpu(300))) ==
        "800M per GPU, on each node at least 600M (--mem-per-gpu=300M x 2 GPUs) + 1000M for 1 unit");
}

TEST_CASE("The part of the units is taken out again") {
  const auto own = [](const Job& job) { return *without_units(job, {partition()}, kUnits); };
  CHECK(own(job("gres:sharedgpu:2", per_node(2500))) == per_node(500));
  CHECK(own(job("gres:sharedgpu:5", per_cpu(413))) == per_cpu(413));  // contains no memory of units
  CHECK(own(job("gres:gpu:2,gres:sharedgpu:1", per_gpu(800))) == per_gpu(300));
  CHECK(own(job("gres:gpu:2", per_node(2500))) == per_node(2500));
  CHECK(own(job("gres:sharedgpu:2", per_node(2000))) == per_node(2000));  // too small to include units
  CHECK(own(job("gres:sharedgpu:2", per_node(0))) == per_node(0));
  CHECK_FALSE(without_units(job("gres:sharedgpu:2"), {partition()}, kUnits));
}

TEST_CASE("The memory of a job tells if its own request is the default") {
  const auto is_default = [](Job job) { return has_default_memory(job, {partition()}, kUnits); };
  CHECK(is_default(job("gres:sharedgpu:2", per_node(2100))));
  CHECK_FALSE(is_default(job("gres:sharedgpu:2", per_node(2500))));
  CHECK_FALSE(is_default(job("gres:sharedgpu:2", per_cpu(100))));
  CHECK_FALSE(is_default(job("gres:sharedgpu:2")));
  CHECK_FALSE(is_default(job("gres:gpu:2", per_cpu(100))));
  CHECK_FALSE(has_default_memory(job("gres:sharedgpu:2", per_node(2100)), {}, kUnits));
}

TEST_CASE("Absurd sizes stay in range") {
  const UnitMemory units(*parse_typed_sizes("1024TiB", true), {}, 1);
  Job each = job("gres:sharedgpu:99999999999", per_cpu(~std::uint64_t{0} >> 1));
  each.tasks = ~std::uint32_t{0};
  each.cpus_per_task = 65535;
  Partition where = partition();
  where.nodes.clear();
  const Decision decision = decide(each, {where}, units);
  REQUIRE(decision.sum);
  CHECK(decision.sum->request.size <= std::uint64_t{1} << 62);
  CHECK(decision.sum->request.size >= std::uint64_t{1} << 42);
}
