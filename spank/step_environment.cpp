// SPDX-License-Identifier: Apache-2.0
#include "spank/step_environment.h"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "protocol/deadline_pipe.h"
#include "protocol/environment.h"
#include "protocol/gpu_names.h"
#include "protocol/preload.h"
#include "protocol/split.h"
#include "protocol/step_names.h"
#include "slurm_shared/offer.h"
#include "slurm_shared/siblings.h"
#include "spank/plugin.h"

namespace sharedgpu {
namespace {

constexpr char kPreload[] = "LD_PRELOAD";
constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
constexpr char kMpsFolder[] = "CUDA_MPS_PIPE_DIRECTORY";
constexpr std::uint32_t kNoValue = 0xfffffffe;  // NO_VAL of slurm.h
constexpr char kMpsThreads[] = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

std::string shown;  // the step's GPUs, if the step holds shared GPUs and whole GPUs of gres/gpu; otherwise
                    // empty
// A message for the job's stderr. The first task writes it before its program starts.
std::string notice;

void set_variable(spank_t spank, const char* name, const std::string& value) {
  if (spank_err_t error = spank_setenv(spank, name, value.c_str(), 1); error != ESPANK_SUCCESS)
    log_error(std::string(name) + " cannot be set: " + spank_strerror(error));
}

// Returns the number of the step's units, from SHAREDGPU_UNITS. If the GRES plugin is loaded, it has set or
// removed this variable. If it is not loaded, the value comes from the user and is not trusted.
std::uint32_t read_units(spank_t spank) {
  std::string text = get_variable(spank, environment::kUnits);
  if (text.empty()) return 0;
  if (sibling_function("gres_sharedgpu.so", "gres_p_step_set_env") == nullptr) {
    log_error(std::string(environment::kUnits) +
              " is set, but gres_sharedgpu.so is not loaded; this step runs without GPU sharing");
    return 0;
  }
  return static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10));
}

