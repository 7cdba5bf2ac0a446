#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A program that never waits for the GPU. Beside tenants with which it does not fit there, what it has queued is
# kept short; else nothing is done about it. A piece of its work takes 2 ms or more.
load helpers

# contend: somebody holds most of the memory, and wants the GPU once in a while.
contend() {
  start_arbiter
  tenant rival hold --bytes 60% --of 512MiB --seconds 600 --gap-ms 1500 --progress
  progresses rival
}

# hog NAME PIECES ARGUMENT...
hog() {
  local name=$1 pieces=$2
  shift 2
  tenant "$name" hog --bytes 60% --of 512MiB --piece-ms 2 --pieces "$pieces" "$@"
}

unfinished() { sed -n 's/.*at most \([0-9]*\) unfinished/\1/p' "$DIR/$1.out"; }

# Twice 20 ms: while it is learned how long a piece takes, it may be more.
kept_short() {
  succeeds "$1"
  (($(unfinished "$1") <= 20))
}

@test "beside others a program's queue is short" {
  contend
  hog hog 400
  kept_short hog
}

@test "so is that of the legacy stream, of a thread's own, of graphs and of copies" {
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

@test "two that never wait take turns" {
  start_arbiter Quantum=300ms
  hog one 800
  hog two 800 --stream own
  all_succeed one two
  json_is 's["tenants"]' '[]'
}

@test "alone, and where all fit, a program may queue what it likes" {
  start_arbiter
  hog alone 400
  succeeds alone
  (($(unfinished alone) > 100))
  tenant neighbour hold --bytes 20% --of 512MiB --seconds 600 --progress
  progresses neighbour
  hog beside 400
  succeeds beside
  (($(unfinished beside) > 100))
}

@test "work that waits on the GPU for what the program submits next comes to its end" {
  contend
  hog stalls 200 --stall-every 50
  succeeds stalls
}
