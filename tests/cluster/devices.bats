#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# With ConstrainDevices=yes, only jobs that hold units can open the files of the GPUs of these units.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/gpus
setup() { gpus_setup; }
teardown() { gpus_teardown; }

# opens SRUN_ARGUMENTS... -- OUTPUT: succeeds if the probe prints OUTPUT in a step and in a batch script with these
# arguments.
opens() {
  local options=() job
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  run -0 --separate-stderr srun "${options[@]}" "$dir/probe"
  [ "$output" = "$2" ]
  job=$(submit "${options[@]}" -- "$dir/probe")
  expect_state "$job" COMPLETED
  [ "$(output "$job")" = "$2" ]
}

@test "a job without units opens no GPU" {
  opens -w "$typed" -- "ctl units="
  opens -w "$mixed" -- "ctl units="
}

@test "a job with units opens the GPUs of their type" {
  opens -w "$typed" --gres=sharedgpu:h200:1 -- "0 ctl units=1"
  opens -w "$typed" --gres=sharedgpu:a100:8 -- "1 ctl units=8"
  opens -w "$typed" --gres=sharedgpu:h200:1,sharedgpu:a100:1 -- "0 1 ctl units=2"
}

@test "jobs with sharedgpu and jobs with gpu each open their own GPUs" {
  opens -w "$mixed" --gres=sharedgpu:1 -- "0 1 ctl units=1"
  opens -w "$mixed" --gres=gpu:1 -- "2 ctl units="
  opens -w "$mixed" --gres=gpu:2,sharedgpu:16 -- "0 1 2 3 ctl units=16"
}

@test "jobs that run at the same time open their own GPUs" {
  first=$(submit -w "$mixed" --gres=sharedgpu:15 -- sh -c "sleep 2; $dir/probe")
  second=$(submit -w "$mixed" --gres=sharedgpu:1 -- sh -c "sleep 2; $dir/probe")
  third=$(submit -w "$mixed" --gres=gpu:1 -- sh -c "sleep 2; $dir/probe")
  fourth=$(submit -w "$mixed" -- sh -c "sleep 2; $dir/probe")
  for job in "$first" "$second" "$third" "$fourth"; do expect_state "$job" COMPLETED; done
  [ "$(output "$first")" = "0 1 ctl units=15" ]
  [ "$(output "$second")" = "0 1 ctl units=1" ]
  [ "$(output "$third")" = "2 ctl units=" ]
  [ "$(output "$fourth")" = "ctl units=" ]
}

@test "a step with --gres=none opens no GPU" {
  job=$(submit -w "$mixed" --gres=sharedgpu:2 -- srun --gres=none "$dir/probe")
  expect_state "$job" COMPLETED
  [ "$(output "$job")" = "ctl units=" ]
}

# Prints the control group of a job's extern step, into which pam_slurm_adopt puts a login.
extern_group() {
  local group
  for group in /sys/fs/cgroup/devices/slurm_"$1"/uid_*/job_"$2"/step_extern /sys/fs/cgroup/system.slice/"$1"_slurmstepd.scope/job_*"$2"/step_extern; do
    if [[ -d $group ]]; then echo "$group"; fi
  done
}

# probe_extern JOB: prints the files that a process in the job's extern step can open on the typed node.
probe_extern() {
  local group
  group=$(extern_group "$typed" "$1")
  [[ -e $group/user/task_special ]] && group=$group/user/task_special # with cgroup v2
  nsenter -m -r -t "$(<"$dir/run/slurmd1.pid")" bash -c 'echo $$ >"$1/cgroup.procs" && exec "$2"' bash "$group" "$dir/probe"
}

extern_opens() { [ "$(probe_extern "$1")" = "$2" ]; } # JOB WHAT

@test "a process that joins the extern step opens the job's GPUs" {
  with=$(submit -w "$typed" --gres=sharedgpu:a100:1 -- sleep 60)
  without=$(submit -w "$typed" -- sleep 60)
  wait_until 20 running_together "$with" "$without"
  # Waits, since Slurm restricts the control group of the extern step only while the job starts.
  wait_until 20 extern_opens "$with" "1 ctl units="
  wait_until 20 extern_opens "$without" "ctl units="
}

# sees SRUN_ARGUMENTS... -- NUMBERS: succeeds if a step and a batch script with these arguments see the GPUs with these
# numbers, in this order.
sees() {
  local options=() number names="" job
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  for number in $2; do
    names+=,$(sharedgpu status --json | jq -r --argjson number "$number" '.gpus[] | select(.number == $number).uuid')
  done
  run -0 --separate-stderr srun "${options[@]}" printenv CUDA_VISIBLE_DEVICES
  [ "$output" = "${names#,}" ]
  job=$(submit "${options[@]}" -- printenv CUDA_VISIBLE_DEVICES)
  expect_state "$job" COMPLETED
  [ "$(output "$job")" = "${names#,}" ]
}

@test "a job is placed on the GPUs of its units" {
  sees -w "$typed" --gres=sharedgpu:a100:1 -- 1
  sees -w "$typed" --gres=sharedgpu:h200:1 -- 0
  sees -w "$mixed" --gres=sharedgpu:2 --sharedgpu-gpus=2 -- "0 1"
  steps="srun -Q --gres=sharedgpu:a100:1 printenv CUDA_VISIBLE_DEVICES; srun -Q --gres=sharedgpu:h200:1 printenv CUDA_VISIBLE_DEVICES"
  job=$(submit -w "$typed" --gres=sharedgpu:h200:1,sharedgpu:a100:1 -- bash -c "$steps")
  expect_state "$job" COMPLETED
  [ "$(output "$job")" = "$(sharedgpu status --json | jq -r '.gpus | sort_by(.number) | .[1].uuid, .[0].uuid')" ]
}

@test "a job sees its exclusive GPUs first, then the shared ones" {
  sees -w "$mixed" --gres=gpu:1,sharedgpu:1 -- "2 0"
  sees -w "$mixed" --gres=gpu:2,sharedgpu:2 --sharedgpu-gpus=2 -- "2 3 0 1"
  # sharedgpu changes nothing for a job that holds no units.
  run -0 --separate-stderr srun -w "$mixed" --gres=gpu:2 printenv CUDA_VISIBLE_DEVICES
  [ "$output" = "0,1" ]
}
