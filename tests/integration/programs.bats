#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests every kind of program beside a tenant that wants most of the GPU all the time.
load helpers

contend() {
  start_arbiter
  tenant rival hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
}

@test "graphs are captured and replayed across evictions" {
  contend
  tenant graph graph --bytes 192MiB --replays 6 --gap-ms 300
  succeeds graph
}

@test "a long capture is not disturbed" {
  contend
  tenant graph graph --bytes 192MiB --steps 8 --capture-ms 3000 --replays 3
  succeeds graph
}

@test "invalidated captures do not keep the GPU from others" {
  start_arbiter
  tenant captures captures --bytes 75% --seconds 600
  progresses captures
  tenant rival hold --bytes 75% --of 256MiB --iterations 10 --verify
  succeeds rival
}

@test "captures that are invalidated beside a rival disturb no tenant" {
  contend
  tenant captures captures --bytes 192MiB --seconds 3
  succeeds captures
}

@test "memory that was freed in one capture does not break a later one" {
  start_arbiter
  tenant alone waits after-free
  succeeds alone
}

@test "many threads and streams take turns with a rival" {
  contend
  tenant threads threads --bytes 192MiB --threads 8 --iterations 30
  succeeds threads
}

@test "many small blocks take turns with a rival" {
  contend
  tenant small small_blocks --rounds 1500
  succeeds small
}

@test "stream-ordered allocations take turns with a rival" {
  contend
  tenant async async_alloc --rounds 10
  succeeds async
}

@test "memory pools" {
  contend
  tenant pools pools
  succeeds pools
}

@test "memory pools behave as on plain CUDA" {
  plain pools pools
  succeeds pools
}

@test "memory pools work if the driver creates no events" {
  start_arbiter
  SIMGPU_FAIL=cuEventCreate:1+:CUDA_ERROR_OUT_OF_MEMORY tenant pools pools --rounds 50
  succeeds pools
}

@test "stream-ordered memory is swapped" {
  contend
  tenant async async_alloc --rounds 4 --bytes 67108864
  succeeds async
}

@test "the program's own virtual memory is counted as long as it exists" {
  start_arbiter
  tenant vmm vmm --hold 2
  until_true 60 grep -q verified "$DIR/vmm.out"
  until_true 30 json_is 's["tenants"][0]["footprint_bytes"]' $((6 * 10 << 20))
  until_true 60 grep -q 'given back' "$DIR/vmm.out"
  until_true 30 json_is 's["tenants"][0]["footprint_bytes"]' 0
  succeeds vmm
}

@test "mappings that the program makes of host memory are not counted and never move, while other memory is swapped" {
  start_arbiter
  tenant alone own_memory --bytes 192MiB --host --seconds 3
  until_true 30 json_is 's["tenants"][0]["footprint_bytes"]' $((96 << 20))
  succeeds alone
  (($(gpu peak) < 110 << 20))
  tenant rival hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
  SHAREDGPU_DEBUG=1 tenant own own_memory --bytes 256MiB --host --seconds 5
  until_true 30 json_is 'min(t["footprint_bytes"] for t in s["tenants"])' $((128 << 20))
  succeeds own
  grep -q " drained, " "$DIR/own.err" # the half that is device memory was evicted during the run
}

