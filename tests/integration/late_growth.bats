#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A program allocates memory while its turn ends, and the turn cannot end before the program's next submissions.
load helpers

contend() {
  start_arbiter "$@"
  tenant rival hold --bytes 60% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
}

@test "memory can be allocated in a capture after the turn is over" {
  contend
  tenant grows late_growth capture --bytes 140MiB --more 50MiB
  succeeds grows
  (($(gpu copied_out) > 0))
}

@test "a program gets memory while work on the GPU waits for the program" {
  contend
  tenant grows late_growth gpu --bytes 140MiB --more 50MiB
  succeeds grows
  (($(gpu copied_out) > 0))
}

@test "a tenant that enters its turn gives up memory promised to it" {
  contend
  tenant two hold --bytes 60% --of 256MiB --seconds 600
  tenant grows late_growth gpu --bytes 75MiB --more 150MiB
  succeeds grows
}

@test "if each of two tenants holds memory that the other needs, one is refused, and both go on" {
  start_arbiter
  tenant one late_growth gpu --frugal --bytes 100MiB --more 60MiB --rounds 2
  tenant two late_growth gpu --frugal --bytes 100MiB --more 60MiB --rounds 2
  tenant rival hold --bytes 60% --of 256MiB --iterations 200
  all_succeed one two rival
}
