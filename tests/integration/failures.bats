#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests deaths of processes and failures of the driver: other tenants end with right results, and no program computes
# with wrong data.
load helpers

# Succeeds if a tenant with a failing driver has ended with right results or with an error, and never with wrong data.
right_or_error() {
  finish "$1"
  if grep -q 'wrong' "$DIR/$1.err"; then
    tell
    return 1
  fi
}

@test "kill -9 of a tenant in its turn" {
  start_arbiter
  tenant victim hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses victim
  tenant other hold --bytes 75% --of 256MiB --seconds 3 --verify
  until_true 60 json_is 'len(s["tenants"])' 2
  until_true 60 json_is '[t["state"] for t in s["tenants"] if '"${PIDS[victim]}"' in t["pids"]]' "['running']"
  kill -9 "${PIDS[victim]}"
  succeeds other
  until_true 10 used_is 0
}

@test "kill -9 of a waiting tenant" {
  start_arbiter
  tenant victim hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses victim
  tenant other hold --bytes 75% --of 256MiB --seconds 3 --verify
  until_true 60 json_is '[t["state"] for t in s["tenants"] if '"${PIDS[victim]}"' in t["pids"]]' "['out']"
  kill -9 "${PIDS[victim]}"
  succeeds other
  until_true 10 used_is 0
}

@test "kill -9 of the arbiter in handoffs, and a new arbiter" {
  start_arbiter
  tenant one hold --bytes 75% --of 256MiB --seconds 8 --seed 1 --verify
  tenant two hold --bytes 75% --of 256MiB --seconds 8 --seed 2 --verify
  for _ in 1 2 3; do
    # A handoff is in progress if one of the two tenants is neither "out" nor "running" in the status.
    until_true 60 json_is 'any(t["state"] in ("leaving", "entering") for t in s["tenants"])' True
    kill -9 "$ARBITER"
    wait "$ARBITER" || true
    run_arbiter
  done
  all_succeed one two
  (($(gpu peak) <= 256 << 20))
  until_true 20 json_is 's["tenants"]' '[]'
}

@test "a run whose program uses no GPU yet stays the same tenant under a new arbiter, until the program ends" {
  start_arbiter
  "$SHAREDGPU" run -- bash -c 'until [[ -e $0 ]]; do sleep 0.1; done; shift; exec "$@"' "$DIR/go" \
    - "$PROGRAMS/hold" --bytes 50% --seconds 1 --verify >"$DIR/late.out" 2>"$DIR/late.err" 3>&- &
  PIDS[late]=$!
  until_true 20 json_is 'len(s["tenants"])' 1
  local id
  id=$(json 's["tenants"][0]["id"]')
  kill -9 "$ARBITER"
  wait "$ARBITER" || true
  run_arbiter
  json_is '[t["id"] for t in s["tenants"]]' "[$id]"
  touch "$DIR/go"
  until_true 20 json_is '[(t["id"], len(t["sessions"])) for t in s["tenants"]]' "[($id, 1)]"
  succeeds late
  until_true 20 json_is 's["tenants"]' '[]'
}

@test "a run that ends while there is no arbiter does not exist for the next one" {
  start_arbiter
  tenant one hold --bytes 50% --seconds 600 --progress
  progresses one
  kill -9 "$ARBITER" "${PIDS[one]}"
  wait "$ARBITER" || true
  finish one || true
  run_arbiter
  json_is 's["tenants"]' '[]'
}

@test "the arbiter is gone for a while: the running tenant goes on, the waiting one waits" {
  start_arbiter
  tenant one hold --bytes 75% --of 256MiB --iterations 30 --kernel-ms 50 --seed 1 --verify
  tenant two hold --bytes 75% --of 256MiB --iterations 30 --kernel-ms 50 --seed 2 --verify
  until_true 60 json_is 'len(s["tenants"])' 2
  kill -9 "$ARBITER"
  wait "$ARBITER" || true
  sleep 2
  run_arbiter
  all_succeed one two
}

@test "no arbiter: plain CUDA and one line that says so" {
  SHAREDGPU_ARBITER_TIMEOUT=200 LD_PRELOAD=$PRELOAD run -0 "$PROGRAMS/hold" --bytes 10% --verify
  [[ $(grep -c sharedgpu <<<"$output") == 1 ]]
  [[ $output == *"no arbiter at $SHAREDGPU_SOCKET"* ]]
}

@test "no arbiter and SHAREDGPU_ON_NO_ARBITER=fail: the first CUDA call fails" {
  SHAREDGPU_ON_NO_ARBITER=fail SHAREDGPU_ARBITER_TIMEOUT=200 LD_PRELOAD=$PRELOAD run "$PROGRAMS/hold" --bytes 10%
  ((status == 1))
  [[ $output == *"no arbiter at $SHAREDGPU_SOCKET"* ]]
  [[ $output == *"cuInit: CUDA_ERROR_"* ]]
}

