// SPDX-License-Identifier: GPL-2.0-or-later
// The job_submit plugin (JobSubmitPlugins=sharedgpu): jobs that request units of gres/sharedgpu get host
// memory for their units (SwapPerUnit=), in addition to the memory that they request themselves. The
// functions of memory.h compute the sum.
//
// slurmctld calls the plugin for each job that is submitted or changed, with locks on all its tables. So the
// plugin never waits, and throws no exceptions. If anything fails, the plugin leaves the job unchanged.
// The plugin does not change jobs without units, and changes no job at all if memory is not a consumable
// resource. At submission, slurmctld calls the plugin once for each component of a heterogeneous job, but
// only once for all elements of an array.
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "job_submit/configuration.h"
#include "job_submit/controller.h"
#include "slurm_shared/abi/controller.h"

#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const std::uint32_t plugin_version;
const char plugin_name[] = "Job submit sharedgpu plugin";
const char plugin_type[] = "job_submit/sharedgpu";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;
}

namespace {

using namespace sharedgpu::job_submit;

Configuration configuration;

// Runs `action`, whose result is Slurm's status. No exception may reach slurmctld.
template <class Action>
int guarded(Action action) noexcept {
  try {
    return action();
  } catch (const std::exception& error) {
    slurm_error("job_submit/sharedgpu: %s; the job's memory is left as requested", error.what());
  } catch (...) {
    slurm_error("job_submit/sharedgpu: unknown error; the job's memory is left as requested");
  }
  return SLURM_SUCCESS;
}

// Adds a line to the text for the user, after the lines of other plugins.
void tell(char** message, const std::string& line) {
  if (message == nullptr) return;
  const std::string text = (*message == nullptr ? "" : std::string(*message) + "\n") + "sharedgpu: " + line;
  slurm_xfree(reinterpret_cast<void**>(message));
  *message = slurm_xstrdup(text.c_str());
}

bool is_named(const char* variable, std::string_view name) {
  return std::strncmp(variable, name.data(), name.size()) == 0 && variable[name.size()] == '=';
}

// If the environment of a batch job has this variable, sets the variable to `value`, or removes it if `value`
// is empty.
void change_variable(job_desc_msg_t& message, const std::string& name, const std::string& value) {
  if (message.environment == nullptr) return;
  for (std::uint32_t i = 0; i < message.env_size; ++i) {
    char*& variable = message.environment[i];
    if (variable == nullptr || !is_named(variable, name)) continue;
    slurm_xfree(reinterpret_cast<void**>(&variable));
    if (!value.empty()) {
      variable = slurm_xstrdup((name + "=" + value).c_str());
      return;
    }
    variable = message.environment[message.env_size - 1];
    message.environment[--message.env_size] = nullptr;
    return;
  }
}

// Writes the request into the message. In a batch job's environment, removes SLURM_MEM_PER_CPU if the request
// is per node, and sets SLURM_MEM_PER_GPU to a request per GPU: srun refuses to start if it finds more than
// one of SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU and SLURM_MEM_PER_NODE. `per_gpu`: the request per GPU that
// `request` replaces, such as "gres:gpu:4096"; null if there is none.
void write_request(const Request& request, const char* per_gpu, job_desc_msg_t& message) {
  if (request.per != Per::gpu) {
    message.pn_min_memory = request.size | (request.per == Per::cpu ? MEM_PER_CPU : 0);
    if (request.per == Per::node) change_variable(message, "SLURM_MEM_PER_CPU", {});
    return;
  }
  if (per_gpu == nullptr) return;
  const std::string size = std::to_string(request.size);
  const std::string text(per_gpu);
  slurm_xfree(reinterpret_cast<void**>(&message.mem_per_tres));
  message.mem_per_tres = slurm_xstrdup((text.substr(0, text.find_last_of(":=") + 1) + size).c_str());
  change_variable(message, "SLURM_MEM_PER_GPU", size);
}

bool has_units(const Job& job) { return !demand_of(job, "sharedgpu").most.empty(); }

std::optional<sharedgpu::UnitMemory> unit_memory() {
  return configuration.unit_memory(slurm_conf.slurm_conf, slurm_conf.last_update);
}

// Removes --mem-update= from the request. This option lowers a job's memory to the amount that the job has
// used so far, and never raises the amount again. The memory of units is unused until the job's device memory
// is evicted for the first time, so --mem-update= would take this memory from the job.
void keep_memory(job_desc_msg_t& message, char** user_message) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
  if (message.mem_update_delay == 0 && message.mem_update_margin == 0) return;
  message.mem_update_delay = 0;
  message.mem_update_margin = 0;
  tell(user_message,
       "--mem-update has no effect on a job with units: it would take the host memory behind them");
#else
  (void)message, (void)user_message;
#endif
}

