// SPDX-License-Identifier: Apache-2.0
#include "spank/registration.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>

#include "protocol/ask.h"
#include "spank/gang.h"
#include "spank/job_class.h"
#include "spank/job_nodes.h"
#include "spank/plugin.h"
#include "spank/unit_types.h"

namespace sharedgpu {
namespace {

using Clock = std::chrono::steady_clock;

// The wait is short, because Slurm treats a node as failed if a step does not start in time.
constexpr Nanoseconds kMostWait = std::chrono::seconds(5);

// Registers the gang if the job has several nodes, even if the step runs on a subset of them. Returns true if
// the arbiter has accepted the gang.
bool tell_of_gang(spank_t spank, const SlurmStep& step, const Settings& settings, Nanoseconds patience) {
  const std::optional<JobNodes> nodes =
      job_nodes(step.name.job, [spank](const char* name) { return get_variable(spank, name); });
  if (!nodes || nodes->count < 2) return false;
  RegisterGang gang = {.job = step.name.job, .uid = step.uid, .nodes = nodes->count};
  nodes->first.copy(gang.coordinator, sizeof gang.coordinator - 1);
  const std::string problem = register_gang(settings.socket.c_str(), gang, patience);
  if (!problem.empty())
    log_error(
        "cannot register the job's nodes with the arbiter (its turns on this node are not coordinated with "
        "those on its other nodes): " +
        problem);
  return problem.empty();
}

RegisterReply register_job(spank_t spank, const SlurmStep& step, const Settings& settings, bool in_gang,
                           Nanoseconds patience) {
  RegisterJob request{.step = step.name,
                      .uid = step.uid,
                      .options = given_options().job,
                      .devices = step.devices,
                      .whole = step.whole.value_or(DeviceSet{}),
                      .job_class = read_job_class(settings, step.name.job),
                      .gang = in_gang,
                      .brought = memory_of_units(step.types, settings),
                      .element = array_element_of(spank)};
  request.options.units = step.units;
  Message answer;
  int error = ask(settings.socket.c_str(), Message::of(request), patience, answer);
  std::string problem;
  if (error != 0)
    problem = settings.socket + ": " + std::strerror(error);
  else if (answer.type == MessageType::refused)
    problem = answer.as<Refused>().reason;
  else if (answer.type != MessageType::register_reply || answer.as<RegisterReply>().accepted == 0)
    problem = "refused";
  if (!problem.empty())
    log_error(
        "cannot register this step's units and options with the arbiter (the job goes on without them): " +
        problem);
  return problem.empty() ? answer.as<RegisterReply>() : RegisterReply{};
}

}  // namespace

RegisterReply register_step(spank_t spank, const SlurmStep& step, const Settings& settings) {
  const Clock::time_point end = Clock::now() + std::min(settings.arbiter_timeout, kMostWait);
  const bool in_gang = tell_of_gang(spank, step, settings, end - Clock::now());
  return register_job(spank, step, settings, in_gang, end - Clock::now());
}

}  // namespace sharedgpu
