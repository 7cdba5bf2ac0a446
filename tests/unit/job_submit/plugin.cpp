// SPDX-License-Identifier: GPL-2.0-or-later
// The job_submit plugin in a fake slurmctld: the plugin changes only the messages of jobs with units, and
// reads tables with the declared layout only.
#include <slurm/slurm_errno.h>

#include <catch2/catch.hpp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "slurm_shared/abi/controller.h"

struct xlist {
  std::vector<void*> items;
};

namespace {

constexpr bitstr_t kFirst = 1;
constexpr bitstr_t kSecond = 2;

std::vector<std::string> log_lines;
part_record partition = {};
config_record node = {};
xlist nodes;
job_desc_msg_t* pending = nullptr;  // the job that is changed
int copies = 0;
int visits = 0;  // number of visits to lists of slurmctld

void keep(const char* format, va_list arguments) {
  char line[2000];
  std::vsnprintf(line, sizeof line, format, arguments);
  log_lines.emplace_back(line);
}

}  // namespace

part_record* default_part_loc = &partition;
slurm_conf_t slurm_conf = {};
xlist* config_list = &nodes;

extern "C" {

int init();
int job_submit(job_desc_msg_t* message, std::uint32_t user, char** user_message);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
int job_modify(job_desc_msg_t* message, job_record* job, std::uint32_t user, char** user_message);
#else
int job_modify(job_desc_msg_t* message, job_record* job, std::uint32_t user);
#endif

part_record* find_part_record(char* name) { return std::strcmp(name, "main") == 0 ? &partition : nullptr; }
int slurm_list_for_each(xlist* list, int (*visit)(void*, void*), void* argument) {
  ++visits;
  for (void* item : list->items) visit(item, argument);
  return 0;
}
int slurm_bit_overlap_any(bitstr_t* a, bitstr_t* b) { return (*a & *b) != 0; }
char* slurm_xstrdup(const char* text) { return text == nullptr ? nullptr : strdup(text); }
void slurm_xfree(void** block) {
  std::free(*block);
  *block = nullptr;
}
// Copies a message as slurmctld does, with all strings of the environment in one block.
job_desc_msg_t* copy_job_record_to_job_desc(job_record*) {
  ++copies;
  auto* copy = static_cast<job_desc_msg_t*>(std::malloc(sizeof(job_desc_msg_t)));
  *copy = *pending;
  copy->tres_per_node = slurm_xstrdup(pending->tres_per_node);
  copy->partition = slurm_xstrdup(pending->partition);
  copy->environment = static_cast<char**>(std::calloc(3, sizeof(char*)));
  copy->environment[0] = static_cast<char*>(std::calloc(1, 8));
  std::memcpy(copy->environment[0], "A=1\0B=2", 8);
  copy->environment[1] = copy->environment[0] + 4;
  return copy;
}
void slurm_free_job_desc_msg(job_desc_msg_t* job) {
  REQUIRE(job->environment == nullptr);
  std::free(job->tres_per_node);
  std::free(job->partition);
  std::free(job);
}
void slurm_info(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  keep(format, arguments);
  va_end(arguments);
}
void slurm_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  keep(format, arguments);
  va_end(arguments);
}
void slurm_debug(const char*, ...) {}
}

namespace {

// A client's message, initialized as by slurm_init_job_desc_msg().
struct Message {
  job_desc_msg_t slurms = {};
  char* user_message = nullptr;

  explicit Message(const char* units = nullptr, std::uint64_t memory = NO_VAL64) {
    slurms.min_nodes = slurms.max_nodes = slurms.num_tasks = slurms.min_cpus = NO_VAL;
    slurms.cpus_per_task = slurms.ntasks_per_node = slurms.pn_min_cpus = slurms.sockets_per_node = NO_VAL16;
    slurms.shared = slurms.core_spec = NO_VAL16;
    slurms.pn_min_memory = memory;
    slurms.tres_per_node = slurm_xstrdup(units);
  }
  Message(const Message&) = delete;
  ~Message() {
    for (std::uint32_t i = 0; i < slurms.env_size; ++i) std::free(slurms.environment[i]);
    std::free(slurms.environment);
    for (char* text :
         {slurms.tres_per_node, slurms.tres_per_task, slurms.tres_per_job, slurms.mem_per_tres, user_message})
      std::free(text);
  }

