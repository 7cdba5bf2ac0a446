#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests jobs that choose another backend than swap.
load helpers

# with BACKEND NAME PROGRAM ARGUMENT...: starts a tenant that uses BACKEND.
with() {
  local backend=$1 name=$2 program=$3
  shift 3
  "$SHAREDGPU" run --backend "$backend" -- "$PROGRAMS/$program" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}
native() { with native "$@"; }
managed() { with managed "$@"; }

# nothing_paged: succeeds if managed memory has moved only by prefetches.
nothing_paged() { (($(gpu paged) == 0)) || { info && false; }; }

@test "swapped tenants take turns around a native one, which never moves" {
  start_arbiter Quantum=300ms
  native still hold --bytes 40% --of 256MiB --seconds 600 --progress
  progresses still
  json_is '[t["pinned_bytes"] >= 102 << 20 for t in s["tenants"]]' '[True]'
  tenant one hold --bytes 45% --of 256MiB --iterations 20 --kernel-ms 40 --seed 1 --verify
  tenant two hold --bytes 45% --of 256MiB --iterations 20 --kernel-ms 40 --seed 2 --verify
  all_succeed one two
  (($(gpu peak) <= 256 << 20 && $(gpu copied_out) > 0))
}

@test "a native tenant verifies beside a swapped one" {
  start_arbiter Quantum=300ms
  tenant swapped hold --bytes 45% --of 256MiB --seconds 600 --progress
  progresses swapped
  native still hold --bytes 40% --of 256MiB --blocks 30 --iterations 20 --verify
  succeeds still
}

@test "native memory that can never fit is refused, and the rest is reported as free" {
  start_arbiter
  native first hold --bytes 60% --of 256MiB --seconds 600 --progress
  progresses first
  native second hold --bytes 60% --of 256MiB
  finish second
  ((status == 2))
  grep -q 'CUDA_ERROR_OUT_OF_MEMORY: out of memory' "$DIR/second.err"
  native figures memgetinfo
  succeeds figures
}

@test "kill -9 of a native tenant frees its memory for the others" {
  start_arbiter
  native still hold --bytes 60% --of 256MiB --seconds 600 --progress
  progresses still
  kill -9 "${PIDS[still]}"
  finish still || true
  until_true 30 used_is 0
  tenant next hold --bytes 75% --of 256MiB --iterations 5 --verify
  succeeds next
}

@test "native: memory pools are left to the driver, and counted" {
  start_arbiter
  native pools pools --most $((150 << 20)) --hold 2
  until_true 60 grep -q shareable "$DIR/pools.out"
  json_is '[t["pinned_bytes"] for t in s["tenants"]]' "[$(awk '/shareable/ { print $3 }' "$DIR/pools.out")]"
  succeeds pools
  until_true 30 used_is 0
}

@test "destroying a context frees its memory and nothing else, with each backend" {
  start_arbiter
  local backend refusals=cuCtxDestroy:2:CUDA_ERROR_UNKNOWN,cuDevicePrimaryCtxReset:1:CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE
  for backend in managed native; do
    with $backend $backend context_end
    succeeds $backend
    SIMGPU_FAIL=$refusals with $backend refused context_end --refused
    succeeds refused
  done
  nothing_paged
}

@test "no call waits for the GPU unless it would wait on plain CUDA, too" {
  start_arbiter
  local what backend
  for what in release reset destroy capture allocate release-unused reset-unused ask-pool overtaken fence; do
    plain plain waits $what
    for backend in swap managed native; do with $backend $backend waits $what; done
    all_succeed plain swap managed native
  done
}

@test "managed: a context that was destroyed in a capture, with its memory still allocated, keeps the GPU from no tenant" {
  start_arbiter DeviceMemoryLimit=96MiB
  managed ended context_end --pause 600
  progresses ended
  managed rival hold --bytes 72MiB --iterations 10 --verify
  succeeds rival
}

@test "managed: alone a program holds nearly the whole GPU, and nothing moves" {
  start_arbiter
  managed alone hold --bytes 90% --of 224MiB --blocks 30 --iterations 5 --verify
  succeeds alone
  (($(gpu copied_in) < 1 << 20)) # only the result was copied
  nothing_paged
  used_is 0
}

@test "managed: two of 75% each take turns, verify every byte, and no page moves by a fault" {
  start_arbiter Quantum=300ms
  managed one hold --bytes 75% --of 224MiB --seconds 3 --seed 1 --verify
  managed two hold --bytes 75% --of 224MiB --seconds 3 --seed 2 --verify
  all_succeed one two
  (($(gpu peak) <= 256 << 20 && $(gpu copied_in) > 0 && $(gpu copied_out) > 0))
  nothing_paged
  used_is 0
}