@test "Tenants=jobs: a process in no job, and in no run of an administrator, uses plain CUDA, or fails if so configured, and is told why" {
  start_arbiter Tenants=jobs
  why="the GPUs here are for jobs, and for runs that an administrator starts for a user"
  LD_PRELOAD=$PRELOAD run -0 "$PROGRAMS/hold" --bytes 10% --verify
  [[ $output == *"refused by the arbiter ($why"*"running as plain CUDA"* ]]
  SHAREDGPU_ON_NO_ARBITER=fail LD_PRELOAD=$PRELOAD run "$PROGRAMS/hold" --bytes 10%
  ((status == 1))
  [[ $output == *"refused by the arbiter ($why"*"cuInit: CUDA_ERROR_"* ]]
  run -0 "$SHAREDGPU" run -- "$PROGRAMS/hold" --bytes 10% --verify
  [[ $output == *"the arbiter refused: $why"*"; running without sharing"* ]]
  json_is 'len(s["tenants"])' 0
  run -0 "$SHAREDGPU" run --user root --units 1 -- "$PROGRAMS/hold" --bytes 10% --verify
  [[ $output != *refused* ]]
}

@test "--tenants counts if the settings have no Tenants" {
  printf 'Socket=%s\nStateDir=%s\n' "$SHAREDGPU_SOCKET" "$DIR/state" >"$DIR/conf"
  refused() { LD_PRELOAD=$PRELOAD "$PROGRAMS/hold" --bytes 10% 2>&1 | grep -c "refused by the arbiter"; }
  serve() {
    "$BUILD/arbiter/sharedgpud" --config "$DIR/conf" --tenants jobs >>"$DIR/arbiter.log" 2>&1 3>&- &
    ARBITER=$!
    until_true 30 timeout 10 "$SHAREDGPU" status >/dev/null
  }
  serve
  [[ $(refused) == 1 ]]
  kill "$ARBITER"
  wait "$ARBITER" || true
  echo Tenants=any >>"$DIR/conf"
  serve
  [[ $(refused) == 0 ]]
}

@test "a program waits for an arbiter that comes a little late" {
  SHAREDGPU_ARBITER_TIMEOUT=60000 LD_PRELOAD=$PRELOAD plain late hold --bytes 10% --seconds 600 --progress
  sleep 1
  start_arbiter
  until_true 60 json_is 'len(s["tenants"])' 1
}

@test "a process that loses its device gets the driver's error, and the other ends right" {
  start_arbiter
  SIMGPU_LOST_FILE=$DIR/lost tenant loser hold --bytes 75% --of 256MiB --seconds 600 --progress
  tenant other hold --bytes 75% --of 256MiB --seconds 4 --verify
  progresses loser
  touch "$DIR/lost"
  right_or_error loser
  ((status == 1))
  grep -q CUDA_ERROR_UNKNOWN "$DIR/loser.err"
  succeeds other
}

@test "a tenant that waits while its device is lost gets the driver's error" {
  start_arbiter
  SIMGPU_LOST_FILE=$DIR/lost tenant loser hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses loser
  tenant other hold --bytes 75% --of 256MiB --seconds 600 --kernel-ms 400 --progress
  until_true 60 json_is '[t["state"] for t in s["tenants"] if '"${PIDS[loser]}"' in t["pids"]]' "['out']"
  until_true 60 json_is '[t["state"] for t in s["tenants"] if '"${PIDS[other]}"' in t["pids"]]' "['running']"
  touch "$DIR/lost"
  right_or_error loser
  ((status == 1))
  grep -q CUDA_ERROR_UNKNOWN "$DIR/loser.err"
  kill -0 "${PIDS[other]}"
}

@test "a program whose launch fails gets the error, and the other ends right" {
  start_arbiter
  SIMGPU_LAUNCH_FAIL_AT=4 tenant loser hold --bytes 75% --of 256MiB --iterations 20 --verify
  tenant other hold --bytes 75% --of 256MiB --iterations 20 --verify
  right_or_error loser
  ((status == 1))
  grep -q CUDA_ERROR_LAUNCH_FAILED "$DIR/loser.err"
  succeeds other
}

# pair_with FAULT: runs two tenants, one of them with a driver call that fails. Both tenants work for more than one
# turn.
pair_with() {
  start_arbiter Quantum=300ms
  SIMGPU_VERBOSE=1 SIMGPU_FAIL=$1 tenant faulty \
    hold --bytes 75% --of 256MiB --iterations 20 --kernel-ms 40 --seed 1 --verify
  tenant other hold --bytes 75% --of 256MiB --iterations 20 --kernel-ms 40 --seed 2 --verify
  right_or_error faulty
  grep -q '^simgpu: call .* fails$' "$DIR/faulty.err" || { tell; false; }
  succeeds other
  used_is 0
}

@test "the device has no memory for one handle of a restore" { pair_with cuMemCreate:8:CUDA_ERROR_OUT_OF_MEMORY; }
@test "mapping fails once in a restore" { pair_with cuMemMap:9:CUDA_ERROR_OUT_OF_MEMORY; }
@test "setting access fails once in a restore" { pair_with cuMemSetAccess:9:CUDA_ERROR_OUT_OF_MEMORY; }
@test "a copy out fails once in an eviction" { pair_with cuMemcpyDtoHAsync:3:CUDA_ERROR_UNKNOWN; }
@test "a copy in fails once in a restore" { pair_with cuMemcpyHtoDAsync:2:CUDA_ERROR_UNKNOWN; }
@test "waiting for a copy fails once" { pair_with cuStreamSynchronize:2:CUDA_ERROR_UNKNOWN; }
@test "unmapping fails once in an eviction" { pair_with cuMemUnmap:2:CUDA_ERROR_UNKNOWN; }
@test "pinning host memory never works" { pair_with cuMemHostRegister:1+:CUDA_ERROR_OUT_OF_MEMORY; }
@test "streams for the copies cannot be made" { pair_with cuStreamCreate:1+:CUDA_ERROR_OUT_OF_MEMORY; }
