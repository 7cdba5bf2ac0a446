#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests jobs that Slurm suspends: a suspended job evicts its GPU memory before Slurm freezes it, and other jobs get its
# lease and this memory.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

# tenant JOB EXPRESSION: prints the value of a Python expression over `t`, the job's entry in `sharedgpu status --json`.
tenant() {
  "$dir/prefix/bin/sharedgpu" status --config "$dir/etc/sharedgpu.conf" --json |
    python3 -c "import json, sys; print([$2 for t in json.load(sys.stdin)['tenants'] if t['job'] == $1][0])"
}
tenant_is() { [[ $(tenant "$1" "$2" 2>/dev/null) == "$3" ]]; }

# Suspends the job in its turn. Succeeds if the job evicted enough memory before Slurm froze it. Otherwise resumes the
# job: on a busy host, the two seconds that Slurm gives the job may be too short.
suspends() {
  wait_until 60 tenant_is "$1" '(t["state"], t["resident_bytes"] > 80 << 20)' "('running', True)"
  scontrol suspend "$1"
  wait_until 20 tenant_is "$1" '(t["stopped"], t["lease"])' '(True, False)'
  tenant_is "$1" 't["resident_bytes"] <= 60 << 20' True || { scontrol resume "$1" && false; }
}

# A job is suspended in its turn, another job that needs its memory runs to the end, and the first job continues.
suspended_while_another_runs() {
  local job=$1 other lease
  wait_until 120 suspends "$job"
  other=$(submit --gres=sharedgpu:1 -- $hold 75% --seconds 1)
  expect_state "$other" COMPLETED
  output_has "$other" "$verified"
  has_state "$job" SUSPENDED
  tenant_is "$job" '(t["stopped"], t["lease"])' '(True, False)'
  lease=$(tenant "$job" 't["lease_seconds"]')
  sleep 2
  tenant_is "$job" 't["lease_seconds"]' "$lease"
  scontrol resume "$job"
  expect_state "$job" COMPLETED 90
  output_has "$job" "$verified"
}

@test "a program that the batch script runs is suspended and resumed" {
  suspended_while_another_runs "$(submit --gres=sharedgpu:1 -- $hold 40% --seconds 10)"
}

@test "a program that srun runs, which SIGTSTP would stop at once, is suspended and resumed" {
  suspended_while_another_runs "$(submit --gres=sharedgpu:1 -- srun $hold 40% --seconds 10)"
}
