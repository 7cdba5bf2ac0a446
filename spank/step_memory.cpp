// SPDX-License-Identifier: Apache-2.0
// This code runs in an srun inside a job, as the user, before srun reads its options. If a step states no
// memory, srun takes the step's memory from the job's environment:
//
// - SLURM_MEM_PER_NODE is all memory of the job on a node, so steps that the job starts side by side would
//   wait for one another. Slurm sets this variable in each job whose memory is requested per node. In most
//   jobs with units, the job_submit plugin requests memory per node. So this code sets the value to 0 while
//   srun reads its options. A step with the value 0 claims no memory, and may use all memory of its job.
// - SLURM_MEM_PER_GPU in an allocation of salloc is the value that salloc was given. This value lacks the
//   memory for the job's units, so a step would request less memory than its job has. This code replaces the
//   variable's value by the job's value. In a batch job, the variable has the job's value.
//
// This code does not change the memory of a step that states its memory.
#include <slurm/slurm.h>
#include <slurm/slurm_version.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "protocol/environment.h"
#include "protocol/split.h"
#include "spank/plugin.h"

namespace sharedgpu {
namespace {

constexpr char kPerNode[] = "SLURM_MEM_PER_NODE";
constexpr char kPerCpu[] = "SLURM_MEM_PER_CPU";
constexpr char kPerGpu[] = "SLURM_MEM_PER_GPU";

struct FreeJobs {
  void operator()(job_info_msg_t* jobs) const { slurm_free_job_info_msg(jobs); }
};

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
std::uint32_t number_of(const slurm_job_info_t& job) { return job.step_id.job_id; }

int load_job(job_info_msg_t** reply, std::uint32_t job) {
  slurm_step_id_t whole_job = {};
  whole_job.job_id = job;
  whole_job.step_id = NO_VAL;
  whole_job.step_het_comp = NO_VAL;
  return slurm_load_job(reply, whole_job, SHOW_ALL);
}
#else
std::uint32_t number_of(const slurm_job_info_t& job) { return job.job_id; }

int load_job(job_info_msg_t** reply, std::uint32_t job) { return slurm_load_job(reply, job, SHOW_ALL); }
#endif

bool has_units(const slurm_job_info_t& job) {
  for (const char* units : {job.tres_per_job, job.tres_per_node, job.tres_per_socket, job.tres_per_task})
    if (units != nullptr && std::string_view(units).find("sharedgpu") != std::string_view::npos) return true;
  return false;
}

// Returns "812" for "gres:gpu:812". The text before the number depends on Slurm's release.
std::string memory_per_gpu(const slurm_job_info_t& job) {
  const std::string text = job.mem_per_tres == nullptr ? "" : job.mem_per_tres;
  const std::size_t end = text.find_last_of(":=");
  if (end == text.npos || text.find(',') != text.npos) return {};
  return parse_number<std::uint64_t>(text.substr(end + 1)) ? text.substr(end + 1) : std::string();
}

// Slurm replies with all components of a heterogeneous job, or with all elements of an array, if `number` is
// the number of the first component or element.
using Jobs = std::unique_ptr<job_info_msg_t, FreeJobs>;
Jobs load_jobs(std::uint32_t number) {
  job_info_msg_t* reply = nullptr;
  return Jobs(load_job(&reply, number) == 0 ? reply : nullptr);
}

// The original value of SLURM_MEM_PER_NODE, which is restored when srun has read its options; empty if the
// value was not replaced.
std::string& memory_of_job() {
  static std::string memory;
  return memory;
}

// Sets SLURM_MEM_PER_NODE to 0, unless its value `memory` differs from the job's memory: then the user has
// set it. If the user has set memory per CPU or GPU, removes SLURM_MEM_PER_NODE, because srun refuses to
// start with both.
void claim_no_memory(const slurm_job_info_t& job, const char* memory) {
  if (std::to_string(job.pn_min_memory) != memory) return;
  memory_of_job() = memory;
  if (std::getenv(kPerCpu) != nullptr || std::getenv(kPerGpu) != nullptr)
    unsetenv(kPerNode);
  else
    setenv(kPerNode, "0", 1);
}

}  // namespace

void local_init() {
  const char* const number = std::getenv("SLURM_JOB_ID");
  const char* const per_node = std::getenv(kPerNode);
  const char* const per_gpu = std::getenv(kPerGpu);
  if (number == nullptr || (per_node == nullptr && per_gpu == nullptr)) return;
  const char* const kind = std::getenv("ENVIRONMENT");
  const bool is_batch = kind != nullptr && std::string_view(kind) == "BATCH";
  // A batch job without units needs no query to slurmctld.
  if (is_batch && (per_node == nullptr || std::getenv(environment::kUnits) == nullptr)) return;
  const auto job_number = parse_number<std::uint32_t>(number);
  const Jobs jobs = job_number ? load_jobs(*job_number) : nullptr;
  if (!jobs) return;
  const std::span all(jobs->job_array, jobs->record_count);
  const auto job = std::ranges::find(all, *job_number, number_of);
  if (job == all.end() || std::ranges::none_of(all, has_units)) return;
  if (per_node != nullptr) claim_no_memory(*job, per_node);
  if (per_gpu == nullptr || is_batch) return;
  if (const std::string memory = memory_per_gpu(*job); !memory.empty()) setenv(kPerGpu, memory.c_str(), 1);
}

void local_init_post_opt() {
  if (!memory_of_job().empty()) setenv(kPerNode, memory_of_job().c_str(), 1);
}

}  // namespace sharedgpu
