#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests processes of one tenant that share device memory, beside a tenant that takes turns with them.
load helpers

contend() {
  start_arbiter
  tenant rival hold --bytes 50% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
}

@test "shared memory stays in place while turns change" {
  contend
  tenant pair ipc --rounds 8 --gap-ms 300
  succeeds pair
  (($(gpu copied_out) > 0))
  grep -q 'the borrower ended right' "$DIR/pair.out"
}

@test "without sharedgpu the simulated driver shares the same way" {
  plain pair ipc --rounds 2
  succeeds pair
}

@test "another tenant cannot open shared memory" {
  start_arbiter
  tenant pair ipc --rounds 50 --gap-ms 200 --print
  progresses pair
  tenant stranger ipc --open "$(awk '$1 == "handle" { print $2 }' "$DIR/pair.out")"
  succeeds stranger
  grep -q refused "$DIR/stranger.out"
}

@test "memory of a killed exporter remains usable, and is freed at the end" {
  contend
  tenant pair ipc --rounds 6 --gap-ms 300 --how kill-lender
  finish pair
  ((status != 0))
  until_true 120 grep -q 'the borrower ended right, after the lender' "$DIR/pair.out"
  kill -9 "${PIDS[rival]}"
  until_true 30 used_is 0
}

@test "a killed importer leaves nothing open" {
  contend
  tenant pair ipc --rounds 4 --how kill-borrower
  succeeds pair
  kill -9 "${PIDS[rival]}"
  until_true 30 used_is 0
}

@test "memory that is freed while another process imports it remains usable" {
  contend
  tenant pair ipc --rounds 4 --gap-ms 300 --how free-first
  succeeds pair
  grep -q 'the borrower ended right' "$DIR/pair.out"
}

@test "an arbiter that dies before the memory is imported loses nothing" {
  start_arbiter
  tenant pair ipc --rounds 3 --print --wait-for "$DIR/go"
  progresses pair
  kill -9 "$ARBITER"
  wait "$ARBITER" 2>/dev/null || true
  touch "$DIR/go"
  run_arbiter
  succeeds pair
}

@test "an arbiter that dies while memory is imported loses nothing" {
  contend
  tenant pair ipc --rounds 8 --gap-ms 300 --print
  progresses pair
  sleep 1
  kill -9 "$ARBITER"
  wait "$ARBITER" 2>/dev/null || true
  run_arbiter
  succeeds pair
}
