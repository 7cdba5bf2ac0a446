#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Jobs that choose another backend than swap.
load helpers

# native NAME PROGRAM ARGUMENT...: a tenant whose memory stays the driver's.
native() {
  local name=$1 program=$2
  shift 2
  "$SHAREDGPU" run --backend native -- "$PROGRAMS/$program" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

@test "swapped tenants take turns around a native one, which never moves" {
  start_arbiter Quantum=300ms
  native still hold --bytes 40% --of 512MiB --seconds 600 --progress
  progresses still
  json_is '[t["pinned_bytes"] >= 204 << 20 for t in s["tenants"]]' '[True]'
  tenant one hold --bytes 45% --of 512MiB --iterations 20 --seed 1 --verify
  tenant two hold --bytes 45% --of 512MiB --iterations 20 --seed 2 --verify
  all_succeed one two
  (($(gpu peak) <= 512 << 20 && $(gpu copied_out) > 0))
}

@test "a native tenant verifies beside a swapped one" {
  start_arbiter Quantum=300ms
  tenant swapped hold --bytes 45% --of 512MiB --seconds 600 --progress
  progresses swapped
  native still hold --bytes 40% --of 512MiB --blocks 30 --iterations 20 --verify
  succeeds still
}

@test "native memory that could never be held is refused, and what it leaves is seen" {
  start_arbiter
  native first hold --bytes 60% --of 512MiB --seconds 600 --progress
  progresses first
  native second hold --bytes 60% --of 512MiB
  finish second
  ((status == 2))
  grep -q 'CUDA_ERROR_OUT_OF_MEMORY: out of memory' "$DIR/second.err"
  native figures memgetinfo
  succeeds figures
}

@test "kill -9 of a native tenant frees its memory for the others" {
  start_arbiter
  native still hold --bytes 60% --of 512MiB --seconds 600 --progress
  progresses still
  kill -9 "${PIDS[still]}"
  finish still || true
  until_true 30 used_is 0
  tenant next hold --bytes 75% --of 512MiB --iterations 5 --verify
  succeeds next
}
