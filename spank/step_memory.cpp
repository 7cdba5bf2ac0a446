// SPDX-License-Identifier: Apache-2.0
// This code runs in srun in an allocation of salloc, as the user, before srun reads its options. salloc
// passes its own value of --mem-per-gpu to steps. This value lacks the memory that the job's units bring, so
// a step would request less memory than its job has. This code replaces it by the job's value. sbatch passes
// the job's value itself, and a step that states --mem-per-gpu gets the value that it states.
#include <slurm/slurm.h>
#include <slurm/slurm_version.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "protocol/environment.h"
#include "protocol/split.h"
#include "spank/plugin.h"

namespace sharedgpu {
namespace {

struct FreeJobs {
  void operator()(job_info_msg_t* jobs) const { slurm_free_job_info_msg(jobs); }
};

int load_job(job_info_msg_t** reply, std::uint32_t job) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
  slurm_step_id_t whole_job = {};
  whole_job.job_id = job;
  whole_job.step_id = NO_VAL;
  whole_job.step_het_comp = NO_VAL;
  return slurm_load_job(reply, whole_job, SHOW_ALL);
#else
  return slurm_load_job(reply, job, SHOW_ALL);
#endif
}

bool has_units(const slurm_job_info_t& job) {
  for (const char* units : {job.tres_per_job, job.tres_per_node, job.tres_per_socket, job.tres_per_task})
    if (units != nullptr && std::string_view(units).find("sharedgpu") != std::string_view::npos) return true;
  return false;
}

// Returns "812" for "gres:gpu:812". Releases differ in the characters before the number.
std::string memory_per_gpu(const slurm_job_info_t& job) {
  const std::string text = job.mem_per_tres == nullptr ? "" : job.mem_per_tres;
  const std::size_t end = text.find_last_of(":=");
  if (end == text.npos || text.find(',') != text.npos) return {};
  return parse_number<std::uint64_t>(text.substr(end + 1)) ? text.substr(end + 1) : std::string();
}

}  // namespace

void local_init() {
  constexpr char kMemory[] = "SLURM_MEM_PER_GPU";
  const char* const number = std::getenv("SLURM_JOB_ID");
  const bool is_batch = std::getenv(environment::kUnits) != nullptr;
  if (number == nullptr || std::getenv(kMemory) == nullptr || is_batch) return;
  const auto job = parse_number<std::uint32_t>(number);
  job_info_msg_t* reply = nullptr;
  if (!job || load_job(&reply, *job) != 0) return;
  const std::unique_ptr<job_info_msg_t, FreeJobs> jobs(reply);
  if (jobs->record_count != 1 || !has_units(jobs->job_array[0])) return;
  if (const std::string memory = memory_per_gpu(jobs->job_array[0]); !memory.empty())
    setenv(kMemory, memory.c_str(), 1);
}

}  // namespace sharedgpu
