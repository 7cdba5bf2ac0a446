#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests Mps=yes: the arbiter runs the MPS control daemon, and deadlines limit the threads of programs that start. A
# script replaces the daemon. The tests check the start of the script and the environment variables of programs.
load helpers

stand_in() {
  export MPS_STARTS=$DIR/starts
  mkdir -p "$DIR/bin"
  cp "$BATS_TEST_DIRNAME/../stand_ins/nvidia-cuda-mps-control" "$DIR/bin/"
  PATH=$DIR/bin:$PATH
}

starts() { wc -l <"$MPS_STARTS"; }
daemon() { cat "$DIR/mps/nvidia-cuda-mps-control.pid"; }
# told [OPTION...]: starts a program and prints the variables for MPS in its environment.
told() { "$SHAREDGPU" run "$@" -- env | grep ^CUDA_MPS_ | sort | tr '\n' ' '; }
told_is() { [[ $(told "${@:2}") == "${1:+CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$1 CUDA_MPS_PIPE_DIRECTORY=$DIR/mps }" ]]; }
serves() { PIDS[mps]=$(daemon) && told_is 100; }

@test "the control daemon runs for all users, is found by programs, outlives the arbiter and is restarted if it ends" {
  stand_in
  start_arbiter Mps=yes
  until_true 10 serves
  [[ $(<"$MPS_STARTS") == "-f -M $DIR/state/mps" ]]
  told_is 40 --share 20:40
  local first
  first=$(daemon)

  kill -9 "$ARBITER"
  wait "$ARBITER" || true
  run_arbiter
  until_true 10 serves
  [[ $(daemon) == "$first" && $(starts) == 1 ]]
  grep -q 'uses the control daemon that an earlier arbiter started' "$DIR/arbiter.log"

  kill -9 "$first"
  until_true 10 told_is ''
  until_true 10 serves
  [[ $(daemon) != "$first" && $(starts) == 2 ]]
  kill -9 "$(daemon)"
  until_true 20 serves
  grep -q 'control daemon has ended by signal 9' "$DIR/arbiter.log"
}

@test "a control daemon that cannot start is logged, and programs run without MPS" {
  stand_in
  touch "$MPS_STARTS.bad"
  start_arbiter Mps=yes
  until_true 10 grep -q 'control daemon has ended with status 3; see ' "$DIR/arbiter.log"
  grep -q 'no GPU' "$DIR/state/mps/control.out"
  told_is ''
  rm "$DIR/bin/nvidia-cuda-mps-control" "$MPS_STARTS.bad"
  until_true 10 grep -q 'nvidia-cuda-mps-control: No such file' "$DIR/arbiter.log"
  told_is ''
  tenant one hold --bytes 10% --seconds 1 --verify
  succeeds one
}

@test "missed deadlines leave fewer threads, but no less time, to programs of a lower priority that start" {
  stand_in
  start_arbiter Policy=deadline Quantum=auto Mps=yes
  until_true 10 serves
  tenant background hold --bytes 10% --of 256MiB --kernel-ms 5 --seconds 600 --progress
  progresses background
  "$SHAREDGPU" run --deadline 1ms -- "$PROGRAMS/paced" --pieces 100000 --deadline-ms 0 >"$DIR/paced.out" 2>&1 3>&- &
  PIDS[paced]=$!
  until_true 60 json_is 's["gpus"][0]["threads_left"] == 0.05' True
  told_is 13 --priority -1 # the tenant's request: one unit of eight
  told_is 100              # a program of the same priority gets all threads
  json_is 'sum(t["lease"] for t in s["tenants"])' 2 # both tenants hold leases at once
  json_is '[t["share_allowed"] for t in s["tenants"]]' '[1.0, 1.0]'
  kill "${PIDS[paced]}"
  until_true 30 told_is 100 --priority -1
}
