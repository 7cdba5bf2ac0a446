#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The options that the SPANK plugin adds to srun, sbatch and salloc.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

@test "README and docs/usage.md show what srun --help prints" {
  root=$BATS_TEST_DIRNAME/../..
  for page in README.md docs/usage.md; do
    diff -B <(srun --help | sed -n '/^Options provided by plugins:$/,/^[A-NP-Z]/p' | grep -v '^[A-NP-Z]') \
      <("$root/scripts/documented" "$root/$page" '`srun --help`')
  done
}

# refused OPTION=VALUE: succeeds if each command refuses the option, and states the option and the value in its message.
refused() {
  local option=${1%%=*} value=${1#*=}
  run sbatch --gres=sharedgpu:1 "$1" --wrap true
  [ "$status" -ne 0 ]
  [[ $output == *"$option: '$value' is not "* ]]
  run srun --gres=sharedgpu:1 "$1" true
  [ "$status" -ne 0 ]
  [[ $output == *"$option: '$value' is not "* ]]
  run salloc --gres=sharedgpu:1 "$1" true
  [ "$status" -ne 0 ]
  [[ $output == *"$option: '$value' is not "* ]]
}

@test "srun, sbatch and salloc show the options in --help" {
  for command in srun sbatch salloc; do
    run -0 $command --help
    for option in memory share priority deadline backend; do [[ $output == *"--sharedgpu-$option="* ]]; done
  done
}

@test "a bad memory size is refused at submission" {
  refused --sharedgpu-memory=many
  refused --sharedgpu-memory=12
  refused --sharedgpu-memory=-1GiB
}

@test "a bad share is refused at submission" {
  refused --sharedgpu-share=101
  refused --sharedgpu-share=50:25
}

@test "a bad priority is refused at submission" { refused --sharedgpu-priority=urgent; }

@test "a bad deadline is refused at submission" { refused --sharedgpu-deadline=tomorrow; }

@test "an unknown backend is refused at submission" { refused --sharedgpu-backend=magic; }

# of_each ARGUMENT...: prints the stderr of sbatch, srun and salloc with these arguments. All jobs run.
of_each() {
  sbatch --wait -o /dev/null "$@" --wrap true 2>&1 >/dev/null
  srun "$@" true 2>&1 >/dev/null
  salloc "$@" true 2>&1 >/dev/null
}
# told LINE ARGUMENT...: succeeds if each command prints LINE once.
told() {
  local all
  all=$(of_each "${@:2}" | grep sharedgpu)
  [ "$all" = "$(printf '%s\n' {sbatch,srun,salloc}": sharedgpu: $1")" ] || { echo "$all"; return 1; }
}
silent() { ! of_each "$@" | grep "sharedgpu:"; }

@test "an option that has no effect is named at submission, with the reason, and the job runs" {
  told "--sharedgpu-share=25:50 has no effect here: shares count under Policy=elastic or deadline, not under round-robin" \
    --gres=sharedgpu:1 --sharedgpu-share=25:50
  told "--sharedgpu-deadline=33ms has no effect here: deadlines count under Policy=deadline, not under round-robin" \
    --gres=sharedgpu:1 --sharedgpu-deadline=33ms
  told "--sharedgpu-memory=64MiB has no effect: the job requests no units (--gres=sharedgpu:1)" --sharedgpu-memory=64MiB
  silent --gres=sharedgpu:1 --sharedgpu-memory=64MiB --sharedgpu-backend=swap
  silent --quiet --sharedgpu-memory=64MiB
}

@test "units are found however a job requests them" {
  printf '%s\n' '#!/bin/bash' '#SBATCH --gres=sharedgpu:1' '#SBATCH --sharedgpu-memory=64MiB' true >"$dir/jobs/script"
  run -0 --separate-stderr sbatch -o /dev/null "$dir/jobs/script"
  [ -z "$stderr" ]
  SBATCH_GRES=sharedgpu:1 run -0 --separate-stderr sbatch -o /dev/null --sharedgpu-memory=64MiB --wrap true
  [ -z "$stderr" ]
  # A step has the units of its job, but srun does not know how many units the job has.
  run -0 salloc --gres=sharedgpu:1 srun --sharedgpu-memory=64MiB true
  [[ $output != *"has no effect"* ]]
  run -0 salloc --gres=sharedgpu:1 srun --gres=none --sharedgpu-memory=64MiB true
  [[ $output == *"srun: sharedgpu: --sharedgpu-memory=64MiB has no effect"* ]]
  run -0 srun --gres=sharedgpu:1 --sharedgpu-memory=64MiB true : -n 1 true
  [[ $output != *"has no effect"* ]]
  srun --help | grep -q -- --tres-per-task || return 0
  run -0 srun -n 1 --tres-per-task=gres/sharedgpu:1 --sharedgpu-memory=64MiB true
  [[ $output != *"has no effect"* ]]
}

@test "a step is told only of its own options" {
  job=$(submit --gres=sharedgpu:1 --sharedgpu-share=25 -- bash -c 'srun true; srun --sharedgpu-share=30 --sharedgpu-backend=native true')
  expect_state "$job" COMPLETED
  [ "$(grep -c "has no effect" "$dir/jobs/$job")" = 2 ]
  output_has "$job" "srun: sharedgpu: --sharedgpu-share=30 has no effect here"
  output_has "$job" "--sharedgpu-backend=native has no effect: all processes of a batch job have the backend that sbatch states"
}

@test "options are checked at submission by the sharedgpu.conf of the submitting host, with the sections of the job's partition and QOS" {
  conf=$dir/etc/sharedgpu.conf
  cp "$conf" "$conf.before"
  held() { sbatch --hold -o /dev/null --gres=sharedgpu:1 "$@" --wrap true 2>&1 >/dev/null; }
  printf '%s\n' Policy=priority MaxPriority=10 MaxRequest=50% '[qos urgent]' MaxPriority=100 '[partition other]' Policy=elastic >>"$conf"
  [ "$(held --sharedgpu-priority=50 --qos=normal)" = "sbatch: sharedgpu: --sharedgpu-priority=50 is above MaxPriority=10: it counts as 10" ]
  [ -z "$(held --sharedgpu-priority=50)" ] # no message, since the job may have the QOS urgent
  [ -z "$(held --sharedgpu-priority=10 --qos=normal)" ]
  [ "$(held --sharedgpu-share=25 -p main)" = \
    "sbatch: sharedgpu: --sharedgpu-share=25 has no effect here: shares count under Policy=elastic or deadline, not under priority" ]
  [ "$(held --sharedgpu-share=80)" = "sbatch: sharedgpu: --sharedgpu-share=80 requests more than MaxRequest=50%: it counts as 50" ]
  # Tests a login node with an error in sharedgpu.conf, and a login node without sharedgpu.conf.
  echo Policy=none >>"$conf"
  [ -z "$(held --sharedgpu-deadline=1s)" ]
  rm "$conf"
  [ -z "$(held --sharedgpu-deadline=1s)" ]
  mv "$conf.before" "$conf"
  [ -n "$(held --sharedgpu-deadline=1s)" ]
}

@test "a job with valid values of all options ends right" {
  job=$(submit --gres=sharedgpu:1 --sharedgpu-memory=192MiB --sharedgpu-share=25:50 --sharedgpu-priority=5 \
    --sharedgpu-deadline=1h --sharedgpu-backend=swap -- $hold 50% --seconds 1)
  expect_state "$job" COMPLETED
  output_has "$job" "$verified"
}

@test "a job gets out of memory beyond its own cap" {
  job=$(submit --gres=sharedgpu:1 --sharedgpu-memory=64MiB -- $hold 128MiB --seconds 1)
  expect_state "$job" FAILED
  output_has "$job" CUDA_ERROR_OUT_OF_MEMORY
}

@test "the cap applies in the steps of a batch job too" {
  job=$(submit --gres=sharedgpu:1 --sharedgpu-memory=64MiB -- srun $hold 128MiB --seconds 1)
  expect_state "$job" FAILED
  output_has "$job" CUDA_ERROR_OUT_OF_MEMORY
}

@test "an option without the GRES changes nothing" {
  run -0 srun --sharedgpu-memory=64MiB bash -c 'echo "preload=[$LD_PRELOAD]"'
  [[ $output == *"preload=[]"* ]]
}

# status_is JOB KEY NUMBER: succeeds if the job's entry in the status has this number.
status_is() {
  sharedgpu status --json |
    jq -e --argjson job "$1" --arg key "$2" --argjson number "$3" \
      '.tenants[] | select(.job == $job and .[$key] == $number)' >/dev/null
}

@test "a job has the priority that it states" {
  job=$(submit --gres=sharedgpu:1 --sharedgpu-priority=-5 -- $hold 50% --seconds 600)
  wait_until 60 status_is "$job" priority -5
  scancel "$job"
}

@test "a task reports its deadlines by a pipe, and a step without a deadline has no pipe" {
  job=$(submit --gres=sharedgpu:1 --sharedgpu-deadline=10s -- \
    srun "$dir/programs/paced" --pieces 5 --deadline-ms 10000 --stay 600)
  wait_until 60 status_is "$job" deadlines_met 5
  scancel "$job"
  job=$(submit --gres=sharedgpu:1 --sharedgpu-deadline=10s -- \
    "$dir/programs/paced" --pieces 7 --deadline-ms 10000 --stay 600)
  wait_until 60 status_is "$job" deadlines_met 7
  scancel "$job"
  run -0 env SHAREDGPU_DEADLINE=1 SHAREDGPU_DEADLINE_FD=2 srun --gres=sharedgpu:1 bash -c 'echo "[${!SHAREDGPU_DEADLINE*}]"'
  [[ $output == *"[]"* ]]
}

# status_of JOB FILTER: succeeds if the jq filter is true for the job's entry in the status.
status_of() { sharedgpu status --json | jq -e --argjson job "$1" ".tenants[] | select(.job == \$job) | $2" >/dev/null; }
policy_is() { sharedgpu status --json | jq -e --arg policy "$1" '.gpus[0].policy == $policy' >/dev/null; }
renew_arbiter() {
  local old
  old=$(arbiter_pid)
  kill -9 "$old"
  wait_until 30 another_arbiter "$old"
  wait_until 30 "$@"
}

@test "a job's partition and QOS determine its settings, and the job's environment does not" {
  cp "$dir/etc/sharedgpu.conf" "$dir/etc/sharedgpu.conf.before"
  printf '%s\n' MaxPriority=10 '[qos urgent]' Priority=100 '[partition extra]' MaxPriority=0 Policy=fcfs >>"$dir/etc/sharedgpu.conf"
  sacctmgr -i add qos urgent >/dev/null
  scontrol create PartitionName=extra Nodes=ALL
  renew_arbiter policy_is round-robin
  # The SPANK plugin gets partition and QOS from the prolog.
  one=$(submit --partition=extra --qos=urgent --gres=sharedgpu:1 --sharedgpu-priority=7 \
    --export=ALL,SLURM_JOB_QOS=normal,SLURM_JOB_PARTITION=main -- $hold 10% --seconds 600)
  wait_until 60 status_of "$one" '.partition == "extra" and .qos == "urgent" and .priority == 100'
  wait_until 20 policy_is fcfs
  renew_arbiter status_of "$one" '.qos == "urgent" and .priority == 100'
  wait_until 20 policy_is fcfs
  [ -e "$dir/run/jobs/$one" ]
  touch -d "40 days ago" "$dir/run/jobs/999999" # the file of a job that has ended without an epilog, since its slurmd
                                                # was killed
  two=$(submit --partition=main --gres=sharedgpu:1 --sharedgpu-priority=7 \
    --export=ALL,SLURM_JOB_QOS=urgent,SLURM_JOB_PARTITION=extra -- $hold 10% --seconds 600)
  wait_until 60 status_of "$two" '.partition == "main" and .qos != "urgent" and .priority == 7'
  wait_until 20 policy_is round-robin
  scancel "$two"
  wait_until 20 policy_is fcfs
  sharedgpu set qos=urgent priority=9
  status_of "$one" '.priority == 9'
  scancel "$one"
  wait_until 20 policy_is round-robin
  wait_until 20 no_jobs
  [ ! -e "$dir/run/jobs/$one" ] && [ ! -e "$dir/run/jobs/$two" ] && [ ! -e "$dir/run/jobs/999999" ]
  scontrol delete PartitionName=extra
  sacctmgr -i delete qos urgent >/dev/null
  mv "$dir/etc/sharedgpu.conf.before" "$dir/etc/sharedgpu.conf"
  renew_arbiter policy_is round-robin
}

# A stand-in replaces the MPS daemon, since this test only checks the variables of the steps.
@test "steps with units get the variables of the MPS daemon and of their threads, and others do not" {
  cp "$BATS_TEST_DIRNAME/../stand_ins/nvidia-cuda-mps-control" "$dir/prefix/bin/"
  cp "$dir/etc/sharedgpu.conf" "$dir/etc/sharedgpu.conf.before"
  echo Mps=yes >>"$dir/etc/sharedgpu.conf"
  told() { srun "$@" env | grep ^CUDA_MPS_ | sort | tr '\n' ' '; }
  told_is() { [[ $(told "${@:2}") == "${1:+CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$1 CUDA_MPS_PIPE_DIRECTORY=$dir/run/mps }" ]]; }
  renew_arbiter test -p "$dir/run/mps/control"
  wait_until 20 told_is 100 --gres=sharedgpu:1
  told_is 30 --gres=sharedgpu:1 --sharedgpu-share=10:30
  told_is ""
  job=$(submit --gres=sharedgpu:1 -- bash -c 'env | grep ^CUDA_MPS_; echo; srun --gres=none env | grep ^CUDA_MPS_; echo end')
  expect_state "$job" COMPLETED
  [ "$(output "$job" | grep -c ^CUDA_MPS_)" = 2 ]
  mv "$dir/etc/sharedgpu.conf.before" "$dir/etc/sharedgpu.conf"
  renew_arbiter policy_is round-robin
  kill -9 "$(<"$dir/run/mps/nvidia-cuda-mps-control.pid")"
  rm -r "$dir/run/mps" "$dir/prefix/bin/nvidia-cuda-mps-control"
}