int submit(job_desc_msg_t& message, char** user_message) {
  const Job job = job_of(message);
  if (!has_units(job)) return SLURM_SUCCESS;
  const std::vector<Partition> partitions = partitions_of(message.partition);
  if (partitions.empty()) return SLURM_SUCCESS;
  keep_memory(message, user_message);
  const auto memory = unit_memory();
  if (!memory) return SLURM_SUCCESS;
  const Decision decision = decide(job, partitions, *memory);
  if (!decision.refusal.empty()) {
    tell(user_message, decision.refusal);
    return ESLURM_INVALID_TASK_MEMORY;
  }
  if (!decision.sum) return SLURM_SUCCESS;
  write_request(decision.sum->request, message.mem_per_tres, message);
  tell(user_message, "host memory " + decision.sum->text);
  return SLURM_SUCCESS;
}

// Slurm changes the elements of an array, or the components of a heterogeneous job, one after the other with
// the same message. Each call has to find the user's request in the message. So the plugin records its last
// change, and undoes it at the next call with the same message. The flag JOB_MEM_SET marks a message that
// this plugin has changed. Slurm ignores this flag when it changes a job.
struct LastChange {
  const job_desc_msg_t* message = nullptr;
  std::uint64_t stated = NO_VAL64;
  std::uint64_t written = NO_VAL64;
  bool per_gpu = false;  // the plugin has written mem_per_tres
  // The requests for TRES that the plugin has copied from the job.
  std::vector<char * job_desc_msg_t::*> copied;
};
std::mutex last_change_mutex;
LastChange last_change;  // guarded by last_change_mutex

// The members that request TRES. They request units, and GPUs. Slurm refuses a request for memory per GPU if
// there is no request for GPUs.
constexpr char* job_desc_msg_t::*kRequests[] = {
    &job_desc_msg_t::tres_per_node, &job_desc_msg_t::tres_per_socket, &job_desc_msg_t::tres_per_task,
    &job_desc_msg_t::tres_per_job};

bool states_requests(const job_desc_msg_t& message) {
  return std::ranges::any_of(kRequests, [&](auto request) { return message.*request != nullptr; });
}

bool names_gpus(const char* request) { return request != nullptr && !counts_of(request, "gpu").empty(); }

void clear(char*& text) { slurm_xfree(reinterpret_cast<void**>(&text)); }

void restore_stated_memory(job_desc_msg_t& message) {
  const std::lock_guard lock(last_change_mutex);
  if ((message.bitflags & JOB_MEM_SET) == 0 || last_change.message != &message ||
      last_change.written != message.pn_min_memory)
    return;
  message.pn_min_memory = last_change.stated;
  if (last_change.per_gpu) clear(message.mem_per_tres);
  for (const auto request : last_change.copied) clear(message.*request);
  last_change = {};
}

// `job`: the job before the change.
void write_change(const Request& request, const job_desc_msg_t& job, job_desc_msg_t& message) {
  const std::lock_guard lock(last_change_mutex);
  last_change = {};
  last_change.message = &message;
  last_change.stated = message.pn_min_memory;
  if (request.per == Per::gpu) {
    last_change.per_gpu = message.mem_per_tres == nullptr;
    for (const auto text : kRequests) {
      // If the job requests GPUs per task, Slurm itself computes the job's number of GPUs.
      const bool computed = text == &job_desc_msg_t::tres_per_job && names_gpus(job.tres_per_task);
      if (message.*text != nullptr || !names_gpus(job.*text) || computed) continue;
      message.*text = slurm_xstrdup(job.*text);
      last_change.copied.push_back(text);
    }
  }
  write_request(request, job.mem_per_tres, message);
  last_change.written = message.pn_min_memory;
  message.bitflags |= JOB_MEM_SET;
}

