#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests tenants that do not leave the GPU when their turn is over, while other tenants wait for the GPU.
load helpers

# endless SECONDS: starts a tenant that holds most of the GPU's memory and runs a kernel for SECONDS.
endless() {
  tenant endless hog --bytes 75% --of 256MiB --pieces 1 --piece-ms "$1"000 --progress
  progresses endless
}
first() { json_is "s[\"tenants\"][0]$1" "$2"; }
logged() { grep -q "$1" "$DIR/arbiter.log"; }

@test "a tenant whose kernel does not end is ended with a reason after MaxOveruse, and others go on" {
  start_arbiter MaxOveruse=1s OnOveruse=cancel
  endless 600
  tenant other hold --bytes 75% --of 256MiB --iterations 20 --verify
  finish endless
  ((status == 128 + 15))
  grep -q "the arbiter ends this process: its job has not released GPU 0 for 1 s since its turn ended" \
    "$DIR/endless.err"
  succeeds other
  logged "uid $UID, pid .*: has not released GPU 0 for 1 s .*(MaxOveruse): work on the GPU is not finished"
  until_true 60 json_is 'sum(len(t["pids"]) for t in s["tenants"])' 0
}

@test "a tenant with a long kernel is named in the log and the status, and not ended" {
  start_arbiter MaxOveruse=1s
  endless 8
  tenant other hold --bytes 75% --of 256MiB --iterations 20 --verify
  until_true 60 first '["overdue"]["waits_for"]' work
  "$SHAREDGPU" status | grep -q "(others wait since .* s: work on the GPU is not finished)"
  until_true 60 logged "has not released GPU 0 for 1 s"
  all_succeed endless other
  (($(grep -c "(MaxOveruse)" "$DIR/arbiter.log") == 1))
  run ! grep -q "was sent" "$DIR/arbiter.log"
}

# stops_itself PERCENT SECONDS: starts a tenant that holds PERCENT of the GPU's memory, and stops its process in its
# turn.
stops_itself() {
  start_arbiter MaxOveruse=1s OnOveruse=cancel
  tenant one hold --bytes "$1%" --of 256MiB --seconds "$2" --verify --progress
  progresses one
  kill -STOP "${PIDS[one]}"
}

@test "a tenant that stops itself and leaves another no room is ended after MaxOveruse, and the other goes on" {
  stops_itself 75 60
  tenant two hold --bytes 75% --of 256MiB --iterations 20 --verify
  until_true 60 first '["overdue"]["waits_for"]' stopped
  until_true 60 logged "(MaxOveruse): it is stopped"
  until_true 60 logged "pid ${PIDS[one]}.* was sent SIGTERM"
  kill -CONT "${PIDS[one]}"
  finish one
  ((status == 128 + 15))
  succeeds two
}

@test "a tenant that stops itself beside another that has room is never ended" {
  stops_itself 20 4
  tenant two hold --bytes 70% --of 256MiB --iterations 20 --verify
  succeeds two
  sleep 3
  run ! grep -q "was sent" "$DIR/arbiter.log"
  kill -CONT "${PIDS[one]}"
  succeeds one
}
