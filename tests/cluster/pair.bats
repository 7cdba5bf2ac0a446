#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Two jobs that together need more memory than the GPU has.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

@test "without sharedgpu the second of two jobs of 75% runs out of memory" {
  first=$(submit -- $hold 75% --seconds 6)
  second=$(submit -- $hold 75% --seconds 6)
  wait_until 60 ended "$first"
  wait_until 60 ended "$second"
  has_state "$first" FAILED || has_state "$second" FAILED
  cat "$dir/jobs/$first" "$dir/jobs/$second" | grep CUDA_ERROR_OUT_OF_MEMORY
}

@test "with sharedgpu both run at the same time, keep every byte, and sacct shows both lease times" {
  first=$(submit --gres=sharedgpu:1 -- $hold 75% --seconds 6)
  second=$(submit --gres=sharedgpu:1 -- $hold 75% --seconds 6)
  wait_until 20 running_together "$first" "$second"
  expect_state "$first" COMPLETED
  expect_state "$second" COMPLETED
  output_has "$first" "$verified"
  output_has "$second" "$verified"
  wait_until 20 has_lease "$first"
  wait_until 20 has_lease "$second"
}

@test "the same two jobs on two nodes that share the host's GPU" {
  node=$(sinfo -h -N -o %N | sed -n 1p) other=$(sinfo -h -N -o %N | sed -n 2p)
  first=$(submit -w "$node" --gres=sharedgpu:1 -- $hold 75% --seconds 5)
  second=$(submit -w "$other" --gres=sharedgpu:1 -- $hold 75% --seconds 5)
  wait_until 20 running_together "$first" "$second"
  expect_state "$first" COMPLETED
  expect_state "$second" COMPLETED
  output_has "$first" "$verified"
  output_has "$second" "$verified"
  [ "$(arbiter_pid | wc -l)" = 1 ]
}

@test "three jobs of 60% take turns" {
  jobs=()
  for _ in 1 2 3; do jobs+=("$(submit --gres=sharedgpu:1 -- $hold 60% --seconds 4)"); done
  for job in "${jobs[@]}"; do
    expect_state "$job" COMPLETED 90
    output_has "$job" "$verified"
  done
}

@test "the lease times of two jobs that cannot run together add up to at most the elapsed time" {
  begin=$(date +%s)
  first=$(submit --gres=sharedgpu:1 -- $hold 75% --seconds 6)
  second=$(submit --gres=sharedgpu:1 -- $hold 75% --seconds 6)
  expect_state "$first" COMPLETED
  expect_state "$second" COMPLETED
  passed=$(($(date +%s) - begin))
  wait_until 20 has_lease "$first"
  wait_until 20 has_lease "$second"
  # The sum may be 2 s too large, since each job's seconds are rounded.
  [ $(($(lease_seconds "$first") + $(lease_seconds "$second"))) -le $((passed + 2)) ]
}
