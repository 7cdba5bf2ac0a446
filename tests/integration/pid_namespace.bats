#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests tenants in separate PID namespaces, as containers have. The arbiter runs outside of these namespaces. (A similar
# system had a bug with process ids of other namespaces: HAMi-core 112.)
load helpers

MIB=$((1 << 20))

prepare() {
  unshare --pid --fork --mount-proc true 2>/dev/null || skip "no PID namespace can be made here"
  start_arbiter
}

# inside NAME HOW PROGRAM ARGUMENT...: starts a separate tenant in a PID namespace. HOW is --mount-proc, or empty for
# the outer /proc. The process that is started stays outside of the namespace and waits for its only child, which is
# inside.
inside() {
  local name=$1 how=$2 program=$3
  shift 3
  # shellcheck disable=SC2086
  "$SHAREDGPU" run -- unshare --pid --fork $how "$PROGRAMS/$program" "$@" \
    >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

# says NAME FIELD: prints a field of the program's output.
says() { awk -v field="$2" '$1 == field { print $2 }' "$DIR/$1.out"; }

@test "tenants in their own namespaces and one outside swap and verify every byte" {
  prepare
  inside own --mount-proc hold --bytes 75% --of 256MiB --seconds 4 --seed 1 --verify
  inside half "" hold --bytes 75% --of 256MiB --seconds 4 --seed 2 --verify
  tenant outside hold --bytes 75% --of 256MiB --seconds 4 --seed 3 --verify
  until_true 60 json_is 'len([t for t in s["tenants"] if t["footprint_bytes"]])' 3
  # The arbiter lists three processes, by their pids in the arbiter's own namespace.
  json_is 'len({p for t in s["tenants"] for p in t["pids"] if p > 2})' 3
  all_succeed own half outside
  (($(gpu copied_in) > 0 && $(gpu peak) <= 256 * MIB))
  [[ ! -s $DIR/own.err && ! -s $DIR/half.err ]]
  until_true 30 used_is 0
  until_true 30 json_is 'len(s["tenants"])' 0
}

@test "NVML shows a process in a namespace only itself, under its own number" {
  prepare
  tenant rival hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
  export LD_LIBRARY_PATH=$BUILD/tests/simgpu:$BUILD/tests/simgpu/nvml
  local how
  for how in --mount-proc ""; do
    inside "own$how" "$how" nvml --bytes 32MiB
    succeeds "own$how"
    grep -qx "pid 1 used $((32 * MIB))" "$DIR/own$how.out"
    (($(grep -c ^pid "$DIR/own$how.out") == 1))
  done
}

@test "NVML shows no process from outside the namespace" {
  prepare
  export LD_LIBRARY_PATH=$BUILD/tests/simgpu:$BUILD/tests/simgpu/nvml
  # shellcheck disable=SC2016
  "$SHAREDGPU" run -- bash -c '"$0/hold" --bytes 32MiB --seconds 600 --progress >"$1/inner.out" & holder=$!
    until [[ -s $1/inner.out ]]; do sleep 0.05; done
    unshare --pid --fork --mount-proc "$0/nvml" >"$1/look.out"; status=$?
    kill $holder; exit $status' "$PROGRAMS" "$DIR" 2>"$DIR/run.err"
  (($(says look used) == 32 * MIB)) # used by another process of the same tenant
  run ! grep -q ^pid "$DIR/look.out"
}

@test "a process that is killed in its namespace frees everything" {
  prepare
  inside own --mount-proc hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses own
  tenant outside hold --bytes 75% --of 256MiB --seconds 3 --verify
  until_true 60 json_is 'len([t for t in s["tenants"] if t["footprint_bytes"]])' 2
  kill -9 "$(pgrep -P "${PIDS[own]}")" # the process by its pid outside of the namespace
  succeeds outside
  finish own
  ((status != 0))
  until_true 30 used_is 0
  until_true 30 json_is 'len(s["tenants"])' 0
}

@test "the arbiter dies and returns while a tenant is in a namespace" {
  prepare
  inside own --mount-proc hold --bytes 75% --of 256MiB --seconds 5 --verify
  tenant outside hold --bytes 75% --of 256MiB --seconds 5 --verify
  until_true 60 json_is 'len([t for t in s["tenants"] if t["footprint_bytes"]])' 2
  kill -9 "$ARBITER"
  wait "$ARBITER" 2>/dev/null || true
  run_arbiter
  all_succeed own outside
  until_true 30 json_is 'sum(len(t["pids"]) for t in s["tenants"])' 0
}

@test "an arbiter in a namespace serves no process that it cannot see, and says so" {
  prepare
  kill "$ARBITER"
  wait "$ARBITER" 2>/dev/null || true
  unshare --pid --fork --kill-child "$BUILD/arbiter/sharedgpud" --config "$DIR/conf" >>"$DIR/arbiter.log" 2>&1 3>&- &
  ARBITER=$!
  until_true 30 test -S "$SHAREDGPU_SOCKET"
  LD_PRELOAD=$PRELOAD plain outside hold --bytes 10% --verify
  succeeds outside
  grep -q "in another PID namespace.*plain CUDA" "$DIR/outside.err"
}

@test "processes of a tenant in a namespace share memory" {
  prepare
  inside pair --mount-proc ipc --rounds 2
  succeeds pair
  grep -q 'the borrower ended right' "$DIR/pair.out"
}