@test "the program's own memory is pinned in place once it is registered with a network card" {
  start_arbiter
  tenant rival hold --bytes 50% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
  local how
  for how in dmabuf:2 memops:1 tokens:1; do
    tenant "$how" exported --how "${how%:*}" --shown "${how#*:}" --seconds 3
    progresses "$how"
    until_true 30 json_is 'max(t["pinned_bytes"] for t in s["tenants"])' $((${how#*:} * 32 << 20))
    succeeds "$how"
    grep -q verified "$DIR/$how.out"
  done
}

@test "the program's own memory becomes one handle and is pinned in place when the program exports it" {
  start_arbiter Oversize=yes
  tenant rival hold --bytes 25% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
  SHAREDGPU_DEBUG=1 tenant shared exported --how handle --bytes $((128 << 20)) --pieces 1 --shown 1 --seconds 3
  progresses shared
  until_true 30 json_is 'max(t["pinned_bytes"] for t in s["tenants"])' $((128 << 20))
  succeeds shared
  grep -q verified "$DIR/shared.out"
  [[ $(grep -c 'made one handle of several' "$DIR/shared.err") -ge 1 ]]
}

@test "the memory of graphs is counted until it is trimmed" {
  start_arbiter
  tenant graphs graph_memory --hold 2
  until_true 60 grep -q verified "$DIR/graphs.out"
  kept=$(awk '{ print $3 }' "$DIR/graphs.out")
  ((kept >= 16 << 20))
  until_true 30 json_is 's["tenants"][0]["pinned_bytes"]' "$kept"
  until_true 60 grep -q trimmed "$DIR/graphs.out"
  until_true 30 json_is 's["tenants"][0]["pinned_bytes"]' 0
  succeeds graphs
}

@test "a graph gets memory that an idle tenant occupies" {
  start_arbiter
  tenant rival hold --bytes 60% --of 256MiB --seconds 600 --gap-ms 200 --progress
  progresses rival
  tenant graphs graph_memory --bytes $((40 << 20)) --hold 2
  until_true 60 grep -q verified "$DIR/graphs.out"
  until_true 30 json_is 'max(t["pinned_bytes"] for t in s["tenants"])' $((80 << 20))
  succeeds graphs
}

@test "a pool that can be shared is counted by the memory that it holds" {
  start_arbiter
  tenant pools pools --rounds 10 --hold 2
  until_true 60 grep -q shareable "$DIR/pools.out"
  kept=$(awk '/shareable/ { print $3 }' "$DIR/pools.out")
  ((kept >= 3 << 20))
  until_true 30 json_is 's["tenants"][0]["pinned_bytes"]' "$kept"
  until_true 60 grep -q freed "$DIR/pools.out"
  until_true 30 json_is 's["tenants"][0]["pinned_bytes"]' 0
  succeeds pools
}

@test "every error is the driver's own, also after a kernel has failed" {
  start_arbiter
  export SIMGPU_LAUNCH_FAIL_AT=1
  plain plain errors --no-handles
  succeeds plain
  grep -q LAUNCH_FAILED "$DIR/plain.out"
  local backend
  for backend in swap managed native; do
    SHAREDGPU_BACKEND=$backend tenant $backend errors --no-handles
    succeeds $backend
    diff "$DIR/plain.out" "$DIR/$backend.out"
  done
}

@test "fork before and after cuInit" {
  contend
  tenant fork fork
  succeeds fork
}

@test "every door into the driver" {
  contend
  tenant doors getproc
  succeeds doors
}

@test "arrays of every kind are counted as pinned as long as they exist, and keep their contents" {
  plain plain arrays --seconds 1
  succeeds plain
  start_arbiter
  tenant arrays arrays --hold 2
  local stage size
  for stage in made destroyed "another context's" "gone with their context"; do
    until_true 60 grep -q "^$stage" "$DIR/arrays.out"
    size=$(awk '{ print $NF; exit }' "$DIR/arrays.out")
    [[ $stage == made || $stage == another* ]] || size=0
    until_true 30 json_is 's["tenants"][0]["pinned_bytes"]' "$size"
  done
  succeeds arrays
  tenant rival hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
  SHAREDGPU_DEBUG=1 tenant beside arrays --bytes 128MiB --seconds 5
  succeeds beside
  grep -q " drained, " "$DIR/beside.err"
}

@test "programs that open libcuda.so.1 themselves, close it and open it again" {
  contend
  local door
  for door in "" --resolver; do
    SHAREDGPU_DEBUG=1 tenant "library$door" library --rounds 6 $door
    succeeds "library$door"
    grep -q attached "$DIR/library$door.err"
  done
}

@test "memory figures agree with each other without a rival" {
  start_arbiter
  tenant figures memgetinfo --all
  succeeds figures
}

@test "memory figures agree with each other, beside a rival" {
  contend
  tenant figures memgetinfo
  succeeds figures
}

@test "however a program ends in its turn, its memory and lease are free" {
  start_arbiter
  local how
  for how in return exit _exit abort kill destroy; do
    tenant "$how" exit_midturn --bytes 128MiB --how "$how"
    finish "$how"
    until_true 30 used_is 0
    until_true 30 json_is 'len(s["tenants"])' 0
  done
}

@test "a program that uses no GPU opens no connection" {
  start_arbiter
  LD_PRELOAD=$PRELOAD "$PROGRAMS/nocuda" >"$DIR/nocuda.out"
  run ! grep -q socket: <(sed -n '/^files/,/^environment/p' "$DIR/nocuda.out")
  json_is 'len(s["tenants"])' 0
}

@test "destroying a context frees its memory and nothing else" {
  plain plain context_end
  succeeds plain
  start_arbiter
  tenant swapped context_end
  succeeds swapped
}

@test "a context that the driver refuses to destroy loses nothing" {
  start_arbiter
  export SIMGPU_FAIL=cuCtxDestroy:2:CUDA_ERROR_UNKNOWN,cuDevicePrimaryCtxReset:1:CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE
  plain plain context_end --refused
  succeeds plain
  tenant swapped context_end --refused
  succeeds swapped
}

@test "buffers that kernels find by their arguments or only by a table of pointers" {
  contend
  local options sized="oversized --count 12 --bytes 12MiB --iterations 30"
  # shellcheck disable=SC2086
  for options in "--kind stream --threads 3 --pool" "--kind product --graph --churn" "--kind hidden --own --churn"; do
    SHAREDGPU_DEBUG=1 tenant many $sized $options
    succeeds many
    grep -q "every word verified" "$DIR/many.out"
    grep -q " drained, " "$DIR/many.err" # the program's memory was evicted during the run
  done
}

@test "memory that the program makes and maps itself" {
  contend
  export SHAREDGPU_DEBUG=1
  tenant own own_memory --seconds 5
  succeeds own
  grep -q " drained, " "$DIR/own.err" # the program's memory was evicted during the run

  tenant exportable own_memory --seconds 5 --exportable
  succeeds exportable
  grep -q " drained, " "$DIR/exportable.err"
}
