#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The job's memory cgroup and the site's settings limit how much device memory is swapped to host memory. Swapping never
# ends a job.
load helpers

# The simulated GPU has much more memory than a process needs on the host for itself.
large_gpu() { export SIMGPU_MEMORY=512MiB SIMGPU_CONTEXT=8MiB; }

# A separate process is charged for the simulated GPU's memory. Jobs are not charged, as with the memory of a real GPU.
start_board() {
  "$BUILD/tests/simgpu/simgpu-board" "$DIR/board" 3>&- &
  PIDS[board]=$!
  until_true 20 test -S "$DIR/board"
  export SIMGPU_BOARD=$DIR/board
}

# confined NAME PROGRAM ARGUMENT...: starts a tenant in the cgroup GROUP.
confined() {
  local name=$1 program=$2
  shift 2
  bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$GROUP" \
    "$SHAREDGPU" run -- "$PROGRAMS/$program" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

# oom_kills: prints how often the Linux kernel has ended a process of GROUP for lack of memory.
oom_kills() { sed -n 's/^oom_kill //p' "$GROUP"/memory.{oom_control,events} 2>/dev/null; }

end_group() {
  local name
  for name in "$@"; do succeeds "$name"; done
  [[ $(oom_kills) == 0 ]]
  until_true 20 rmdir "$GROUP"
}

@test "an allocation that host memory could never hold is refused with a message, and the program goes on" {
  large_gpu
  own_group 256
  start_board
  start_arbiter
  confined small ram --refused 240MiB --bytes 192MiB --after "$DIR/go"
  progresses small
  until_true 20 json_is '[t["host_budget_bytes"] >> 20 for t in s["tenants"]]' '[224]'
  "$SHAREDGPU" status | grep -E 'HOST +BUDGET'
  tenant other hold --bytes 75% --of 512MiB --seconds 2 --verify
  touch "$DIR/go"
  succeeds small
  confined huge ram --refused 2GiB --bytes 64MiB
  end_group other huge
  [[ $(grep -c 'device memory refused' "$DIR/huge.err") == 1 ]]
  grep -F 'no option helps, since the program needs 2048 MiB on a GPU of' "$DIR/huge.err"
  [[ $(grep -c 'device memory refused: this job.s host memory could never hold more than 224 MiB' "$DIR/small.err") == 1 ]]
  # The limit that the message names suffices for 240 MiB, the margin and the program's own memory.
  local named
  named=$(sed -n 's/.*request a limit of \([0-9]*\)M for .*/\1/p' "$DIR/small.err")
  ((named >= 272 && named < 512))
}

set_limit() { echo "$(($1 << 20))" >"$(limit_of_group)"; }
limit_of_group() { ls "$GROUP"/memory.limit_in_bytes "$GROUP"/memory.max 2>/dev/null; }

@test "a limit that changes while a job runs is followed, upwards and downwards" {
  large_gpu
  own_group 256
  start_board
  start_arbiter
  confined small hold --bytes 64MiB --seconds 60
  until_true 20 json_is '[t["host_budget_bytes"] >> 20 for t in s["tenants"]]' '[224]'
  json_is '[(t["job_memory_bytes"] >> 20, t["units_memory_bytes"]) for t in s["tenants"]]' '[(256, None)]'
  set_limit 384
  until_true 20 json_is '[t["host_budget_bytes"] >> 20 for t in s["tenants"]]' '[352]'
  confined large ram --refused 400MiB --bytes 208MiB
  succeeds large
  set_limit 512
  confined large ram --bytes 400MiB
  succeeds large
  set_limit 192
  until_true 20 json_is '[t["job_memory_bytes"] >> 20 for t in s["tenants"] if t["pids"]]' '[192]'
  kill "${PIDS[small]}"
  wait "${PIDS[small]}" || true
  until_true 20 rmdir "$GROUP"
}

@test "a job that fills its host memory while device memory is evicted gets the device memory back in time" {
  large_gpu
  own_group 896
  start_board
  start_arbiter Quantum=10m
  # If the device memory did not return to the GPU, the job would need 448 + 460 MiB and more.
  confined filler ram --bytes 448MiB --after "$DIR/go" --at-once 390MiB --slowly 70MiB
  progresses filler
  tenant other hold --bytes 448MiB --seconds 8 --verify
  until_true 60 json_is '[t["resident_bytes"] for t in s["tenants"] if t["host_bytes"] >= 448 << 20]' '[0]'
  touch "$DIR/go"
  end_group filler other
  grep -F '460 MiB of host memory taken, every byte verified' "$DIR/filler.out"
}

@test "a job that fills its host memory during the eviction keeps its device memory, says so once, and others wait" {
  large_gpu
  own_group 768
  start_board
  start_arbiter Quantum=300ms
  confined filler ram --bytes 384MiB --at-once 480MiB --slowly 30MiB --working
  progresses filler
  tenant other hold --bytes 75% --of 512MiB --seconds 1 --verify
  end_group filler other
  [[ $(grep -c 'has no room for the device memory that must be evicted' "$DIR/filler.err") == 1 ]]
  grep -F 'could not evict all of its memory' "$DIR/arbiter.log"
}

@test "SwapPerUnit bounds all processes of a tenant together" {
  large_gpu
  start_arbiter SwapPerUnit=320MiB Quantum=300ms
  "$SHAREDGPU" run -- bash -c '"$1/hold" --bytes 200MiB --seconds 5 --verify & sleep 1; "$1/ram" --refused 128MiB --bytes 112MiB --slowly 30MiB --working && wait $!' - "$PROGRAMS" \
    >"$DIR/both.out" 2>"$DIR/both.err" 3>&- &
  PIDS[both]=$!
  until_true 60 grep -q ready "$DIR/both.out"
  SHAREDGPU_DEBUG=1 tenant other hold --bytes 304MiB --seconds 3 --verify
  local most=0 now
  while kill -0 "${PIDS[both]}" 2>/dev/null; do
    now=$(json 'max([t["host_bytes"] for t in s["tenants"] if len(t["pids"]) > 1] or [0])')
    ((now > most)) && most=$now
    sleep 0.1
  done
  all_succeed both other
  ((most > 0 && most <= 320 << 20))
  grep -q 'could never hold more than 320 MiB' "$DIR/both.err"
  [[ $(grep -c 'device memory refused' "$DIR/both.err") == 1 ]]
  grep -q 'request sharedgpu run --units=2' "$DIR/both.err"
}

@test "one message tells a job that memory was refused, whichever of its processes prints it, also for the job's own limit" {
  large_gpu
  start_arbiter SwapPerUnit=auto
  "$SHAREDGPU" run -- bash -c '"$1/ram" --refused 80MiB --bytes 8MiB; "$1/ram" --refused 80MiB --bytes 8MiB; "$1/hold" --bytes 16MiB --seconds 3' - "$PROGRAMS" \
    >"$DIR/two.out" 2>"$DIR/two.err" 3>&- &
  PIDS[two]=$!
  until_true 20 json_is '[t["units_memory_bytes"] >> 20 for t in s["tenants"]]' '[64]'
  "$SHAREDGPU" status | grep -E 'BUDGET +BY UNITS +BY JOB'
  all_succeed two
  [[ $(grep -c 'device memory refused' "$DIR/two.err") == 1 ]]
  grep -q 'could never hold more than 64 MiB of it while other jobs have the GPU; request sharedgpu run --units=2' "$DIR/two.err"
  "$SHAREDGPU" run --memory 32MiB -- "$PROGRAMS/ram" --refused 40MiB --bytes 8MiB 2>"$DIR/own.err" >/dev/null
  grep -q 'this job limits itself to 32 MiB; request sharedgpu run --memory=' "$DIR/own.err"
}
