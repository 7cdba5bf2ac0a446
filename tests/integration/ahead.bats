#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests a program that never waits for the GPU. The interposer limits the program's backlog only while other tenants do
# not fit on the GPU beside it. One piece of the program's work takes 2 ms or more.
load helpers

# contend: starts a tenant that holds most of the memory, and wants the GPU once in a while.
contend() {
  start_arbiter
  tenant rival hold --bytes 60% --of 256MiB --seconds 600 --gap-ms 1500 --progress
  progresses rival
}

# hog NAME PIECES ARGUMENT...: starts a tenant that submits PIECES pieces of work without waiting.
hog() {
  local name=$1 pieces=$2
  shift 2
  tenant "$name" hog --bytes 60% --of 256MiB --piece-ms 2 --pieces "$pieces" "$@"
}

unfinished() { sed -n 's/.*at most \([0-9]*\) unfinished/\1/p' "$DIR/$1.out"; }

# kept_short NAME: succeeds if at most 20 pieces were unfinished at once. They take 40 ms, twice the backlog limit.
kept_short() {
  succeeds "$1"
  (($(unfinished "$1") <= 20))
}

@test "a program that shares the GPU has a short queue" {
  contend
  hog hog 400
  kept_short hog
}

@test "the queues of the legacy stream, of per-thread streams, of graphs and of copies are short too" {
  contend
  hog legacy 400 --stream legacy
  kept_short legacy
  hog own 400 --stream own
  kept_short own
  hog graphs 400 --work graphs
  kept_short graphs
  hog copies 150 --work copies
  kept_short copies
}

@test "two programs that never wait take turns" {
  start_arbiter Quantum=300ms
  SHAREDGPU_DEBUG=1 hog one 800
  SHAREDGPU_DEBUG=1 hog two 800 --stream own
  all_succeed one two
  grep -q ' drained, ' "$DIR/one.err"
  grep -q ' drained, ' "$DIR/two.err"
}

@test "a program may queue any amount of work if it is alone or if all tenants fit" {
  start_arbiter
  hog alone 400
  succeeds alone
  (($(unfinished alone) > 100))
  tenant neighbour hold --bytes 20% --of 256MiB --seconds 600 --progress
  progresses neighbour
  hog beside 400
  succeeds beside
  (($(unfinished beside) > 100))
}

# The driver prints each call of cuEventRecord, which it refuses. The program itself records no events, so these calls
# come from the interposer.
@test "events are recorded only if the GPU is oversubscribed, and recording may fail" {
  export SIMGPU_FAIL=cuEventRecord:1+:CUDA_ERROR_UNKNOWN SIMGPU_VERBOSE=1
  start_arbiter
  tenant first hold --bytes 60% --of 256MiB --seconds 600 --gap-ms 500 --progress
  progresses first
  tenant small hold --bytes 5% --of 256MiB --iterations 100 --verify
  succeeds small
  run ! grep -q cuEventRecord "$DIR/first.err" "$DIR/small.err"
  tenant big hold --bytes 60% --of 256MiB --iterations 100 --verify
  succeeds big
  grep -q cuEventRecord "$DIR/big.err"
}

@test "work that waits on the GPU for the program's next submission finishes" {
  contend
  hog stalls 200 --stall-every 50
  succeeds stalls
}
