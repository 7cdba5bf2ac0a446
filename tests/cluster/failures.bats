#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The death of a process must not affect other jobs: in each test with two jobs, the other job ends with the right
# result.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

# tenant JOB FILTER: applies a jq filter to the job's entry in the status; prints nothing if there is no entry.
tenant() { sharedgpu status --json | jq -r --argjson job "$1" ".tenants[] | select(.job == \$job) | $2"; }
in_its_turn() { [[ $(tenant "$1" .state) == running ]]; }
waits() { [[ $(tenant "$1" .state) == out && $(tenant "$1" .wants) == true ]]; }
process_of() { tenant "$1" '.pids[0]'; }
has_nothing() { [[ -z $(tenant "$1" 'select(.lease or .footprint_bytes > 0)') ]]; }
in_handoff() { sharedgpu status --json | jq -e '[.tenants[].state] | any(. == "leaving" or . == "entering")' >/dev/null; }

two_jobs() {
  first=$(submit --gres=sharedgpu:1 -- $hold 75% --seconds "$1")
  second=$(submit --gres=sharedgpu:1 -- $hold 75% --seconds "$1")
  wait_until 20 running_together "$first" "$second"
}

ends_right() {
  expect_state "$1" COMPLETED
  output_has "$1" "$verified"
}

@test "kill -9 of a job in its turn: the other goes on, and nothing of the dead one is left" {
  two_jobs 6
  wait_until 20 waits "$second"
  wait_until 20 in_its_turn "$first"
  kill -9 "$(process_of "$first")"
  wait_until 5 has_nothing "$first"
  expect_state "$first" FAILED
  ends_right "$second"
}

@test "kill -9 of a waiting job: the other goes on" {
  two_jobs 6
  wait_until 20 waits "$second"
  kill -9 "$(process_of "$second")"
  wait_until 5 has_nothing "$second"
  ends_right "$first"
}

@test "scancel of a job in its turn: the other goes on" {
  two_jobs 6
  wait_until 20 in_its_turn "$first"
  scancel "$first"
  wait_until 10 has_nothing "$first"
  ends_right "$second"
}

@test "kill -9 of the arbiter: it comes back, both jobs end right, and their lease times are kept" {
  two_jobs 6
  wait_until 20 in_its_turn "$first"
  old=$(arbiter_pid)
  kill -9 "$old"
  wait_until 10 another_arbiter "$old"
  ends_right "$first"
  ends_right "$second"
  wait_until 20 has_lease "$first"
  wait_until 20 has_lease "$second"
}

@test "kill -9 of the arbiter in the middle of a handoff, again and again" {
  # With slow copies, handoffs take long enough for a kill in the middle.
  export SIMGPU_PCIE=0.5
  two_jobs 8
  for _ in 1 2 3; do
    wait_until 20 in_handoff
    old=$(arbiter_pid)
    kill -9 "$old"
    wait_until 10 another_arbiter "$old"
  done
  ends_right "$first"
  ends_right "$second"
}

@test "kill -9 of slurmd: jobs and arbiter go on, and slurmd finds them again" {
  two_jobs 8
  wait_until 20 in_its_turn "$first"
  old=$(arbiter_pid)
  "$CLUSTER" kill "$dir" slurmd1
  "$CLUSTER" kill "$dir" slurmd2
  sleep 1
  "$CLUSTER" start "$dir" slurmd1
  "$CLUSTER" start "$dir" slurmd2
  ends_right "$first"
  ends_right "$second"
  [ "$(arbiter_pid)" = "$old" ]
}

@test "jobs go on over a restart of slurmctld" {
  two_jobs 5
  wait_until 20 in_its_turn "$first"
  "$CLUSTER" stop "$dir" slurmctld
  "$CLUSTER" start "$dir" slurmctld
  ends_right "$first"
  ends_right "$second"
}

# has_in_environment PATTERN...: prints the processes that have all of these lines in their environment.
has_in_environment() {
  local process pattern
  for process in /proc/[0-9]*; do
    for pattern in "$@"; do grep -qzx "$pattern" "$process/environ" 2>/dev/null || continue 2; done
    echo "${process#/proc/}"
  done
}

# Prints the slurmstepds that are the parents of these processes.
steppers_of() {
  local process parent
  for process in "$@"; do
    parent=$(sed -n 's/^PPid:\t//p' "/proc/$process/status") || continue
    [[ $(<"/proc/$parent/comm") != slurmstepd ]] || echo "$parent"
  done | sort -u
}

# Simulates a power failure: all processes on the nodes end at once, and files in memory are lost.
lose_power() {
  "$CLUSTER" kill "$dir" slurmd1
  "$CLUSTER" kill "$dir" slurmd2
  local processes
  processes=$(has_in_environment "SHAREDGPU_SOCKET=$SHAREDGPU_SOCKET" 'SLURM_JOB_ID=.*')
  # shellcheck disable=SC2046,SC2086
  kill -9 $(steppers_of $processes) $processes
  pkill -KILL -f "^$dir/prefix/bin/sharedgpu supervise"
  kill -9 "$(arbiter_pid)"
  rm "$SHAREDGPU_SOCKET"
}