// Returns the GPUs that the step holds through gres/gpu, from SLURM_JOB_GPUS or SLURM_STEP_GPUS. If gres/gpu
// is loaded, it has set or removed these variables. If it is not loaded, the result is empty, whatever the
// variables contain. Returns nullopt if the minor number of a GPU is unknown, or above 63.
std::optional<DeviceSet> read_whole(spank_t spank, std::uint32_t step) {
  const bool of_job = step == kBatchStep || step == kInteractiveStep;
  const std::string text = get_variable(spank, of_job ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS");
  auto* find = reinterpret_cast<SharedGpuWholeGpuFunction*>(
      sibling_function("gres_sharedgpu.so", "sharedgpu_whole_gpu"));
  DeviceSet whole;
  for (std::string_view word : split(text, ',')) {
    int index = 0;
    int minor = 0;
    const bool is_number = std::from_chars(word.data(), word.data() + word.size(), index).ec == std::errc{};
    if (find == nullptr || !is_number || !find(index, &minor)) continue;
    if (minor < 0 || minor > 63) return std::nullopt;
    whole.bits |= std::uint64_t{1} << minor;
  }
  return whole;
}

// Access to the variables of an environment: a step's environment, or the environment of this process.
struct Variables {
  std::function<std::string(const char*)> get;  // empty: not set
  std::function<void(const char*, const std::string&)> set;
  std::function<void(const char*)> unset;
};

// Removes the interposer and its variables, if the interposer is in LD_PRELOAD. A job that a batch step
// submits inherits the batch step's environment. So do the steps of this job, even steps without units.
void remove_ours(const Variables& variables) {
  const std::string library = interposer_path();
  std::string preload = variables.get(kPreload);
  if (!has_preload(preload, library)) return;
  preload = without_preload(preload, library);
  if (preload.empty())
    variables.unset(kPreload);
  else
    variables.set(kPreload, preload);
  if (variables.get(kMpsFolder) == mps_folder(variables.get(environment::kSocket)))
    for (const char* name : {kMpsFolder, kMpsThreads}) variables.unset(name);
  for (const char* name : {environment::kSocket, environment::kArbiterTimeout, environment::kOnNoArbiter})
    variables.unset(name);
}

// Removes the variables that name the GPUs of another step: this step inherited them from the step that
// started it, perhaps on another node.
void remove_leaked_gpus(spank_t spank) {
  const std::string gpus = get_variable(spank, environment::kGpus);
  if (!gpus.empty() && get_variable(spank, kVisible) == gpus) spank_unsetenv(spank, kVisible);
  spank_unsetenv(spank, environment::kGpus);
}

// Removes the request for units that qsub (etc/slurm-torque) passed in sbatch's environment. The request is
// for this job, not for jobs that this job submits.
void remove_request(spank_t spank) {
  const std::string request = get_variable(spank, environment::kQsubGres);
  if (request.empty()) return;
  for (const char* name : {"SBATCH_GRES", "SALLOC_GRES"})
    if (get_variable(spank, name) == request) spank_unsetenv(spank, name);
  spank_unsetenv(spank, environment::kQsubGres);
}

void show(spank_t spank, const std::string& gpus) {
  set_variable(spank, kVisible, gpus);
  set_variable(spank, environment::kGpus, gpus);
}

// Shows the step as many GPUs as it requested: the first GPUs that it may open. With ConstrainDevices=yes,
// these are GPUs of its units. A step that also holds whole GPUs sees only its whole GPUs: gres/gpu has set
// the variable.
void show_unplaced(spank_t spank, const SlurmStep& step) {
  if (!step.whole || !step.whole->empty()) return;
  std::string numbers = "0";
  for (std::uint32_t i = 1; i < given_options().job.gpus; ++i) numbers += "," + std::to_string(i);
  show(spank, numbers);
}

void set_threads(spank_t spank, const Settings& settings, std::uint32_t percent) {
  if (percent == 0) return;
  set_variable(spank, kMpsFolder, mps_folder(settings.socket));
  set_variable(spank, kMpsThreads, std::to_string(percent));
}

// Each task has its own pipe, which the task's children inherit.
void make_deadline_pipe(spank_t spank, Nanoseconds deadline) {
  const auto set = [spank](const char* name, const std::string& value) { set_variable(spank, name, value); };
  if (int error = sharedgpu::make_deadline_pipe(deadline, set))
    log_error(std::string("cannot create the pipe for deadline lines: ") + std::strerror(error));
}

}  // namespace

std::string get_variable(spank_t spank, const char* name) {
  std::vector<char> buffer(4096);
  for (;;) {
    spank_err_t error = spank_getenv(spank, name, buffer.data(), static_cast<int>(buffer.size()));
    if (error == ESPANK_SUCCESS) return buffer.data();
    if (error != ESPANK_NOSPACE || buffer.size() >= (1u << 20)) return {};
    buffer.resize(buffer.size() * 2);
  }
}

SlurmStep read_step(spank_t spank) {
  SlurmStep step;
  uid_t uid = 0;
  spank_get_item(spank, S_JOB_ID, &step.name.job);
  spank_get_item(spank, S_JOB_STEPID, &step.name.step);
  spank_get_item(spank, S_JOB_UID, &uid);
  step.uid = uid;
  step.units = read_units(spank);
  if (step.units == 0) return step;
  step.types = get_variable(spank, environment::kUnitTypes);
  step.devices = parse_devices(get_variable(spank, environment::kDevices));
  step.whole = read_whole(spank, step.name.step);
  return step;
}

// If the job is not an element of an array, Slurm returns zero as the array, and NO_VAL as the index.
ArrayElement array_element_of(spank_t spank) {
  ArrayElement element;
  if (spank_get_item(spank, S_JOB_ARRAY_ID, &element.array) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &element.index) != ESPANK_SUCCESS || element.array == 0 ||
      element.index >= kNoValue)
    return {};
  return element;
}

