#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A program allocates while its turn ends, and the turn cannot end without what it does next.
load helpers

contend() {
  start_arbiter "$@"
  tenant rival hold --bytes 60% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
}

@test "memory that is allocated in a capture is there, though the turn is over" {
  contend
  tenant grows late_growth capture --bytes 140MiB --more 50MiB
  succeeds grows
  (($(gpu copied_out) > 0))
}

@test "memory comes to a program that the GPU waits for" {
  contend
  tenant grows late_growth gpu --bytes 140MiB --more 50MiB
  succeeds grows
  (($(gpu copied_out) > 0))
}

@test "who comes in gives up what it was promised" {
  contend
  tenant two hold --bytes 60% --of 256MiB --seconds 600
  tenant grows late_growth gpu --bytes 75MiB --more 150MiB
  succeeds grows
}

@test "where two hold what the other needs one of them is refused, and both go on" {
  start_arbiter
  tenant one late_growth gpu --frugal --bytes 100MiB --more 60MiB --rounds 2
  tenant two late_growth gpu --frugal --bytes 100MiB --more 60MiB --rounds 2
  progresses_both() { json_is 'sum(t["footprint"] > 0 for t in s["tenants"])' 2; }
  tenant rival hold --bytes 60% --of 256MiB --iterations 200
  all_succeed one two rival
}
