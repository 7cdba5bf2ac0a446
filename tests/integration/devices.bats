#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests processes that use several GPUs, and other processes that share some of these GPUs.
load helpers

setup_file() { export SIMGPU_DEVICES=2; }

# one NAME GPU PROGRAM ARGUMENT...: starts a tenant that sees this GPU alone.
one() {
  local name=$1 visible=$2
  shift 2
  CUDA_VISIBLE_DEVICES=$visible tenant "$name" "$@"
}

# both NAME PROGRAM ARGUMENT...: starts a tenant on both GPUs.
both() { GPUS=2 tenant "$@"; }

# rivals_on_both SETTING...: starts an arbiter with these settings, and on each GPU a tenant that fills most of its memory.
rivals_on_both() {
  start_arbiter "$@"
  one left 0 hold --bytes 75% --of 256MiB --seconds 600 --progress
  one right 1 hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses left
  progresses right
}

second() { SIMGPU_STATE=$SIMGPU_STATE.1 gpu "$1"; }
both_unused() { used_is 0 && [[ $(second used) == 0 ]]; }

teardown() {
  local pid
  for pid in "${PIDS[@]}" $ARBITER; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$DIR" "$SIMGPU_STATE" "$SIMGPU_STATE.1"
}

@test "one process alone on two GPUs: both are managed, nothing moves" {
  start_arbiter
  both two devices --bytes 100MiB --iterations 100000 --progress
  progresses two
  json_is 'sorted(g["footprint_bytes"] >= 100 << 20 for g in s["gpus"])' '[True, True]'
  json_is '[(len(t["sessions"]), len(t["gpus"]), len(t["pids"])) for t in s["tenants"]]' '[(2, 2, 1)]'
  json_is 'len(s["tenants"][0]["gpus"]) == len(set(x["gpu"] for x in s["tenants"][0]["sessions"]))' True
  json_is '(s["tenants"][0]["evicted_bytes"], s["tenants"][0]["restored_bytes"])' '(0, 0)'
}

@test "one process on two GPUs takes turns with tenants on either, and loses no byte" {
  rivals_on_both Quantum=300ms
  both two devices --bytes 150MiB --iterations 12
  succeeds two
  (($(gpu peak) <= 256 << 20 && $(second peak) <= 256 << 20))
  (($(gpu copied_out) > 150 << 20 && $(second copied_out) > 150 << 20))
}

@test "kernels that start on two GPUs at once wait for turns on both, and lose no byte" {
  plain plain devices --bytes 50MiB --iterations 4 --cooperative
  succeeds plain
  start_arbiter Quantum=300ms
  one left 0 hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses left
  both two devices --bytes 150MiB --iterations 6 --cooperative --gap-ms 600 # the tenant's memory is
                                                                            # evicted when it
                                                                            # launches
  succeeds two
  (($(gpu copied_out) - $(second copied_out) > 150 << 20)) # only one of the GPUs was short of memory
}

@test "peers write into each other's memory, even after it was evicted" {
  rivals_on_both Quantum=300ms
  both two devices --bytes 150MiB --iterations 8 --peers
  succeeds two
  (($(gpu copied_out) > 150 << 20 && $(second copied_out) > 150 << 20))
}

@test "peers write into each other's pools, even after they were evicted" {
  plain plain devices --bytes 50MiB --iterations 2 --pools
  succeeds plain
  rivals_on_both Quantum=300ms
  both two devices --bytes 150MiB --iterations 8 --pools
  succeeds two
  (($(gpu copied_out) > 150 << 20 && $(second copied_out) > 150 << 20))
}

@test "a GPU's memory is copied while another GPU's context is current, even after it was evicted" {
  plain plain devices --bytes 50MiB --iterations 2 --elsewhere
  succeeds plain
  rivals_on_both Quantum=300ms
  both two devices --bytes 150MiB --iterations 8 --elsewhere
  succeeds two
  both pooled devices --bytes 150MiB --iterations 4 --elsewhere --pools
  succeeds pooled
  (($(gpu copied_out) > 150 << 20 && $(second copied_out) > 150 << 20))
}

@test "memory of another process is opened on a second GPU, and outlives the context that opened it first" {
  start_arbiter
  both pair ipc --rounds 2 --second-gpu
  succeeds pair
  grep -q 'the borrower ended right' "$DIR/pair.out"
}

@test "two processes on two GPUs each take turns" {
  start_arbiter Quantum=300ms
  both one devices --bytes 150MiB --iterations 10
  both other devices --bytes 150MiB --iterations 10
  all_succeed one other
  (($(gpu peak) <= 256 << 20 && $(second peak) <= 256 << 20))
  until_true 30 both_unused
}

@test "a tenant on one GPU verifies its memory beside a tenant on both" {
  start_arbiter Quantum=300ms
  both two devices --bytes 150MiB --iterations 100000 --progress
  progresses two
  one right 1 hold --bytes 75% --of 256MiB --iterations 20 --verify
  succeeds right
}

@test "kill -9 of a process on two GPUs frees both" {
  start_arbiter Quantum=300ms
  both two devices --bytes 150MiB --iterations 100000 --progress
  one right 1 hold --bytes 75% --of 256MiB --iterations 20 --verify
  progresses two
  kill -9 "${PIDS[two]}"
  finish two || true
  succeeds right
  until_true 30 both_unused
  until_true 30 json_is 'len(s["tenants"])' 0
}

@test "the arbiter dies and returns between turns of a process on two GPUs" {
  start_arbiter Quantum=300ms
  one right 1 hold --bytes 75% --of 256MiB --seconds 6 --verify
  both two devices --bytes 150MiB --iterations 40
  local round
  for round in 1 2 3; do
    sleep 1
    kill -9 "$ARBITER"
    wait "$ARBITER" 2>/dev/null || true
    sleep 0.3
    run_arbiter
  done
  all_succeed two right
  until_true 30 both_unused
}

@test "memory of one GPU is freed while work on the other does not end" {
  start_arbiter
  both two waits free
  succeeds two
}

@test "a capture on one GPU goes on while the end of a turn waits for the other GPU" {
  start_arbiter
  one left 0 hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses left
  both two waits --bytes 150MiB beside
  succeeds two
}
