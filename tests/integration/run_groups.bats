#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests control groups of runs, under version 1 and version 2 of cgroups. An administrator starts runs for another user,
# and the host memory of these runs is limited.
load helpers

user=nobody

# groups_setup [LINE...]: starts an arbiter with these lines in its configuration. The arbiter makes its control groups
# below PARENT.
groups_setup() {
  local memory=/sys/fs/cgroup/memory
  [[ $(id -u) == 0 ]] || skip "needs root to become another user and to make control groups"
  [[ -d $memory ]] || memory=/sys/fs/cgroup
  PARENT=$memory/${DIR##*/}
  export SIMGPU_MEMORY=512MiB SIMGPU_CONTEXT=8MiB
  # A separate process is charged for the simulated GPU's memory. Runs are not charged, as with the memory of a real
  # GPU.
  "$BUILD/tests/simgpu/simgpu-board" "$DIR/board" 3>&- &
  PIDS[board]=$!
  until_true 20 test -S "$DIR/board"
  export SIMGPU_BOARD=$DIR/board
  chmod 755 "$DIR" && chmod 666 "$DIR/board"
  start_arbiter "CgroupParent=/${DIR##*/}" "$@"
  "$SHAREDGPU" run --host-memory 64MiB -- true 2>"$DIR/probe" || true
  [[ ! -s $DIR/probe ]] || skip "no control groups can be made here: $(grep -h 'not limited\|not enter' "$DIR/arbiter.log")"
}

# given NAME HOST_MEMORY UNITS PROGRAM ARGUMENT...: starts a run for another user, as an administrator does.
given() {
  local name=$1 memory=$2 units=$3 program=$4
  shift 4
  "$SHAREDGPU" run --user $user --units "$units" --host-memory "$memory" -- \
    setpriv --reuid $user --regid nogroup --clear-groups "$PROGRAMS/$program" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}
run_groups() { find "$PARENT" -mindepth 1 -maxdepth 1 -type d -name 'run_*'; }
group_of() { echo "$PARENT"$(sed -n "s|^[0-9]*:\(memory\)\?:/[^/]*\(/run_[0-9]*\)$|\2|p" "/proc/$1/cgroup"); }
no_groups() { [[ -z $(run_groups) ]]; }
# limit GROUP: prints the limit of a group, from the file of version 1 or of version 2.
limit() { cat "$1"/memory.limit_in_bytes 2>/dev/null || cat "$1"/memory.max; }
oom_kills() { sed -n 's/^oom_kill //p' "$1"/memory.{oom_control,events} 2>/dev/null; }
# recorded N: prints the highest use of host memory of run N in the ledger.
recorded() { awk -v tenant="$1" '$3 == "used" && $4 == tenant && $5 == 0 && $6 == 0 { host = $15 } END { print host }' "$DIR/state/ledger"; }
evicted() { json_is "[t['resident_bytes'] for t in s['tenants'] if t['name'] == '$1']" '[0]'; }
named() { json "[t['name'] for t in s['tenants'] if ${PIDS[$1]} in t['pids']][0]"; }

teardown_groups() {
  local group
  for group in $(run_groups 2>/dev/null); do
    xargs -r kill -9 <"$group/cgroup.procs" || true
    until_true 20 rmdir "$group" || true
  done
  rmdir "$PARENT" 2>/dev/null || true
}
teardown() {
  local pid
  for pid in "${PIDS[@]}" $ARBITER; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$DIR" "$SIMGPU_STATE"{,.*}
  [[ -z ${PARENT-} ]] || teardown_groups
}

@test "a run of another user that fills host memory while its device memory is evicted is held by its group; neighbours go on" {
  groups_setup SwapPerUnit=320MiB Quantum=10m
  given filler 160MiB 1 ram --bytes 300MiB --after "$DIR/go" --at-once 2GiB
  progresses filler
  tenant other hold --bytes 60% --of 512MiB --seconds 8 --verify
  local name group
  name=$(named filler)
  group=$(group_of "${PIDS[filler]}")
  [[ $(limit "$group") == $((480 << 20)) ]]
  json_is "[t['host_group']['limit_bytes'] >> 20 for t in s['tenants'] if t['name'] == '$name']" '[480]'
  until_true 60 evicted "$name"
  touch "$DIR/go"
  finish filler
  ((status == 137))
  until_true 30 test ! -e "$group"
  local peak
  peak=$(recorded "${name#run }")
  ((peak > 400 << 20 && peak <= 480 << 20))
  "$SHAREDGPU" ledger --config "$DIR/conf" --by tenant --format json |
    python3 -c "import json, sys; assert [r['host_peak_bytes'] for r in json.load(sys.stdin) if r['tenant'] == '$name'] == [$peak]"
  succeeds other
  grep -q "every byte verified" "$DIR/other.out"
}

@test "a run within its limit moves its memory and ends right; the status names limit and use" {
  groups_setup SwapPerUnit=448MiB Quantum=300ms
  given inside 160MiB 1 hold --bytes 75% --of 512MiB --seconds 3 --verify --progress
  tenant other hold --bytes 75% --of 512MiB --seconds 3 --verify
  progresses inside
  "$SHAREDGPU" status | grep -E 'host memory: highest .*, limit 608 MiB'
  all_succeed inside other
  (($(gpu copied_out) > 0))
  until_true 30 no_groups
}

@test "without SwapPerUnit, a run with a limit may evict as much as its GPU has" {
  groups_setup
  given inside 100MiB 1 hold --bytes 75% --of 512MiB --seconds 1 --verify --progress
  progresses inside
  [[ $(limit "$(group_of "${PIDS[inside]}")") == $((612 << 20)) ]]
  succeeds inside
  until_true 30 no_groups
}

@test "kill -9 of the arbiter and of the run leaves nothing, in any order; a run that lives keeps its group" {
  groups_setup SwapPerUnit=448MiB
  given first 160MiB 1 hold --bytes 20% --of 512MiB --seconds 600 --progress
  given second 160MiB 1 hold --bytes 20% --of 512MiB --seconds 600 --progress
  progresses first
  progresses second
  local first second one two
  first=$(named first) second=$(named second)
  one=$(group_of "${PIDS[first]}") two=$(group_of "${PIDS[second]}")
  [[ -d $one && -d $two && $one != "$two" ]]

  kill -9 "$ARBITER" "${PIDS[first]}"
  wait "$ARBITER" "${PIDS[first]}" || true
  run_arbiter
  until_true 30 test ! -e "$one"
  (($(recorded "${first#run }") > 0))
  json_is "[t['host_group']['limit_bytes'] >> 20 for t in s['tenants'] if t['name'] == '$second']" '[608]'
  [[ $(group_of "${PIDS[second]}") == "$two" ]]

  kill -9 "${PIDS[second]}"
  until_true 30 no_groups
  (($(recorded "${second#run }") > 0))
}

@test "processes left behind keep the group until they end" {
  groups_setup
  "$SHAREDGPU" run --user $user --host-memory 64MiB -- setpriv --reuid $user --regid nogroup --clear-groups \
    bash -c 'for fd in /proc/self/fd/*; do fd=${fd##*/}; ((fd > 2)) && eval "exec $fd>&-"; done; sleep 600 & echo $!' >"$DIR/left.out" 3>&-
  local left group
  left=$(cat "$DIR/left.out")
  PIDS[left]=$left
  group=$(group_of "$left")
  until_true 30 grep -q ' end 2$' "$DIR/state/ledger"
  [[ -d $group ]]
  kill -9 "$left"
  until_true 30 no_groups
}

@test "a user enters only the group of an own run, and leaves none for another" {
  groups_setup
  export SHAREDGPU_TOKEN
  given first 64MiB 1 hold --bytes 1MiB --seconds 600 --progress
  given second 1GiB 1 hold --bytes 1MiB --seconds 600 --progress
  progresses first
  progresses second
  local one two
  one=$(group_of "${PIDS[first]}") two=$(group_of "${PIDS[second]}")
  # joins PID USER COMMAND...: runs the command as USER with the token of that process's run.
  joins() {
    SHAREDGPU_TOKEN=$(tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^SHAREDGPU_TOKEN=//p')
    setpriv --reuid "$2" --regid nogroup --clear-groups "$SHAREDGPU" run --join ${CONF:+--config "$CONF"} -- "${@:3}"
  }
  run -0 joins "${PIDS[first]}" $user cat /proc/self/cgroup
  [[ $output == *"${one#"${PARENT%/*}"}"* ]]
  run -0 joins "${PIDS[first]}" daemon cat /proc/self/cgroup
  [[ $output != *"${DIR##*/}"* ]]
  # The command runs and enters the group even if settings are wrong or missing.
  echo Qantum=5 >"$DIR/wrong"
  local conf
  for conf in "$DIR/wrong" "$DIR/none"; do
    CONF=$conf run -0 joins "${PIDS[first]}" $user cat /proc/self/cgroup
    [[ $output == *"$conf"*"${one#"${PARENT%/*}"}"* ]]
  done
  # A process in the group of the first run cannot move to the group of the second run, which has a higher limit.
  local token
  token=$(tr '\0' '\n' <"/proc/${PIDS[second]}/environ" | sed -n 's/^SHAREDGPU_TOKEN=//p')
  run -0 joins "${PIDS[first]}" $user env SHAREDGPU_TOKEN="$token" "$SHAREDGPU" run --join -- cat /proc/self/cgroup
  [[ $output == *"${one#"${PARENT%/*}"}"* && $output != *"${two#"${PARENT%/*}"}"* ]]
}
