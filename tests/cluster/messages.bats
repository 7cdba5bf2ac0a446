#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Messages of sharedgpu to the users of jobs, and the names of jobs in the status.

bats_require_minimum_version 1.5.0
load lib/jobs

setup() { cluster_setup; }
teardown() {
  cluster_teardown
  if grep -q ^PrivateData= "$dir/etc/slurm.conf"; then
    sed -i /^PrivateData=/d "$dir/etc/slurm.conf"
    another_answer
  fi
}

# Makes Slurm read its configuration again, and restarts the arbiter, so that the arbiter asks Slurm again.
another_answer() {
  scontrol reconfigure
  wait_until 20 scontrol ping >/dev/null
  local old
  old=$(arbiter_pid)
  kill -9 "$old"
  wait_until 20 another_arbiter "$old"
}

# summaries FILE: prints the number of lines about the use of the GPU.
summaries() { grep -c "^sharedgpu: job .* with the GPU, .* waiting for it; moved " "$dir/jobs/$1" || true; }
used() { echo "^sharedgpu: job $1: [0-9.]+ s with the GPU, [0-9.]+ s waiting for it; moved 0 B to host memory, 0 B back$"; }

@test "a batch job ends with one line about all its steps, and only if that is asked for" {
  printf '%s\n' '#!/bin/bash' "srun $hold 20% --seconds 1" "srun $hold 20% --seconds 1" >script
  job=$(sbatch --parsable -o "$dir/jobs/%j" --gres=sharedgpu:1 --sharedgpu-summary=yes script)
  expect_state "$job" COMPLETED
  [ "$(summaries "$job")" = 1 ]
  tail -n 1 "$dir/jobs/$job" | grep -E "$(used "$job")"
  run ! grep -F ": 0.0 s with the GPU" <(tail -n 1 "$dir/jobs/$job")
  job=$(submit --gres=sharedgpu:1 -- $hold 20% --seconds 1)
  expect_state "$job" COMPLETED
  [ "$(summaries "$job")" = 0 ]
}

@test "the step of an srun that creates its own job ends with the same line, once for all its tasks" {
  run -0 --separate-stderr srun -n 2 --gres=sharedgpu:1 --sharedgpu-summary=yes \
    bash -c '[[ -z ${SHAREDGPU_JOB_OF_SRUN-} ]] && echo "job $SLURM_JOB_ID"'
  [ "$(grep -c "with the GPU" <<<"$stderr")" = 1 ]
  grep -E "$(used "[0-9]+")" <<<"$stderr"
  run -0 --separate-stderr salloc -Q --gres=sharedgpu:1 --sharedgpu-summary=yes srun true
  [[ $stderr != *"with the GPU"* && $stderr != *"has no effect"* ]]
  run -0 --separate-stderr salloc --gres=sharedgpu:1 --sharedgpu-summary=yes true
  (($(grep -cF -- "--sharedgpu-summary=yes has no effect: in a salloc, only an interactive step" <<<"$stderr") == 1))
  run -0 --separate-stderr srun --gres=sharedgpu:1 --sharedgpu-summary=yes true
  [[ $stderr != *"has no effect"* ]]
  id=$(sbatch --parsable --wait --gres=sharedgpu:1 --sharedgpu-summary=yes -o /dev/null --wrap true 2>"$dir/jobs/sbatch.err")
  [[ -n $id ]] && ! grep -qF "has no effect" "$dir/jobs/sbatch.err"
}

@test "the elements of an array are named as users know them" {
  array=$(sbatch --parsable -o "$dir/jobs/%a" --array=1-2 --gres=sharedgpu:1 --sharedgpu-summary=yes \
    --wrap "$hold 20% --seconds 600")
  shown() { sharedgpu status --json | jq -e --argjson array "$array" --argjson index "$1" \
    '.tenants[] | select(.array_job == $array and .array_index == $index)' >/dev/null; }
  wait_until 60 shown 1
  wait_until 60 shown 2
  scancel --signal=TERM "$array"
  scancel "$array"
  wait_until 60 no_jobs
  not_shown() { ! shown 1 && ! shown 2; }
  wait_until 60 not_shown # the elements have ended, so the status does not show them
}

@test "a job that exceeds its own limit is told so once, with the option and the value that would suffice" {
  job=$(submit -n 2 --gres=sharedgpu:1 --sharedgpu-memory=64MiB -- srun $hold 128MiB --seconds 1)
  expect_state "$job" FAILED
  [ "$(grep -c "this job limits itself to 64 MiB; request --sharedgpu-memory=" "$dir/jobs/$job")" = 1 ]
  job=$(submit --gres=sharedgpu:1 --sharedgpu-memory=64MiB --sharedgpu-backend=native -- $hold 128MiB --seconds 1)
  expect_state "$job" FAILED
  [ "$(grep -c "this job limits itself to 64 MiB; request --sharedgpu-memory=" "$dir/jobs/$job")" = 1 ]
}

@test "users see each other's jobs where PrivateData of Slurm does not hide them" {
  job=$(submit --gres=sharedgpu:1 -- $hold 20% --seconds 600)
  seen() { as_nobody sharedgpu status --json | jq -e --argjson job "$job" '.tenants[] | select(.job == $job)' >/dev/null; }
  wait_until 60 seen
}

@test "users see counts instead of each other's jobs where PrivateData of Slurm hides them" {
  job=$(submit --gres=sharedgpu:1 -- $hold 20% --seconds 600)
  sees() { jq -e --argjson job "$job" '.tenants[] | select(.job == $job)' >/dev/null; }
  seen_by_root() { sharedgpu status --json | sees; }
  wait_until 60 seen_by_root
  echo PrivateData=jobs,usage >>"$dir/etc/slurm.conf"
  another_answer
  wait_until 60 seen_by_root
  for _ in {1..20}; do
    status=$(as_nobody sharedgpu status --json)
    jq -e '.own_tenants_only and .tenants == []' <<<"$status"
    sleep 0.1
  done
  counted() { as_nobody sharedgpu status --json | jq -e '.gpus[0].hidden_tenants == 1'; }
  wait_until 20 counted
}
