#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Programs larger than the GPU: every word is right wherever the memory is, and host memory stays within the limits.
load helpers

# Twenty buffers of 16 MiB on a GPU of 256 MiB.
LARGE="oversized --count 20 --bytes 16MiB"

# The test programs' memory may move between its places at the speeds of a bus and of a GPU.
start_large() { SIMGPU_PCIE=50 SIMGPU_BANDWIDTH=4300 start_arbiter Oversize=yes "$@"; }

# managed NAME PROGRAM ARGUMENT...: starts a tenant with managed memory.
managed() {
  local name=$1 program=$2
  shift 2
  SHAREDGPU_DEBUG=1 "$SHAREDGPU" run --backend managed -- "$PROGRAMS/$program" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

# the_driver_moves_nothing MIB: succeeds if managed memory has moved only by prefetches, and if no more than MIB MiB of
# all memory has been on the GPU.
the_driver_moves_nothing() { (($(gpu paged) == 0 && $(gpu peak) <= $1 << 20)) || { info && false; }; }

# ends_right NAME...: waits for the programs' ends, and fails unless they have verified all of their memory.
ends_right() {
  local name
  all_succeed "$@"
  for name in "$@"; do
    grep -q 'every word verified' "$DIR/$name.out"
    [[ $(grep -c 'this program needs more memory than the GPU can give it' "$DIR/$name.err") == 1 ]]
  done
}

nothing_is_left() {
  until_true 20 json_is 's["tenants"]' '[]'
  until_true 20 used_is 0
  (($(gpu peak) <= 256 << 20))
}

@test "kernels that stream, read again and again, or follow pointers are right beyond the limit" {
  start_large
  local options number=0
  for options in "stream" "stream --pool --threads 3 --churn" "product" "product --graph --churn" "hidden --own --churn"; do
    number=$((number + 1))
    # shellcheck disable=SC2086
    SHAREDGPU_DEBUG=1 tenant "p$number" $LARGE --iterations 3 --kind $options
    ends_right "p$number"
  done
  grep -q 'exchanged [0-9]* handles' "$DIR/p3.err"
  nothing_is_left
}

@test "two programs larger than the GPU take turns, and the arbiter dies meanwhile" {
  start_large Quantum=300ms
  # shellcheck disable=SC2086
  {
    tenant one $LARGE --iterations 8 --kind product
    tenant two $LARGE --iterations 16 --kind stream --own --threads 2
  }
  until_true 60 json_is 'sum(t["away_bytes"] > 0 for t in s["tenants"])' 2
  "$SHAREDGPU" status | grep -E 'larger than the GPU: [0-9.]+ MiB away'
  local _
  for _ in 1 2; do
    kill -9 "$ARBITER"
    wait "$ARBITER" || true
    run_arbiter
    until_true 60 json_is 'sum(t["away_bytes"] > 0 and t["footprint_bytes"] <= 256 << 20 for t in s["tenants"])' 2
  done
  ends_right one two
  nothing_is_left
}

@test "managed: kernels of all kinds are right beyond the limit, and no more than the window is on the GPU" {
  start_large DeviceMemoryLimit=160MiB
  local options number=0
  for options in "stream" "stream --pool --threads 3 --churn" "product" "product --graph --churn" "hidden --churn"; do
    number=$((number + 1))
    # shellcheck disable=SC2086
    managed "m$number" $LARGE --iterations 3 --kind $options
    ends_right "m$number"
  done
  grep -q 'exchanged [0-9]* handles' "$DIR/m3.err"
  the_driver_moves_nothing $((160 + 4)) # and a context
  nothing_is_left
}

@test "managed: two programs larger than the GPU take turns, and the arbiter dies meanwhile" {
  start_large Quantum=300ms DeviceMemoryLimit=160MiB
  # shellcheck disable=SC2086
  {
    managed one $LARGE --iterations 60 --kind product
    managed two $LARGE --iterations 120 --kind stream --threads 2
  }
  local _
  for _ in 1 2; do
    until_true 60 json_is 'sum(t["away_bytes"] > 0 and t["footprint_bytes"] <= 160 << 20 for t in s["tenants"])' 2
    kill -9 "$ARBITER"
    wait "$ARBITER" || true
    run_arbiter
  done
  ends_right one two
  the_driver_moves_nothing $((160 + 2 * 4))
  nothing_is_left
}

@test "a managed program and a swapped one, both larger than the GPU, take turns" {
  start_large Quantum=300ms DeviceMemoryLimit=160MiB
  # shellcheck disable=SC2086
  {
    managed one $LARGE --iterations 8 --kind product
    tenant two $LARGE --iterations 8 --kind product
  }
  ends_right one two
  the_driver_moves_nothing $((160 + 2 * 4))
  nothing_is_left
}

@test "managed: prefetches and advice that fail cost nothing but time" {
  start_large DeviceMemoryLimit=160MiB
  local fault
  for fault in cuMemPrefetchAsync:9 cuMemPrefetchAsync:5+ cuMemAdvise:60 cuMemAdvise:80+ cuStreamSynchronize:20; do
    # shellcheck disable=SC2086
    SIMGPU_FAIL=$fault:CUDA_ERROR_INVALID_DEVICE managed "$fault" $LARGE --iterations 3 --kind product
    finish "$fault" || true
    grep -q 'every word verified' "$DIR/$fault.out" || grep -q 'cuStreamSynchronize' "$DIR/$fault.err"
  done
  (($(gpu peak) <= (160 + 4) << 20))
}

@test "a program larger than the GPU that is killed leaves the GPU to others" {
  start_large Quantum=300ms
  # shellcheck disable=SC2086
  {
    tenant victim $LARGE --iterations 10000
    tenant other $LARGE --iterations 6
  }
  until_true 60 json_is 'sum(t["away_bytes"] > 0 for t in s["tenants"])' 2
  kill -9 "${PIDS[victim]}"
  ends_right other
  nothing_is_left
}

@test "the site and the job decide whether a program may be larger than the GPU" {
  start_arbiter
  # shellcheck disable=SC2086
  tenant refused $LARGE
  finish refused
  ((status == 2))
  grep -q 'CUDA_ERROR_OUT_OF_MEMORY' "$DIR/refused.err"
  kill "$ARBITER"
  wait "$ARBITER" || true
  start_large
  status=0
  # shellcheck disable=SC2086
  "$SHAREDGPU" run --memory 288MiB -- "$PROGRAMS"/$LARGE >"$DIR/capped.out" 2>"$DIR/capped.err" || status=$?
  ((status == 2))
  grep -q 'this job limits itself to 288 MiB; request sharedgpu run --memory=' "$DIR/capped.err"
  # shellcheck disable=SC2086
  "$SHAREDGPU" run --memory 336MiB -- "$PROGRAMS"/$LARGE --iterations 1
  nothing_is_left
}

@test "a program larger than the GPU stays within the host memory of its job" {
  own_group 384
  "$BUILD/tests/simgpu/simgpu-board" "$DIR/board" 3>&- &
  PIDS[board]=$!
  until_true 20 test -S "$DIR/board"
  export SIMGPU_BOARD=$DIR/board
  start_large
  bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$GROUP" \
    "$SHAREDGPU" run -- "$PROGRAMS/ram" --refused 400MiB --bytes 300MiB >"$DIR/small.out" 2>"$DIR/small.err" 3>&- &
  PIDS[small]=$!
  succeeds small
  grep -q "this job's host memory could never hold more than" "$DIR/small.err"
  grep -q 'this program needs more memory than the GPU can give it' "$DIR/small.err" # 300 MiB are permitted
  [[ $(sed -n 's/^oom_kill //p' "$GROUP"/memory.{oom_control,events} 2>/dev/null) == 0 ]]
  until_true 20 rmdir "$GROUP"
  nothing_is_left
}

# Otherwise the driver would create host memory for many minutes, until none is left.
@test "an allocation that host memory cannot hold is refused at once" {
  start_large
  tenant wrong errors
  succeeds wrong
  run ! grep 'this program needs more memory' "$DIR/wrong.err"
  nothing_is_left
}