@test "without sharedgpu the pages of such a pair move by faults" {
  plain one hold --managed --bytes 75% --of 224MiB --seconds 3 --seed 1 --verify
  plain two hold --managed --bytes 75% --of 224MiB --seconds 3 --seed 2 --verify
  all_succeed one two
  (($(gpu peak) <= 256 << 20 && $(gpu paged) > 0))
}

@test "managed: a tenant works beside swapped and native tenants" {
  start_arbiter Quantum=300ms
  native still hold --bytes 20% --of 224MiB --seconds 600 --progress
  progresses still
  managed one hold --bytes 60% --of 224MiB --blocks 20 --iterations 40 --kernel-ms 20 --seed 1 --verify
  tenant two hold --bytes 60% --of 224MiB --blocks 20 --iterations 40 --kernel-ms 20 --seed 2 --verify
  all_succeed one two
  (($(gpu peak) <= 256 << 20 && $(gpu copied_out) > 0))
  nothing_paged
}

@test "managed: footprint and resident memory are reported as with swap" {
  start_arbiter Quantum=10m
  managed first hold --bytes 75% --of 224MiB --seconds 600 --progress
  progresses first
  json_is '[(t["backend"], t["pinned_bytes"], t["footprint_bytes"] == t["resident_bytes"] > 165 << 20) for t in s["tenants"]]' \
    "[('managed', 0, True)]"
  managed second hold --bytes 75% --of 224MiB --seconds 600 --progress
  until_true 30 json_is 'sum(t["footprint_bytes"] > 165 << 20 for t in s["tenants"])' 2
  json_is 'sum(t["resident_bytes"] for t in s["tenants"]) <= 256 << 20' True
}

@test "managed: memory figures are the same as with swap" {
  start_arbiter DeviceMemoryLimit=128MiB
  tenant swapped memgetinfo
  succeeds swapped
  managed figures memgetinfo
  succeeds figures
  diff "$DIR/swapped.out" "$DIR/figures.out"
}

@test "managed: an allocation that can never fit is out of memory" {
  start_arbiter
  managed large hold --bytes 300MiB
  finish large
  ((status == 2))
  grep -q 'CUDA_ERROR_OUT_OF_MEMORY: out of memory' "$DIR/large.err"
}

@test "managed: programs of all kinds work beside a rival" {
  start_arbiter Quantum=300ms
  managed rival hold --bytes 80% --of 224MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
  local programs="small_blocks async_alloc pools graph graph_memory captures threads contexts fork vmm" program
  for program in $programs; do
    managed $program $program
    succeeds $program
  done
  kill "${PIDS[rival]}"
  finish rival || true
  until_true 30 used_is 0
}

@test "managed: memory is not shared by IPC, as managed memory never is" {
  start_arbiter
  managed pair ipc --rounds 2
  finish pair
  ((status == 1))
  grep -q 'memory of cuMemAlloc is said to have no IPC' "$DIR/pair.err"
}

@test "managed: on a GPU that cannot page, swap is used, and the program says why" {
  export SIMGPU_CONCURRENT_MANAGED=0
  start_arbiter Quantum=300ms
  managed one hold --bytes 75% --of 224MiB --iterations 20 --seed 1 --verify
  managed two hold --bytes 75% --of 224MiB --iterations 20 --seed 2 --verify
  all_succeed one two
  (($(grep -c 'the managed backend cannot be used: this GPU cannot migrate managed memory on page faults; using swap' "$DIR/one.err") == 1))
}

@test "managed: if a prefetch to the host fails, the memory stays, and the arbiter plans around it" {
  start_arbiter Quantum=300ms
  SIMGPU_FAIL=cuMemPrefetchAsync:1+:CUDA_ERROR_INVALID_DEVICE managed stuck hold --bytes 40% --of 224MiB --seconds 600 --progress
  progresses stuck
  tenant one hold --bytes 50% --of 224MiB --iterations 20 --seed 1 --verify
  tenant two hold --bytes 50% --of 224MiB --iterations 20 --seed 2 --verify
  all_succeed one two
  nothing_paged
}

@test "managed: prefetches that fail now and then cost nothing but time" {
  start_arbiter Quantum=300ms
  export SIMGPU_VERBOSE=1
  SIMGPU_FAIL=cuMemPrefetchAsync:3:CUDA_ERROR_UNKNOWN,cuMemPrefetchAsync:9:CUDA_ERROR_OUT_OF_MEMORY \
    managed faulty hold --bytes 75% --of 224MiB --iterations 40 --kernel-ms 20 --seed 1 --verify
  managed other hold --bytes 75% --of 224MiB --iterations 40 --kernel-ms 20 --seed 2 --verify
  all_succeed faulty other
  (($(grep -c 'of cuMemPrefetchAsync fails' "$DIR/faulty.err") == 2))
}