struct FreeCopy {
  void operator()(job_desc_msg_t* copy) const {
    // copy_job_record_to_job_desc() puts all strings of the environment into one block of memory, which
    // begins with the first string.
    if (copy->environment != nullptr) slurm_xfree(reinterpret_cast<void**>(&copy->environment[0]));
    slurm_xfree(reinterpret_cast<void**>(&copy->environment));
    slurm_free_job_desc_msg(copy);
  }
};
using JobCopy = std::unique_ptr<job_desc_msg_t, FreeCopy>;

JobCopy copy_of(job_record* record) {
  JobCopy copy(copy_job_record_to_job_desc(record));
  // Without the flag JOB_MEM_SET, the job has not requested memory itself, so its memory is a default.
  if (copy && (copy->bitflags & JOB_MEM_SET) == 0) copy->pn_min_memory = NO_VAL64;
  return copy;
}

// Returns true for a change that may change the memory of the job's units, or the memory of a default
// request. Slurm permits such changes only for pending jobs. Returns false for a change of the number of
// nodes, since such a change can also shrink a running job, whose memory cannot change.
bool changes_allocation(const job_desc_msg_t& message) {
  const Job stated = changed({}, message);
  return message.partition != nullptr || message.shared != NO_VAL16 || stated.cpus || stated.cpus_per_node ||
         stated.cpus_per_task || stated.tasks || stated.tasks_per_node;
}

// If the user changes the memory, the new value is the job's own request, like --mem at submission. Any other
// change keeps the job's own request, and the plugin computes the memory of the units again. If the job's own
// request is the default, the job gets the default of its new partition, for its new number of CPUs.
int modify(job_desc_msg_t& message, job_record* record, char** user_message) {
  restore_stated_memory(message);
  const bool states_memory = message.pn_min_memory != NO_VAL64;
  if (!states_memory && !states_requests(message) && !changes_allocation(message)) return SLURM_SUCCESS;
  const auto memory = unit_memory();
  const JobCopy copy = memory ? copy_of(record) : nullptr;
  if (!copy) return SLURM_SUCCESS;
  const Job before = job_of(*copy);
  Job after = changed(before, message);
  // OverSubscribe=NO gives a job no whole nodes, but OverSubscribe=YES takes away the job's whole nodes.
  after.whole_nodes = before.whole_nodes && (message.shared == NO_VAL16 || message.shared == JOB_SHARED_NONE);
  if (!has_units(before) && !has_units(after)) return SLURM_SUCCESS;
  const std::vector<Partition> partitions = partitions_of(copy->partition);
  const std::optional<Request> own =
      states_memory ? memory_in(message) : without_units(before, partitions, *memory);
  const bool is_default = !states_memory && has_default_memory(before, partitions, *memory);
  after.memory = is_default ? std::nullopt : own;
  const char* const partition = message.partition == nullptr ? copy->partition : message.partition;
  const Decision decision = decide(after, partitions_of(partition), *memory);
  const char* const job = message.job_id_str == nullptr ? "?" : message.job_id_str;
  if (!decision.refusal.empty()) {
    slurm_info("job_submit/sharedgpu: JobId=%s: %s", job, decision.refusal.c_str());
    tell(user_message, decision.refusal);
    return ESLURM_INVALID_TASK_MEMORY;
  }
  const std::optional<Request> request = decision.sum ? decision.sum->request : own;
  if (!request || (!states_memory && request == before.memory) || (states_memory && !decision.sum))
    return SLURM_SUCCESS;
  if (decision.sum)
    slurm_info("job_submit/sharedgpu: JobId=%s: host memory %s", job, decision.sum->text.c_str());
  write_change(*request, *copy, message);
  return SLURM_SUCCESS;
}

}  // namespace

extern "C" {

int init() {
  return guarded([] {
    unit_memory();  // if the plugin adds no memory, logs the reason when slurmctld starts
    return SLURM_SUCCESS;
  });
}

int fini() { return SLURM_SUCCESS; }

int job_submit(job_desc_msg_t* message, std::uint32_t, char** user_message) {
  return guarded([&] { return submit(*message, user_message); });
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
int job_modify(job_desc_msg_t* message, job_record* job, std::uint32_t, char** user_message) {
  return guarded([&] { return modify(*message, job, user_message); });
}
#else
int job_modify(job_desc_msg_t* message, job_record* job, std::uint32_t) {
  return guarded([&] { return modify(*message, job, nullptr); });
}
#endif
}
#pragma GCC visibility pop
