#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests unusual behaviour of processes: each process ends with the right result or with the error of plain CUDA. After
# its end, the arbiter keeps no state of the process.
load helpers

contend() {
  start_arbiter
  tenant rival hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
}

# only_rival_left: succeeds when only the rival is left in the status and on the GPU.
only_rival_left() {
  until_true 60 json_is 'len(s["tenants"])' 1
  until_true 60 used_is $(((192 + ${SIMGPU_CONTEXT%MiB}) << 20))
}

nothing_left() {
  until_true 60 json_is '[len(s["tenants"]), sum(g["footprint_bytes"] for g in s["gpus"])]' '[0, 0]'
  until_true 60 used_is 0
}

root_only() { [[ $(id -u) == 0 ]] || skip "only root may become another user"; }

# open_to_all: lets every user enter the test's folder, which has the arbiter's socket.
open_to_all() { chmod 0755 "$DIR"; }

state_of() { json "[t['state'] for t in s['tenants'] if ${PIDS[$1]} in t['pids']][0]"; }
is_in_state() { [[ $(state_of "$1") == "$2" ]]; }

@test "several contexts at once are destroyed with memory in them" {
  contend
  tenant contexts contexts
  succeeds contexts
  only_rival_left
}

@test "children by fork, vfork, posix_spawn and system work before and after cuInit" {
  contend
  tenant fork fork
  succeeds fork
  only_rival_left
}

@test "fork while other threads hold locks" {
  contend
  tenant fork fork --busy
  succeeds fork
  only_rival_left
}

@test "a program that executes another in its turn, in the same process" {
  contend
  tenant fork fork --replace
  succeeds fork
  only_rival_left
}

@test "a program that is itself multi-process is one tenant" {
  export SIMGPU_CONTEXT=1MiB # ten contexts must fit beside the capacity
  contend
  tenant workers workers --processes 8 --bytes 12MiB
  until_true 60 json_is 'max(len(t["pids"]) for t in s["tenants"])' 8
  json_is 'len(s["tenants"])' 2
  succeeds workers
  tenant workers workers --processes 8 --bytes 12MiB --exec
  until_true 60 json_is 'max(len(t["pids"]) for t in s["tenants"])' 8
  succeeds workers
  only_rival_left
}

@test "libcuda is opened in threads, closed and opened again" {
  contend
  tenant library library
  succeeds library
  only_rival_left
}

@test "CUDA works before main() and after it" {
  contend
  tenant late late
  succeeds late
  only_rival_left
}

@test "however a program ends in its turn while threads submit, nothing is left" {
  start_arbiter
  local how
  for how in return exit _exit quick_exit abort kill destroy; do
    tenant "$how" exit_midturn --bytes 128MiB --how "$how"
    finish "$how"
    nothing_left
    tenant "$how" exit_midturn --bytes 128MiB --how "$how" --on-signal --threads 4
    progresses "$how"
    kill -USR1 "${PIDS[$how]}"
    finish "$how"
    nothing_left
  done
}

@test "however a program ends in the middle of an eviction, nothing is left" {
  # An eviction of 128 MiB takes half a second.
  export SIMGPU_PCIE=0.25
  start_arbiter
  tenant rival hold --bytes 75% --of 256MiB --seconds 600 --gap-ms 50 --progress
  progresses rival
  local how
  for how in exit _exit quick_exit abort kill; do
    tenant "$how" exit_midturn --bytes 128MiB --how "$how" --on-signal --threads 2 --kernel-ms 1
    progresses "$how"
    # The tenant has left the running set, and its memory is being evicted.
    until_true 60 json_is "[0 < t['resident_bytes'] and t['state'] == 'out'
      for t in s['tenants'] if ${PIDS[$how]} in t['pids']]" '[True]'
    kill -USR1 "${PIDS[$how]}"
    finish "$how"
    until_true 60 json_is 'len(s["tenants"])' 1
  done
  only_rival_left
}

@test "a program that closes all descriptors goes on, and the library never writes into its files" {
  start_arbiter
  tenant neighbour hold --bytes 40% --of 256MiB --seconds 600 --progress
  progresses neighbour
  tenant descriptors descriptors --how close
  succeeds descriptors
  until_true 60 json_is 'len(s["tenants"])' 1
  ! grep -q 'run token is unknown' "$DIR/arbiter.log"
}