@test "the nodes lose power: a job runs again from its beginning beside a later one, and its first run does not count" {
  job=$(submit --requeue --gres=sharedgpu:1 -- bash -c "$hold 75% --seconds \$((SLURM_RESTART_COUNT ? 2 : 600))")
  wait_until 20 in_its_turn "$job"
  sleep 23 # for BatchStartTimeout and ten more seconds, slurmctld treats a job as starting
  lose_power
  SLURMD_BOOTED=yes "$CLUSTER" start "$dir" slurmd1
  SLURMD_BOOTED=yes "$CLUSTER" start "$dir" slurmd2
  wait_until 60 has_state "$job" PENDING
  other=$(submit --gres=sharedgpu:1 -- $hold 75% --seconds 2)
  # Slurm would let the requeued job wait for two minutes. The job must wait for at least a second: if the job begins in
  # the second in which its credential was revoked, slurmd confuses it with the job's earlier run.
  scontrol update JobId="$job" StartTime=now+3
  ends_right "$other"
  ends_right "$job"
  wait_until 20 has_lease "$job"
  [ "$(lease_seconds "$job")" -lt 15 ] # only the second run counts
  [ "$(sharedgpu status --json | jq '[.tenants[] | select(.pids != [] or .footprint_bytes > 0)] | length')" = 0 ]
}

@test "the next job starts arbiter and supervisor again after both have died" {
  pkill -KILL -f "^$dir/prefix/bin/sharedgpu supervise" # only the supervisor of this cluster
  kill -9 "$(arbiter_pid)"
  job=$(submit --gres=sharedgpu:1 -- $hold 50% --seconds 1)
  ends_right "$job"
  wait_until 5 arbiter_pid
}

# Starts the arbiter, by the prolog of a job.
arbiter_starts() {
  srun -Q --gres=sharedgpu:1 true
  wait_until 20 arbiter_pid
}

# Ends the arbiter and its supervisor, and keeps jobs from starting new ones.
without_arbiter() {
  arbiter_starts
  pkill -KILL -f "^$dir/prefix/bin/sharedgpu supervise" # only the supervisor of this cluster
  kill -9 "$(arbiter_pid)"
  mv "$dir/prefix/bin/sharedgpu" "$dir/prefix/bin/sharedgpu.away"
}
with_arbiter() { mv "$dir/prefix/bin/sharedgpu.away" "$dir/prefix/bin/sharedgpu"; }
# shellcheck disable=SC2016
shown='echo "[$CUDA_VISIBLE_DEVICES]"; '

@test "no arbiter while a step starts: the step sees as many GPUs as it requested, and its children none" {
  without_arbiter
  one=$(CUDA_VISIBLE_DEVICES=7 submit --gres=sharedgpu:1 -- bash -c "$shown $hold 10% --seconds 1; srun -Q --gres=none bash -c '$shown'")
  two=$(submit --gres=sharedgpu:1 --sharedgpu-gpus=2 -- bash -c "$shown")
  wait_until 60 ended "$one" && wait_until 60 ended "$two" || true
  with_arbiter
  ends_right "$one"
  [ "$(grep '^\[' "$dir/jobs/$one")" = $'[0]\n[]' ]
  output_has "$one" "no arbiter at"
  output_has "$two" "[0,1]"
}

@test "no arbiter while a step starts, and OnNoArbiter=fail: the step sees no shared GPU, and a message says so" {
  cp "$dir/etc/sharedgpu.conf" "$dir/etc/sharedgpu.conf.before"
  echo OnNoArbiter=fail >>"$dir/etc/sharedgpu.conf"
  without_arbiter
  job=$(submit --gres=sharedgpu:1 -- bash -c "$shown $hold 10% --seconds 1")
  wait_until 60 ended "$job" || true
  with_arbiter
  mv "$dir/etc/sharedgpu.conf.before" "$dir/etc/sharedgpu.conf"
  expect_state "$job" FAILED
  output_has "$job" "[none]"
  output_has "$job" "it sees no shared GPU because of OnNoArbiter=fail"
}

@test "a process in no job, and one in a job without units, are refused by the arbiter that Slurm starts" {
  refused="refused by the arbiter"
  mine="env LD_PRELOAD=$dir/prefix/lib/sharedgpu/libsharedgpu.so $hold 10% --seconds 1"
  arbiter_starts
  run -0 $mine
  [[ $output == *"$refused (the GPUs here are for jobs"* ]]
  job=$(submit -- $mine)
  ends_right "$job"
  output_has "$job" "$refused (job $job holds no units of these GPUs here)"
}