  void set_environment(const std::vector<const char*>& variables) {
    slurms.environment = static_cast<char**>(std::calloc(variables.size() + 1, sizeof(char*)));
    for (const char* variable : variables) slurms.environment[slurms.env_size++] = slurm_xstrdup(variable);
  }
  std::vector<std::string> environment() const {
    std::vector<std::string> variables;
    for (std::uint32_t i = 0; i < slurms.env_size; ++i) variables.emplace_back(slurms.environment[i]);
    return variables;
  }

  int submit() { return job_submit(&slurms, 1000, &user_message); }
  // Updates the submitted job `job`.
  int change(Message& job) {
    pending = &job.slurms;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
    return job_modify(&slurms, nullptr, 1000, &user_message);
#else
    return job_modify(&slurms, nullptr, 1000);
#endif
  }
  std::string told() const { return user_message == nullptr ? "" : user_message; }
};

// A job with units that has been submitted. After the submission, Slurm treats the memory that the plugin
// wrote as if the job itself had requested it.
struct Submitted : Message {
  explicit Submitted(const char* units, std::uint64_t memory) : Message(units, memory) {
    REQUIRE(submit() == 0);
    slurms.bitflags |= JOB_MEM_SET;
  }
};

// A node with 8 CPUs, 16 GiB, 2 GPUs and 8 units of 1 GiB each, and the folder with its configuration.
struct Cluster {
  char folder[24] = "/tmp/sgpu-unit.XXXXXX";
  std::string slurm_file;
  bitstr_t node_bit = kFirst, partition_bit = kFirst;
  char gres[20] = "gpu:2,sharedgpu:8";

