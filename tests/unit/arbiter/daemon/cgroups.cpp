// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/cgroups.h"

#include <catch2/catch.hpp>

#include "protocol/split.h"
#include "protocol/step_names.h"

namespace sharedgpu {
namespace {

using Step = std::optional<StepName>;

// Returns the step named by the first line of the text that contains a step's folder. If this line names the
// job by a SLUID, the job's number is 0.
Step step_of_cgroup(std::string_view text) {
  for (const std::string_view line : split(text, '\n'))
    if (const auto named = step_folder(line))
      return StepName{.job = named->job.value_or(0), .step = named->step};
  return std::nullopt;
}

TEST_CASE("The task is read from the cgroups of v1 and v2") {
  using Task = std::optional<std::uint32_t>;
  CHECK(task_of_cgroup("9:name=systemd:/\n4:memory:/slurm_node1/uid_1000/job_12/step_3/task_7\n") == Task(7));
  CHECK(task_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n") == Task(0));
  CHECK(task_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_special\n") == Task());
  CHECK(task_of_cgroup("0::/task_3/slurmstepd.scope/job_7/step_0\n") == Task());
  CHECK(task_of_cgroup("") == Task());
}

TEST_CASE("Steps by their cgroups") {
  CHECK(step_of_cgroup("9:name=systemd:/\n4:memory:/slurm_node1/uid_1000/job_12/step_3/task_0\n") ==
        Step(StepName{12, 3}));
  CHECK(step_of_cgroup("4:memory:/slurm/uid_0/job_12/step_batch/task_0\n") == Step(StepName{12, 0xfffffffb}));
  CHECK(step_of_cgroup("0::/system.slice/node1_slurmstepd.scope/job_7/step_0/user/task_0\n") ==
        Step(StepName{7, 0}));
  CHECK(step_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_extern/user") ==
        Step(StepName{7, 0xfffffffc}));
  CHECK(step_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_interactive/user\n") ==
        Step(StepName{7, 0xfffffffa}));
  CHECK(step_of_cgroup("0::/docker/abc/system.slice/slurmstepd.scope/job_7/step_1/user\n") ==
        Step(StepName{7, 1}));
}

TEST_CASE("Processes in no step") {
  for (const char* text :
       {"", "0::/\n", "0::/user.slice/user-1000.slice/session-1.scope\n", "garbage", ":::::", "0::",
        "0::/system.slice/slurmstepd.scope/system\n", "0::/system.slice/slurmstepd.scope/job_7\n",
        "0::/system.slice/slurmstepd.scope/job_7/step_\n", "0::/system.slice/slurmstepd.scope/job_x/step_0\n",
        "0::/system.slice/slurmstepd.scope/job_0/step_0\n",
        "0::/system.slice/slurmstepd.scope/job_99999999999/step_0\n"})
    CHECK_FALSE(step_of_cgroup(text));
}

TEST_CASE("A folder that a user can create does not make a process part of a job") {
  for (const char* text :
       {"0::/user.slice/user-1000.slice/user@1000.service/x_slurmstepd.scope/job_7/step_0\n",
        "0::/user.slice/user-1000.slice/slurm/uid_1000/job_7/step_0\n", "0::/job_7/step_0\n",
        "0::/machine.slice/job_7/step_0\n"})
    CHECK_FALSE(step_of_cgroup(text));
  // The first step folder in the path is the right one, since a job may create cgroups below its own cgroup.
  CHECK(
      step_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_0/user/slurmstepd.scope/job_8/step_0\n") ==
      Step(StepName{7, 0}));
}

TEST_CASE("A step's folder is known by its hierarchy and its path") {
  CHECK(
      step_folder("4:memory:/slurm_n1/uid_1000/job_12/step_3/task_0") ==
      StepFolder{.controllers = "memory", .path = "/slurm_n1/uid_1000/job_12/step_3", .job = 12, .step = 3});
  CHECK(step_folder("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0") ==
        StepFolder{
            .controllers = "", .path = "/system.slice/slurmstepd.scope/job_7/step_0", .job = 7, .step = 0});
  const std::string sluid = "/system.slice/n1_slurmstepd.scope/sAB12CD34EF56G/step_0";
  CHECK(step_folder("0::" + sluid + "/user") ==
        StepFolder{.controllers = "", .path = sluid, .job = {}, .step = 0});
  // The path of a cgroup outside of this process's cgroup namespace begins with "..".
  CHECK_FALSE(step_folder("0::/../system.slice/slurmstepd.scope/job_7/step_0"));
}

TEST_CASE("A component of a heterogeneous job") {
  CHECK(step_of_cgroup("4:memory:/slurm/uid_0/job_12/step_3+1/task_0\n") == Step(StepName{12, 3}));
  CHECK_FALSE(step_of_cgroup("4:memory:/slurm/uid_0/job_12/step_+1/task_0\n"));
}

TEST_CASE("Step names") {
  CHECK(format_step(0xfffffffb) == "batch");
  CHECK(format_step(12) == "12");
  CHECK(parse_step("batch") == std::optional<std::uint32_t>(0xfffffffb));
  CHECK_FALSE(parse_step("12x"));
}

}  // namespace
}  // namespace sharedgpu
