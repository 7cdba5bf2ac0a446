#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests a tenant of two processes whose streams wait for each other in every round, beside a tenant that takes turns
# with it. At the end of a turn, one process has usually submitted work that waits for the other process's next round.
load helpers

contend() {
  start_arbiter
  tenant rival hold --bytes 60% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
}

# Succeeds if memory has moved in both directions, and each tenant that still exists has held a lease.
took_turns() {
  (($(gpu copied_out) > 0 && $(gpu copied_in) > 0))
  json_is 'all(t["lease_seconds"] > 0 for t in s["tenants"])' True
}

@test "processes that wait for each other on the GPU take turns with a rival" {
  contend
  tenant ranks lockstep --bytes 64MiB --rounds 150 --ahead 60 --kernel-ms 2 --nap-ms 400 --nap-every 30
  succeeds ranks
  (($(grep -c verified "$DIR/ranks.out") == 2))
  took_turns
}

@test "such processes end their turns even if they need more memory to do so" {
  contend
  tenant ranks lockstep --bytes 48MiB --more 24MiB --rounds 200 --kernel-ms 5 --nap-ms 15
  succeeds ranks
  took_turns
}

@test "the arbiter dies and returns while processes wait for each other" {
  contend
  tenant ranks lockstep --bytes 64MiB --rounds 200 --kernel-ms 5 --nap-ms 15
  until_true 60 json_is 'len(s["tenants"])' 2
  for _ in 1 2 3; do
    sleep 0.7
    kill -9 "$ARBITER"
    wait "$ARBITER" 2>/dev/null || true
    run_arbiter
  done
  succeeds ranks
  took_turns
}

@test "without sharedgpu the simulated driver lets processes wait for each other in the same way" {
  plain ranks lockstep --bytes 32MiB --rounds 100 --nap-ms 5
  succeeds ranks
}