@test "a script that uses the lowest descriptors itself, or has no standard streams, keeps its tenant" {
  start_arbiter
  "$SHAREDGPU" run --memory 96MiB -- bash -c 'for i in {3..20}; do eval "exec $i>/dev/null"; done; exec "$@"' bash \
    "$PROGRAMS/hold" --bytes 10% --of 256MiB --seconds 600 --progress >"$DIR/low.out" 2>"$DIR/low.err" &
  PIDS[low]=$!
  progresses low
  json_is '[(t["name"][:4], t["memory_limit_bytes"] >> 20) for t in s["tenants"]]' "[('run ', 96)]"
  kill "${PIDS[low]}"
  until_true 20 json_is 'len(s["tenants"])' 0
  bash -c 'exec "$@" 0<&- 1>&- 2>&- 3>&-' bash \
    "$SHAREDGPU" run -- bash -c 'for i in 0 1 2; do [[ ! -e /proc/$$/fd/$i ]] || exit 5; done; exec "$@"' bash \
    "$PROGRAMS/hold" --bytes 10% --of 256MiB --seconds 600 &
  PIDS[none]=$!
  until_true 20 json_is '[t["name"][:4] for t in s["tenants"]]' "['run ']"
  until_true 20 json_is '[t["lease_seconds"] > 0.2 for t in s["tenants"]]' "[True]"
}

@test "memory of a stopped program without a connection counts until the program returns" {
  start_arbiter
  tenant stopped descriptors --how stop
  until_true 60 grep -q '^State:.T' "/proc/${PIDS[stopped]}/status"
  sleep 1
  json_is '[g["resident_bytes"] >= 150 << 20 for g in s["gpus"]]' '[True]'
  tenant other hold --bytes 75% --of 256MiB --verify
  sleep 5 # longer than a session retries the driver for memory that others must give up
  kill -0 "${PIDS[other]}"
  kill -CONT "${PIDS[stopped]}"
  all_succeed stopped other
  used_is 0
}

@test "memory of a program no longer counts once the process has executed another" {
  start_arbiter
  tenant changing descriptors --how exec
  until_true 60 grep -q '^sleep$' "/proc/${PIDS[changing]}/comm"
  until_true 60 json_is '[g["footprint_bytes"] for g in s["gpus"]]' '[0]'
  kill -0 "${PIDS[changing]}"
}

@test "a program works with few descriptors left" {
  contend
  local places
  for places in 0 1 2 3 4 5 6 8 10; do
    tenant few descriptors --how few --free "$places"
    finish few
    if ((status != 0)); then grep -E 'CUDA_ERROR_' "$DIR/few.err"; fi
  done
  ((status == 0))
  only_rival_left
}

@test "without threads a program runs on plain CUDA, with one line that says so" {
  root_only
  open_to_all
  start_arbiter
  tenant limits limits --what threads
  succeeds limits
  grep -q 'cannot start a thread' "$DIR/limits.err"
  [[ $(wc -l <"$DIR/limits.err") == 1 ]]
  nothing_left
}

@test "without threads and with OnNoArbiter=fail, the first CUDA call fails, with one line that says so" {
  root_only
  open_to_all
  start_arbiter
  # `sharedgpu run` sets the variable itself.
  "$SHAREDGPU" run -- env SHAREDGPU_ON_NO_ARBITER=fail "$PROGRAMS/limits" --what threads 2>"$DIR/limits.err" 3>&- &
  PIDS[limits]=$!
  finish limits
  ((status == 1))
  [[ $(grep -c 'sharedgpu' "$DIR/limits.err") == 1 ]]
  grep -q 'cannot start a thread (.*); cuInit fails because of OnNoArbiter=fail' "$DIR/limits.err"
  grep -q 'cuInit: CUDA_ERROR_SYSTEM_NOT_READY' "$DIR/limits.err"
  nothing_left
}

@test "without address space for evicted memory, the memory stays and others wait" {
  contend
  tenant limits limits --what space
  succeeds limits
  only_rival_left
}

@test "a program changes its user before or after cuInit" {
  root_only
  open_to_all
  contend
  tenant after become user
  succeeds after
  tenant before become user --before
  succeeds before
  only_rival_left
}