  Cluster() {
    REQUIRE(mkdtemp(folder) != nullptr);
    slurm_file = std::string(folder) + "/slurm.conf";
    configure("SwapPerUnit=1GiB\n");
    slurm_conf.slurm_conf = slurm_file.data();
    slurm_conf.select_type_param = kSelectCore | kSelectMemory;
    slurm_conf.def_mem_per_cpu = MEM_PER_CPU | 100;
    node = {};
    node.magic = CONFIG_MAGIC;
    node.gres = gres;
    node.cpus = 8;
    node.threads = 1;
    node.real_memory = 16384;
    node.node_bitmap = &node_bit;
    nodes.items = {&node};
    partition = {};
    partition.magic = PART_MAGIC;
    partition.max_share = 1;
    partition.node_bitmap = &partition_bit;
    log_lines.clear();
    copies = visits = 0;
  }
  ~Cluster() {
    std::remove((std::string(folder) + "/sharedgpu.conf").c_str());
    std::remove(folder);
  }
  void configure(const char* text) {
    std::ofstream(std::string(folder) + "/sharedgpu.conf") << text;
    ++slurm_conf.last_update;
  }
};

TEST_CASE("The message of a job with units has the sum, and the user is told") {
  Cluster cluster;
  Message message("gres:sharedgpu:2", 500);
  CHECK(message.submit() == 0);
  CHECK(message.slurms.pn_min_memory == 2548);
  CHECK(message.told() == "sharedgpu: host memory 2548M per node: 500M (--mem) + 2048M for 2 units");
  Message by_default("gres/sharedgpu:1");
  by_default.user_message = slurm_xstrdup("of another plugin");
  CHECK(by_default.submit() == 0);
  CHECK(by_default.slurms.pn_min_memory == 1124);
  CHECK(by_default.told().starts_with("of another plugin\nsharedgpu: host memory 1124M"));
}

TEST_CASE("A job without units, or without memory to be allocated, is left alone") {
  Cluster cluster;
  Message without("gres:gpu:1", 500);
  CHECK(without.submit() == 0);
  CHECK(without.slurms.pn_min_memory == 500);
  const auto is_left_alone = [] {
    Message message("gres:sharedgpu:2", 500);
    return message.submit() == 0 && message.slurms.pn_min_memory == 500 && message.told().empty();
  };
  CHECK_FALSE(is_left_alone());
  slurm_conf.select_type_param = kSelectCore;
  CHECK(is_left_alone());
  partition.cr_type = kSelectCore | kSelectMemory;
  CHECK_FALSE(is_left_alone());
  slurm_conf.select_type_param = kSelectCore | kSelectMemory;
  partition.cr_type = kSelectCore;
  CHECK(is_left_alone());
}

TEST_CASE("Partitions that do not exist, and tables of another layout, are not read") {
  Cluster cluster;
  const auto memory_in = [](const char* partitions) {
    Message message("gres:sharedgpu:2", 500);
    message.slurms.partition = const_cast<char*>(partitions);
    CHECK(message.submit() == 0);
    return message.slurms.pn_min_memory;
  };
  CHECK(memory_in("main") == 2548);
  CHECK(memory_in("other,main") == 2548);
  // If a job lists the same partition many times, the plugin visits the partition once.
  visits = 0;
  CHECK(memory_in("main,main,other,main") == 2548);
  CHECK(visits == 1);
  const std::string many(65536, ',');
  CHECK(memory_in(("main" + many).c_str()) == 500);
  CHECK(memory_in(("main" + many.substr(4)).c_str()) == 2548);
  CHECK(memory_in("other") == 500);
  CHECK(memory_in("") == 500);
  node.magic = 1;
  node.gres = reinterpret_cast<char*>(1);
  CHECK(memory_in("main") == 2548);
  partition.magic = 1;
  CHECK(memory_in("main") == 500);
}

TEST_CASE("A request that fits no node of its partition is refused") {
  Cluster cluster;
  Message message("gres:sharedgpu:8", 8193);
  CHECK(message.submit() == ESLURM_INVALID_TASK_MEMORY);
  CHECK(message.slurms.pn_min_memory == 8193);
  CHECK(message.told() ==
        "sharedgpu: no node has the host memory: 16385M per node: 8193M (--mem) + 8192M for 8 units; the "
        "largest node "
        "with such units has 16384M");
  node.mem_spec_limit = 10;
  Message less("gres:sharedgpu:8", 8185);
  CHECK(less.submit() == ESLURM_INVALID_TASK_MEMORY);
  cluster.partition_bit = kSecond;  // no node of the partition fits: Slurm itself refuses the job
  CHECK(less.submit() == 0);
}

TEST_CASE("Cores for the system are no CPUs of jobs, and whole cores are allocated") {
  Cluster cluster;
  node.threads = 2;
  node.core_spec_cnt = 1;
  Message three("gres:sharedgpu:1");
  three.slurms.num_tasks = 3;
  CHECK(three.submit() == 0);
  CHECK(three.slurms.pn_min_memory == 4 * 100 + 1024);
  Message all("gres:sharedgpu:1");
  all.slurms.num_tasks = 8;
  CHECK(all.submit() == 0);
  CHECK(all.slurms.pn_min_memory == 6 * 100 + 1024);
}

TEST_CASE("A job that reserves cores for the system gets whole nodes, if slurm.conf permits it") {
  Cluster cluster;
  const auto memory = [] {
    Message message("gres:sharedgpu:1");
    message.slurms.core_spec = 1;
    CHECK(message.submit() == 0);
    return message.slurms.pn_min_memory;
  };
  CHECK(memory() == 1124);
  slurm_conf.conf_flags = 1u << 3;  // AllowSpecResourcesUsage
  CHECK(memory() == 8 * 100 + 1024);
  slurm_conf.conf_flags = 0;
}

TEST_CASE("The environment of a batch job does not contradict its memory") {
  Cluster cluster;
  Message message("gres:sharedgpu:1", MEM_PER_CPU | 100);
  message.set_environment({"A=1", "SLURM_MEM_PER_CPU=100", "SLURM_MEM_PER_CPU_X=3", "B=2"});
  CHECK(message.submit() == 0);
  CHECK(message.environment() == std::vector<std::string>{"A=1", "B=2", "SLURM_MEM_PER_CPU_X=3"});
  CHECK(message.slurms.environment[3] == nullptr);
  Message per_gpu("gres:gpu:2,gres:sharedgpu:1");
  per_gpu.slurms.mem_per_tres = slurm_xstrdup("gres:gpu:100");
  per_gpu.set_environment({"SLURM_MEM_PER_GPU=100"});
  CHECK(per_gpu.submit() == 0);
  CHECK(per_gpu.slurms.pn_min_memory == NO_VAL64);
  CHECK(std::string(per_gpu.slurms.mem_per_tres) == "gres:gpu:612");
  CHECK(per_gpu.environment() == std::vector<std::string>{"SLURM_MEM_PER_GPU=612"});
}

TEST_CASE("A change of memory or units keeps the units' part once") {
  Cluster cluster;
  Submitted job("gres:sharedgpu:2", 500);
  for (int i = 0; i < 2; ++i) {
    Message memory(nullptr, 600);
    CHECK(memory.change(job) == 0);
    CHECK(memory.slurms.pn_min_memory == 2648);
  }
  Message units("gres:sharedgpu:1");
  CHECK(units.change(job) == 0);
  CHECK(units.slurms.pn_min_memory == 1524);
  Message none("gres:gpu:1");
  CHECK(none.change(job) == 0);
  CHECK(none.slurms.pn_min_memory == 500);
  Message both("gres:sharedgpu:3", 700);
  CHECK(both.change(job) == 0);
  CHECK(both.slurms.pn_min_memory == 3772);
  Message too_much(nullptr, 15000);
  CHECK(too_much.change(job) == ESLURM_INVALID_TASK_MEMORY);
}

TEST_CASE("Other changes, and those of jobs without units, are left alone") {
  Cluster cluster;
  Submitted job("gres:sharedgpu:2", 500);
  Message name;
  CHECK(name.change(job) == 0);
  CHECK(name.slurms.pn_min_memory == NO_VAL64);
  CHECK(copies == 0);
  Submitted other("gres:gpu:2", 500);
  Message memory(nullptr, 600);
  CHECK(memory.change(other) == 0);
  CHECK(memory.slurms.pn_min_memory == 600);
}

TEST_CASE("One message that changes several jobs brings each its own part") {
  Cluster cluster;
  Submitted first("gres:sharedgpu:1", 500), second("gres:sharedgpu:2", 500), third("gres:gpu:1", 500);
  Message memory(nullptr, 600);
  CHECK(memory.change(first) == 0);
  CHECK(memory.slurms.pn_min_memory == 1624);
  CHECK(memory.change(second) == 0);
  CHECK(memory.slurms.pn_min_memory == 2648);
  CHECK(memory.change(third) == 0);
  CHECK(memory.slurms.pn_min_memory == 600);
  CHECK(memory.change(second) == 0);
  // A new message at the same address states the memory that the plugin wrote into the earlier message.
  memory.slurms.pn_min_memory = 2648;
  memory.slurms.bitflags = 0;
  CHECK(memory.change(second) == 0);
  CHECK(memory.slurms.pn_min_memory == 4696);
}

TEST_CASE("A change of a job with memory per GPU names its requests only if the memory changes") {
  Cluster cluster;
  Message job("gres:gpu:1,gres:sharedgpu:1");
  job.slurms.mem_per_tres = slurm_xstrdup("gres:gpu:1324");  // 300 MiB for the GPU and 1024 MiB for the unit
  Message cpus;
  cpus.slurms.min_cpus = 2;
  CHECK(cpus.change(job) == 0);
  CHECK(cpus.slurms.mem_per_tres == nullptr);
  CHECK(cpus.slurms.tres_per_node == nullptr);
  cluster.configure("SwapPerUnit=2GiB\n");
  CHECK(cpus.change(job) == 0);  // 1324 MiB cannot include 2 GiB, so the plugin only adds 2 GiB
  CHECK(std::string(cpus.slurms.mem_per_tres) == "gres:gpu:3372");
  CHECK(std::string(cpus.slurms.tres_per_node) == "gres:gpu:1,gres:sharedgpu:1");
  // For the next element of the job array, the message is as the user has sent it.
  cluster.configure("SwapPerUnit=1GiB\n");
  CHECK(cpus.change(job) == 0);
  CHECK(cpus.slurms.mem_per_tres == nullptr);
  CHECK(cpus.slurms.tres_per_node == nullptr);
}

TEST_CASE("A change to OverSubscribe=NO gives no whole nodes") {
  Cluster cluster;
  Submitted job("gres:sharedgpu:2", 500);
  Message exclusive(nullptr, MEM_PER_CPU | 200);
  exclusive.slurms.shared = JOB_SHARED_NONE;
  CHECK(exclusive.change(job) == 0);
  CHECK(exclusive.slurms.pn_min_memory == 2248);
  Message whole("gres:sharedgpu:2");
  whole.slurms.shared = JOB_SHARED_NONE;
  CHECK(whole.submit() == 0);
  CHECK(whole.slurms.pn_min_memory == 8 * 100 + 2048);
  whole.slurms.bitflags |= JOB_MEM_SET;
  Message shared;
  shared.slurms.shared = JOB_SHARED_OK;
  CHECK(shared.change(whole) == 0);
  CHECK(shared.slurms.pn_min_memory == 2148);  // the default for a job that gets a part of a node
}

TEST_CASE("A change of memory per GPU copies the requests for GPUs that the message does not state") {
  Cluster cluster;
  Message job("gres:sharedgpu:1");
  job.slurms.tres_per_job = slurm_xstrdup("gres:gpu:1");
  job.slurms.mem_per_tres = slurm_xstrdup("gres:gpu:1324");
  Message units("gres:sharedgpu:2");
  CHECK(units.change(job) == 0);
  CHECK(std::string(units.slurms.mem_per_tres) == "gres:gpu:2348");
  CHECK(std::string(units.slurms.tres_per_job) == "gres:gpu:1");
  CHECK(std::string(units.slurms.tres_per_node) == "gres:sharedgpu:2");
  // With GPUs per task, Slurm itself computes the job's GPUs.
  job.slurms.tres_per_task = slurm_xstrdup("gres:gpu:1");
  Message more("gres:sharedgpu:3");
  CHECK(more.change(job) == 0);
  CHECK(std::string(more.slurms.tres_per_task) == "gres:gpu:1");
  CHECK(more.slurms.tres_per_job == nullptr);
}

TEST_CASE("Default memory that was not changed counts as the default when units are added") {
  Cluster cluster;
  Message job("gres:gpu:1", MEM_PER_CPU | 100);  // a job as slurmctld stores it, without JOB_MEM_SET
  Message units("gres:sharedgpu:1");
  CHECK(units.change(job) == 0);
  CHECK(units.slurms.pn_min_memory == 1124);
}

TEST_CASE("The configuration is read at the start and with Slurm's own, and its faults are logged once") {
  Cluster cluster;
  const auto memory = [] {
    Message message("gres:sharedgpu:1", 500);
    CHECK(message.submit() == 0);
    return message.slurms.pn_min_memory;
  };
  CHECK(init() == 0);
  CHECK(log_lines.empty());
  cluster.configure("SwapPerUnit=2GiB\nUnitsPerGpus=8\n");
  CHECK(memory() == 1524);  // the earlier values stay in effect
  CHECK(memory() == 1524);
  REQUIRE(log_lines.size() == 1);
  CHECK(log_lines[0].find("/sharedgpu.conf:2: unknown key 'UnitsPerGpus'; did you mean UnitsPerGpu?; the "
                          "values read before stay in force") != std::string::npos);
  cluster.configure("SwapPerUnit=auto\n");
  CHECK(memory() == 500);
  REQUIRE(log_lines.size() == 2);
  CHECK(log_lines[1].find("SwapPerUnit=auto needs the memory of the GPUs: add GpuMemory=SIZE") !=
        std::string::npos);
  cluster.configure("SwapPerUnit=auto\nGpuMemory=16GiB\n");
  CHECK(memory() == 500 + 2048);
  cluster.configure("");
  CHECK(memory() == 500);
  REQUIRE(log_lines.size() == 3);
  CHECK(log_lines[2].find("does not state SwapPerUnit") != std::string::npos);
}

}  // namespace