void remove_inherited() {
  remove_ours({.get =
                   [](const char* name) {
                     const char* value = std::getenv(name);
                     return std::string(value == nullptr ? "" : value);
                   },
               .set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); },
               .unset = [](const char* name) { unsetenv(name); }});
}

void remove_leaked(spank_t spank, bool has_units) {
  remove_request(spank);
  remove_leaked_gpus(spank);
  for (const char* name : kDeadlineVariables) spank_unsetenv(spank, name);
  if (has_units) return;
  remove_ours(
      {.get = [spank](const char* name) { return get_variable(spank, name); },
       .set = [spank](const char* name, const std::string& value) { set_variable(spank, name, value); },
       .unset = [spank](const char* name) { spank_unsetenv(spank, name); }});
  spank_unsetenv(spank, environment::kJobOfSrun);
}

void set_environment(spank_t spank, const Settings& settings) {
  using std::chrono::milliseconds;
  set_variable(spank, kPreload, with_preload(get_variable(spank, kPreload), interposer_path()));
  set_variable(spank, environment::kSocket, settings.socket);
  set_variable(spank, environment::kArbiterTimeout,
               std::to_string(std::chrono::duration_cast<milliseconds>(settings.arbiter_timeout).count()));
  set_variable(spank, environment::kOnNoArbiter,
               settings.on_no_arbiter == OnNoArbiter::fail ? "fail" : "plain");
}

void show_without_arbiter(spank_t spank, const SlurmStep& step, const Settings& settings) {
  if (settings.on_no_arbiter == OnNoArbiter::plain) return show_unplaced(spank, step);
  notice =
      "sharedgpu: this step cannot use the arbiter (slurmd's log says why); it sees no shared GPU because of "
      "OnNoArbiter=fail\n";
  if (step.whole && step.whole->empty()) show(spank, "none");
}

// Sets CUDA_VISIBLE_DEVICES to the GPUs of the arbiter's reply. This replaces a value of the user, which was
// meant for another host. GPUs that the step holds through gres/gpu come first.
void show_gpus(spank_t spank, const SlurmStep& step, const Settings& settings, const RegisterReply& reply) {
  set_threads(spank, settings, reply.threads);
  if (reply.gpus.count == 0) return show_unplaced(spank, step);
  if (!step.whole || reply.whole != step.whole->count()) {
    log_error(std::string(kVisible) + " stays as gres/gpu set it, without the shared GPU (" +
              format_gpus(reply.gpus) + "): the arbiter does not know all GPUs that the step holds");
    return;
  }
  show(spank, format_gpus(reply.gpus));
  if (reply.whole > 0) shown = format_gpus(reply.gpus);
  GpuList shared = reply.gpus;
  shared.count -= reply.whole;
  const std::string problem = shortfall(shared, given_options().job.gpus);
  if (problem.empty()) return;
  notice = "sharedgpu: --sharedgpu-gpus=" + std::to_string(given_options().job.gpus) + ": " + problem + "\n";
  log_error(notice);
}

void set_task_environment(spank_t spank, Nanoseconds deadline, const std::string& line) {
  // If gres/gpu has bound the task to some GPUs, it has set CUDA_VISIBLE_DEVICES to indices. Such an index is
  // a number among the GPUs that the task may open, or among the host's GPUs, but never among the GPUs in
  // `shown`.
  if (!shown.empty() && get_variable(spank, kVisible) != shown) spank_unsetenv(spank, environment::kGpus);
  if (deadline > Nanoseconds{}) make_deadline_pipe(spank, deadline);
  notice += line;
  int task = 0;
  if (notice.empty() || spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS || task != 0) return;
  if (write(STDERR_FILENO, notice.data(), notice.size()) < 0) return;  // stderr is closed
}

}  // namespace sharedgpu
