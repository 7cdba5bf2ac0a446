#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Programs larger than the GPU: every word is right wherever the memory is, and host memory stays within the limits.
load helpers

# Twenty buffers of 16 MiB on a GPU of 256 MiB.
LARGE="oversized --count 20 --bytes 16MiB"

# The bus and the device memory of the simulated GPU are about as fast as those of an H200.
start_large() { SIMGPU_PCIE=50 SIMGPU_BANDWIDTH=4300 start_arbiter Oversize=yes "$@"; }

# ends_right NAME...: waits for the programs' ends, and fails unless they have verified all of their memory.
ends_right() {
  local name
  all_succeed "$@"
  for name in "$@"; do
    grep -qE 'every (word|byte) verified' "$DIR/$name.out"
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

# summary_of NAME: prints the line at the end of the run, without the part that every run has.
summary_of() { sed -n 's/^sharedgpu: run [0-9]*: .* to host memory, .* back; larger than the GPU: //p' "$DIR/$1.err"; }

@test "a line at the end of the run says what exchanges have cost, however the program ends" {
  start_large
  # shellcheck disable=SC2086
  "$SHAREDGPU" run --summary=yes -- "$PROGRAMS"/$LARGE --iterations 3 --kind product >"$DIR/whole.out" 2>"$DIR/whole.err"
  cat "$DIR/whole.err"
  summary_of whole | grep -E '^[1-9][0-9.]* [MG]iB of this and [1-9][0-9.]* [MG]iB back in exchanges, which took [0-9.]+ s( \([0-9.]+ s at the speed of the fastest one\))?; threads waited [0-9.]+ s for exchanges(; kernels took about [0-9.]+ s longer with memory away)?$'

  # shellcheck disable=SC2086
  "$SHAREDGPU" run --summary=yes -- "$PROGRAMS"/$LARGE --iterations 100000 --kind product >"$DIR/cut.out" 2>"$DIR/cut.err" 3>&- &
  PIDS[cut]=$!
  until_true 60 json_is 'sum(t["exchanges"]["waited_seconds"] > 0 for t in s["tenants"] if t["exchanges"])' 1
  kill -9 "$(pgrep -P "${PIDS[cut]}")"
  finish cut
  ((status != 0))
  summary_of cut | grep -F ' back in exchanges, which took '

  "$SHAREDGPU" run --summary=yes -- "$PROGRAMS/hold" --bytes 40% --of 256MiB --seconds 0.1 2>"$DIR/small.err"
  grep -q 'moved 0 B to host memory, 0 B back$' "$DIR/small.err"
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

# Without an arbiter, the driver alone limits what the program allocates, but it does not limit the window.
@test "a program larger than the GPU allocates while no arbiter is there, and takes turns again afterwards" {
  start_large Quantum=300ms
  # shellcheck disable=SC2086
  SHAREDGPU_ARBITER_TIMEOUT=200 tenant one $LARGE --iterations 120 --churn
  until_true 60 json_is 'sum(t["away_bytes"] > 0 for t in s["tenants"])' 1
  kill -9 "$ARBITER"
  wait "$ARBITER" || true
  sleep 3
  run_arbiter
  until_true 60 json_is 'sum(t["away_bytes"] > 0 and t["footprint_bytes"] <= 256 << 20 for t in s["tenants"])' 1
  # shellcheck disable=SC2086
  tenant two $LARGE --iterations 6
  ends_right one two
  nothing_is_left
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

# start_in_group: starts the arbiter, and a process that holds the simulated GPU's memory outside of the group.
start_in_group() {
  "$BUILD/tests/simgpu/simgpu-board" "$DIR/board" 3>&- &
  PIDS[board]=$!
  until_true 20 test -S "$DIR/board"
  export SIMGPU_BOARD=$DIR/board
  start_large
}

# in_group COMMAND...: becomes the command, in the memory cgroup.
in_group() { exec bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$GROUP" "$@"; }

@test "the free memory that a program sees goes down with the host memory that it uses itself, and the total stays" {
  own_group 704
  start_in_group
  (in_group "$SHAREDGPU" run -- "$PROGRAMS/memgetinfo" --host 400MiB) >"$DIR/info.out"
  cat "$DIR/info.out"
  local total free
  read -r total free < <(awk '/^total/ {total = $2} /^free_beside_host/ {print total, $2}' "$DIR/info.out")
  ((total > 256 << 20 && free > 256 << 20 && free <= total - (40 << 20))) # 400 MiB are more than the GPU has
  until_true 20 rmdir "$GROUP"
  nothing_is_left
}

@test "all memory that a program sees as free can be allocated, in one piece and in many" {
  own_group 704
  start_in_group
  local host
  for host in 370 381 400 427; do # MiB of host memory that the program uses itself; the rest, which it can allocate on
                                  # the GPU, has various sizes
    (in_group "$SHAREDGPU" run -- "$PROGRAMS/memgetinfo" --all --bytes 6MiB --host "${host}MiB") >"$DIR/all.out"
    grep free_beside_host "$DIR/all.out"
  done
  until_true 20 rmdir "$GROUP"
  nothing_is_left
}

@test "a program larger than the GPU stays within the host memory of its job" {
  own_group 384
  start_in_group
  in_group "$SHAREDGPU" run -- "$PROGRAMS/ram" --refused 400MiB --bytes 300MiB >"$DIR/small.out" 2>"$DIR/small.err" 3>&- &
  PIDS[small]=$!
  succeeds small
  grep -q "this job's host memory could never hold more than" "$DIR/small.err"
  grep -q 'this program needs more memory than the GPU can give it' "$DIR/small.err" # 300 MiB are permitted
  [[ $(sed -n 's/^oom_kill //p' "$GROUP"/memory.{oom_control,events} 2>/dev/null) == 0 ]]
  until_true 20 rmdir "$GROUP"
  nothing_is_left
}

GRAPH="large_graph --count 20 --bytes 16MiB"

# singly NAME: prints the number of launches in which NAME's graph was launched node by node.
singly() { grep -c 'nodes was launched node by node' "$DIR/$1.err" || true; }

@test "a graph larger than the window is launched node by node, and is right whatever its program does" {
  start_large
  local options number=0
  for options in "" "--update nodes" "--update whole" "--threads 3" "--watch"; do
    number=$((number + 1))
    # shellcheck disable=SC2086
    SHAREDGPU_DEBUG=1 tenant "p$number" $GRAPH $options
    ends_right "p$number"
    (($(singly "p$number") > 0))
    grep -q 'exchanged [0-9]* handles' "$DIR/p$number.err"
  done
  nothing_is_left
}

@test "turns end and begin between the nodes of a graph" {
  start_large Quantum=50ms
  # shellcheck disable=SC2086
  {
    SHAREDGPU_DEBUG=1 tenant one $GRAPH --launches 8
    SHAREDGPU_DEBUG=1 tenant two $GRAPH --launches 8 --update nodes
  }
  ends_right one two
  (($(singly one) > 0 && $(singly two) > 0))
  nothing_is_left
}

@test "a graph larger than the window that needs to be whole is launched whole" {
  start_large
  # shellcheck disable=SC2086
  SHAREDGPU_DEBUG=1 tenant memory $GRAPH --memory
  ends_right memory
  (($(singly memory) == 0))
  # If the driver refuses a query about the graph, the graph is launched whole, too.
  local call
  for call in cuGraphGetNodes cuGraphGetEdges cuGraphNodeGetType cuGraphKernelNodeGetParams cuFuncGetParamInfo \
    cuGraphChildGraphNodeGetGraph; do
    # shellcheck disable=SC2086
    SIMGPU_FAIL="$call:1+:CUDA_ERROR_UNKNOWN" SHAREDGPU_DEBUG=1 tenant "$call" $GRAPH --launches 2 --update nodes
    ends_right "$call"
    (($(singly "$call") == 0))
  done
  nothing_is_left
}

@test "a program gets the error of a node, as it would get the error of its graph" {
  start_large
  # shellcheck disable=SC2086
  {
    # The driver refuses a kernel in the middle of the first launch.
    SIMGPU_FAIL=cuLaunchKernelEx:7:CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES tenant refused $GRAPH
    finish refused
    ((status == 1))
    grep -q 'cuGraphLaunch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES' "$DIR/refused.err"
    # A kernel fails on the GPU.
    SIMGPU_LAUNCH_FAIL_AT=30 tenant failed $GRAPH
    finish failed
    ((status == 1))
    grep -q 'CUDA_ERROR_LAUNCH_FAILED' "$DIR/failed.err"
    # If the first node is refused, the whole graph is launched.
    SIMGPU_FAIL=cuMemsetD32Async:1+:CUDA_ERROR_NOT_SUPPORTED SHAREDGPU_DEBUG=1 tenant first $GRAPH
    ends_right first
    (($(singly first) == 0))
  }
  nothing_is_left
}

@test "memory that was away is exported whole, and the rest of the program goes on around it" {
  start_large
  SHAREDGPU_DEBUG=1 tenant shared exported --how handle --bytes $((130 << 20)) --pieces 3 --shown 1 --seconds 2
  until_true 60 json_is 'max(t["pinned_bytes"] for t in s["tenants"])' $((130 << 20))
  json_is 's["tenants"][0]["away_bytes"] > 0' True
  ends_right shared
  grep -q 'made one handle of several' "$DIR/shared.err"
  nothing_is_left
}

@test "on two GPUs, memory that is away is said to be device memory of its GPU" {
  export SIMGPU_DEVICES=2
  plain plain devices --bytes 50MiB --own 160MiB --iterations 2
  succeeds plain
  start_large
  GPUS=2 tenant two devices --bytes 150MiB --own 160MiB --iterations 4 --gap-ms 300
  until_true 60 json_is 'sorted(x["away_bytes"] > 0 for x in s["tenants"][0]["sessions"])' '[True, True]'
  succeeds two
  nothing_is_left
}

# If the interposer tried such an allocation, the driver would create host memory for many minutes, until none is left.
@test "an allocation that host memory cannot hold is refused at once" {
  start_large
  tenant wrong errors
  succeeds wrong
  run ! grep 'this program needs more memory' "$DIR/wrong.err"
  nothing_is_left
}