@test "a program changes its root folder before or after cuInit" {
  root_only
  contend
  tenant after become chroot
  succeeds after
  only_rival_left
  # The new root has no arbiter and no state of the simulated GPU, so the program runs on plain CUDA on a separate GPU.
  mkdir -p "$DIR/shm"
  # Another state file means another GPU, so the GPU that `sharedgpu run` would show does not exist there.
  SIMGPU_STATE=/state CUDA_VISIBLE_DEVICES=0 SHAREDGPU_ARBITER_TIMEOUT=100 tenant before become chroot --before
  finish before
  ((status == 0))
  only_rival_left
}

@test "su keeps the program under the arbiter" {
  root_only
  open_to_all
  chmod 0666 "$SIMGPU_STATE" 2>/dev/null || true
  start_arbiter
  "$SHAREDGPU" run -- su -s /bin/sh nobody -c "LD_LIBRARY_PATH=$LD_LIBRARY_PATH '$PROGRAMS/hold' --bytes 32MiB \
    --seconds 600 --progress" >"$DIR/su.out" 2>"$DIR/su.err" 3>&- &
  PIDS[su]=$!
  progresses su
  # The status also lists the run, which has a placement but no process with a session.
  json_is '[t["footprint_bytes"] for t in s["tenants"] if t["pids"]]' "[$((32 << 20))]"
  kill -KILL "$(json '[t["pids"][0] for t in s["tenants"] if t["pids"]][0]')"
  finish su
  nothing_left
}

@test "a program works under many signals without SA_RESTART" {
  contend
  tenant signals signals
  succeeds signals
  only_rival_left
}

@test "a tenant that is stopped in its turn for a while goes on" {
  start_arbiter
  # Each program needs four seconds of the GPU, so that it outlasts three stops however fast the host is.
  tenant one hold --bytes 75% --of 256MiB --iterations 40 --kernel-ms 100 --seed 1 --verify
  tenant two hold --bytes 75% --of 256MiB --iterations 40 --kernel-ms 100 --seed 2 --verify
  local round
  for round in 1 2 3; do
    until_true 60 is_in_state one running
    kill -STOP "${PIDS[one]}"
    sleep 1
    kill -CONT "${PIDS[one]}"
    sleep 0.3
  done
  all_succeed one two
  nothing_left
}

# named NAME EXPRESSION: prints the value of a Python expression over `t`, the tenant of that program.
named() { json "[$2 for t in s['tenants'] if ${PIDS[$1]} in t['pids']][0]"; }
named_is() { [[ $(named "$1" "$2") == "$3" ]]; }

# has_its_turn NAME: succeeds if the tenant holds the lease and all of its memory is resident.
has_its_turn() { named_is "$1" 't["lease"] and t["resident_bytes"] == t["footprint_bytes"]' True; }

# stops_in_its_turn NAME: stops the tenant if it has its turn. The turn is checked before the stop, too, since a tenant
# that is stopped while it enters leaves the running set.
stops_in_its_turn() {
  has_its_turn "$1" || return
  kill -STOP "${PIDS[$1]}"
  has_its_turn "$1" || { kill -CONT "${PIDS[$1]}" && false; }
}

@test "the lease of a tenant that is stopped in its turn goes to others; its memory stays" {
  start_arbiter Quantum=2s
  tenant one hold --bytes 70% --of 256MiB --seconds 10 --seed 1 --verify
  until_true 60 named_is one 't["resident_bytes"] > 100 << 20' True
  tenant two hold --bytes 70% --of 256MiB --seconds 20 --seed 2 --verify
  until_true 60 named_is two 't["footprint_bytes"] > 100 << 20' True
  until_true 60 stops_in_its_turn one
  until_true 60 named_is one '(t["stopped"], t["lease"])' '(True, False)'
  local lease
  lease=$(named one 't["lease_seconds"]')
  # A tenant that fits beside the stopped tenant has its turn; the other tenant waits.
  tenant three hold --bytes 15% --of 256MiB --iterations 3 --seed 3 --verify
  succeeds three
  kill -0 "${PIDS[two]}"
  named_is one 't["lease_seconds"]' "$lease"
  named_is one '(t["lease"], t["resident_bytes"] > 0)' '(False, True)'
  kill -CONT "${PIDS[one]}"
  all_succeed one two
  nothing_left
}

@test "two hundred processes use one arbiter" {
  export SIMGPU_MEMORY=4GiB SIMGPU_CONTEXT=1MiB
  start_arbiter
  tenant many workers --processes 200 --bytes 2MiB --steps 3
  succeeds many
  tenant many workers --processes 200 --bytes 2MiB --steps 3 --exec
  succeeds many
  nothing_left
}
