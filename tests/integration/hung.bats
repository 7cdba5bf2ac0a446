#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests a hung arbiter: programs treat it like a dead arbiter, until it answers again.
load helpers

stop_arbiter() { kill -STOP "$ARBITER"; }
continue_arbiter() { kill -CONT "$ARBITER"; }

@test "a program beside a hung arbiter goes on, and is managed again afterwards" {
  start_arbiter
  SHAREDGPU_ARBITER_TIMEOUT=1000 tenant one hold --bytes 40% --of 256MiB --seconds 600 --progress
  progresses one
  stop_arbiter
  # The program allocates memory, queries the amount of memory and frees memory while the arbiter does not answer.
  tenant two memgetinfo
  finish two
  continue_arbiter
  until_true 60 timeout 10 "$SHAREDGPU" status >/dev/null
  tenant three hold --bytes 75% --of 256MiB --iterations 10 --verify
  succeeds three
  json_is 'len(s["tenants"])' 1
}

@test "a program that started before the arbiter hung goes on allocating" {
  start_arbiter ArbiterTimeout=1s
  tenant busy workers --processes 2 --bytes 8MiB --steps 200
  until_true 60 json_is 'max([0] + [len(t["pids"]) for t in s["tenants"]])' 2
  stop_arbiter
  # The two processes free their memory and end. Then their parent uses the GPU, and gets no answer from the arbiter.
  succeeds busy
  continue_arbiter
  until_true 60 json_is 'len(s["tenants"])' 0
}

@test "a program that starts under a hung arbiter is plain CUDA after the timeout" {
  start_arbiter
  stop_arbiter
  SHAREDGPU_ARBITER_TIMEOUT=200 LD_PRELOAD=$PRELOAD run -0 "$PROGRAMS/hold" --bytes 10% --verify
  [[ $output == *"no arbiter at $SHAREDGPU_SOCKET"* ]]
}

@test "status and run say that the arbiter does not answer" {
  start_arbiter ArbiterTimeout=1s
  stop_arbiter
  run timeout 60 "$SHAREDGPU" status --config "$DIR/conf"
  ((status == 1))
  [[ $output == *"does not answer"* ]]
  run timeout 60 "$SHAREDGPU" run --config "$DIR/conf" -- true
  ((status == 0))
  [[ $output == *"does not answer"*"running without sharing"* ]]
}

@test "turns go on after the arbiter has hung in a handoff" {
  start_arbiter
  tenant one hold --bytes 75% --of 256MiB --seconds 8 --seed 1 --verify
  tenant two hold --bytes 75% --of 256MiB --seconds 8 --seed 2 --verify
  for _ in 1 2 3; do
    until_true 60 json_is 'any(t["state"] in ("leaving", "entering") for t in s["tenants"])' True
    stop_arbiter
    sleep 1
    continue_arbiter
  done
  all_succeed one two
  (($(gpu peak) <= 256 << 20))
}

# supervised: prints the pid of the supervisor's child, which is the arbiter.
supervised() { cat "/proc/$ARBITER/task/$ARBITER/children"; }
another_answers() { local pid; pid=$(supervised) && [[ $pid && $pid != "$1" ]] && timeout 10 "$SHAREDGPU" status; }

# supervise: starts a supervisor as ARBITER, and sets `old` to its arbiter.
supervise() {
  start_arbiter
  kill "$ARBITER"
  wait "$ARBITER"
  "$SHAREDGPU" supervise --config "$DIR/conf" >"$DIR/supervise.log" 2>&1 3>&- &
  ARBITER=$!
  until_true 30 another_answers none
  old=$(supervised)
  # If the supervisor is ended by SIGKILL, the arbiter stays, so the teardown must end it.
  PIDS[arbiter]=${old% }
}

@test "a supervisor kills a hung arbiter and starts another; it leaves one alone that answers" {
  supervise
  tenant one hold --bytes 75% --of 256MiB --seconds 20 --seed 1 --verify
  tenant two hold --bytes 75% --of 256MiB --seconds 20 --seed 2 --verify
  sleep 12 # longer than an arbiter may be silent
  [ "$(supervised)" = "$old" ]
  kill -STOP "$old"
  until_true 30 another_answers "$old"
  grep -q "the arbiter does not answer; ending it" "$DIR/supervise.log"
  PIDS[arbiter]=$(supervised)
  all_succeed one two
  kill "$ARBITER"
  wait "$ARBITER"
  run ! kill -0 "${PIDS[arbiter]}"
}

@test "a supervisor that gets SIGUSR1 restarts the arbiter, and tenants keep their memory" {
  supervise
  tenant one hold --bytes 75% --of 256MiB --seconds 4 --seed 1 --verify
  tenant two hold --bytes 75% --of 256MiB --seconds 4 --seed 2 --verify
  sleep 1
  kill -USR1 "$ARBITER"
  until_true 30 another_answers "$old"
  grep -q "the arbiter ended .* for its restart" "$DIR/supervise.log"
  PIDS[arbiter]=$(supervised)
  all_succeed one two
  kill "$ARBITER"
  wait "$ARBITER"
}

@test "a program waits for an arbiter that delays a growth because another tenant makes no room" {
  start_arbiter
  tenant one hold --bytes 75% --of 256MiB --seconds 4 --verify --progress
  progresses one
  kill -STOP "${PIDS[one]}"
  LD_PRELOAD=$PRELOAD SHAREDGPU_ARBITER_TIMEOUT=1000 plain two hold --bytes 75% --of 256MiB --verify
  sleep 6 # longer than the arbiter may be silent, and longer than a program retries a refused allocation
  kill -0 "${PIDS[two]}"
  kill -CONT "${PIDS[one]}"
  all_succeed one two
}
