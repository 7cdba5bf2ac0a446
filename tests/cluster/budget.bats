#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Host memory for swap is charged to the job's own memory (--mem) and not to other jobs. Swap never makes the Linux
# kernel kill a job.

bats_require_minimum_version 1.5.0
load lib/jobs

setup() {
  cluster_setup
  # The simulated GPU's memory is charged to a process outside the jobs, since a real GPU's memory is not host memory.
  export SIMGPU_BOARD=$dir/run/board
  "$dir/simgpu/simgpu-board" "$SIMGPU_BOARD" 3>&- &
  board=$!
  wait_until 20 test -S "$SIMGPU_BOARD"
  ram="$dir/programs/ram"
}

teardown() {
  cluster_teardown
  kill "$board"
}

# tenant JOB EXPRESSION: prints the value of a Python expression over `t`, the job's entry in `sharedgpu status`.
tenant() {
  sharedgpu status --json |
    python3 -c "import json, sys; t = [t for t in json.load(sys.stdin)['tenants'] if t['job'] == $1][0]; print($2)"
}
tenant_is() { [[ $(tenant "$1" "$2" 2>/dev/null) == "$3" ]]; }

# Prints the folder of a running job's memory cgroup. The next two functions print how often a cgroup has
# reached its limit, and how much memory it uses.
group_of() {
  local pid hierarchy=/sys/fs/cgroup
  pid=$(tenant "$1" 't["pids"][0]')
  [[ -e $hierarchy/cgroup.controllers ]] || hierarchy+=/memory
  echo "$hierarchy$(sed -n 's/^[0-9]*:\(\(.*,\)\?memory\(,.*\)\?\)\?:\(.*job_[0-9]*\).*/\4/p' "/proc/$pid/cgroup" | head -n 1)"
}
hits() { cat "$1/memory.failcnt" 2>/dev/null || sed -n 's/^max //p' "$1/memory.events" 2>/dev/null | grep .; }
usage() { cat "$1/memory.usage_in_bytes" 2>/dev/null || cat "$1/memory.current" 2>/dev/null; }

@test "an allocation that --mem could never hold is refused with a message, and the job goes on" {
  job=$(submit --mem=256M --gres=sharedgpu:1 -- "$ram" --refused 232MiB --bytes 192MiB --slowly 10MiB --working)
  wait_until 30 tenant_is "$job" 't["host_budget_bytes"] >> 20' 224
  expect_state "$job" COMPLETED
  output_has "$job" "could never hold more than 224 MiB"
  output_has "$job" "every byte verified"
}

@test "a job that fills its host memory while its device memory is evicted is not killed for it" {
  job=$(submit --mem=768M --gres=sharedgpu:1 -- "$ram" --bytes 208MiB --after "$dir/jobs/go" --at-once 500MiB --slowly 60MiB)
  wait_until 30 output_has "$job" ready
  other=$(submit --mem=768M --gres=sharedgpu:1 -- $hold 208MiB --seconds 8)
  wait_until 30 tenant_is "$job" 't["host_bytes"] >= 208 << 20 and t["resident_bytes"] == 0' True
  # The job's swapped memory is charged to the job's own group.
  group=$(group_of "$job")
  (($(usage "$group") >= 208 << 20))
  touch "$dir/jobs/go"
  expect_state "$job" COMPLETED
  expect_state "$other" COMPLETED
  output_has "$job" "560 MiB of host memory taken, every byte verified"
  output_has "$other" "$verified"
}

@test "a job that swaps all it can and fills its host memory does not affect other jobs" {
  victim=$(submit --mem=512M --gres=sharedgpu:1 -- "$ram" --bytes 96MiB --at-once 200MiB --slowly 40MiB --working)
  wait_until 30 output_has "$victim" ready
  group=$(group_of "$victim")
  # The attacker has two processes. Each process has one allocation refused, then allocates the device memory
  # that its job may still have. Both processes fill the job's host memory.
  attack="$ram --refused 232MiB --bytes 128MiB --at-once 60MiB --slowly 20MiB --working & sleep 1;"
  attack+=" $ram --refused 128MiB --bytes 80MiB --slowly 20MiB --working && wait \$!"
  attacker=$(submit --mem=256M --gres=sharedgpu:1 -- bash -c "$attack")
  most=0
  while has_state "$victim" RUNNING || has_state "$attacker" RUNNING; do
    hits=$(hits "$group") || break  # the victim has ended
    ((hits == 0))
    now=$(usage "$group") || break
    ((now > most)) && most=$now
    sleep 0.2
  done
  # The victim's own 240 MiB, 96 MiB of swap, and the overhead of any program.
  ((most > 240 << 20 && most < 400 << 20))
  expect_state "$victim" COMPLETED
  expect_state "$attacker" COMPLETED
  output_has "$victim" "240 MiB of host memory taken, every byte verified"
  [ "$(grep -cF 'every byte verified' "$dir/jobs/$attacker")" = 2 ]
  output_has "$attacker" "could never hold more than 224 MiB"
}
