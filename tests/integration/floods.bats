#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A user floods the arbiter from hundreds of connections: the arbiter's memory stays bounded, and the jobs of other
# users continue.
load helpers

CONNECTIONS=1000
MIB=$((1 << 20))

# flood KIND: starts a flood, as another user if the test runs as root, and waits until it has begun.
flood() {
  local user=()
  ((UID != 0)) || user=(setpriv --reuid 4321 --regid 4321 --clear-groups)
  chmod a+rx "$DIR"
  "${user[@]}" "$PROGRAMS/flood" --socket "$SHAREDGPU_SOCKET" --kind "$1" --connections $CONNECTIONS --seconds 8 \
    >"$DIR/flood.out" 2>"$DIR/flood.err" 3>&- &
  PIDS[flood]=$!
  progresses flood
}
honest() { tenant "$1" hold --bytes 75% --of 256MiB --changes 20 --iterations 30 --kernel-ms 100 --verify --progress; }

# watch_memory: puts the arbiter into a memory cgroup, so that memory() can count the files that it makes in memory.
watch_memory() {
  own_group 8192
  echo "$ARBITER" >"$GROUP/cgroup.procs"
}
# memory: prints the memory of the arbiter in bytes, including files that it has made in memory, even if other processes
# have them open.
memory() {
  awk '/^VmRSS:/ { sum += $2 * 1024 } /^shmem / { sum += $2 } END { print sum }' "/proc/$ARBITER/status" "$GROUP/memory.stat"
}
log_bytes() { stat -c %s "$DIR/arbiter.log"; }

# beside KIND: two tenants that do not fit together run during the flood, and must end with right results. Sets MEMORY
# to the maximum of the arbiter's memory during the flood, and LOGGED to the growth of its log.
beside() {
  local now
  watch_memory
  honest first
  honest second
  progresses first
  progresses second
  MEMORY=0 LOGGED=$(log_bytes)
  flood "$1"
  while kill -0 "${PIDS[flood]}" 2>/dev/null; do
    now=$(memory)
    ((now <= MEMORY)) || MEMORY=$now
    sleep 0.1
  done
  LOGGED=$(($(log_bytes) - LOGGED))
  succeeds flood
  all_succeed first second
  timeout 20 "$SHAREDGPU" status >/dev/null
  echo "$1: $((MEMORY / MIB)) MiB, log $LOGGED bytes"
  tail -n 1 "$DIR/flood.out"
}

# stays_small KIND: succeeds if the arbiter's memory and log stay small during the flood.
stays_small() {
  start_arbiter LogLevel=info
  beside "$1"
  ((MEMORY < 48 * MIB))
  ((LOGGED < 8 * 1024))
}

@test "a flood of status queries whose answers are kept takes little memory" {
  stays_small status
}

@test "a flood of queries whose answers are not read takes little memory" {
  stays_small unread
}

@test "a flood of reports takes little memory and little of the log" {
  stays_small messages
}

@test "a flood of sessions that connect, send invalid messages and end takes little of the log" {
  stays_small connect
  until_true 20 grep -q "more like this left out" "$DIR/arbiter.log"
}

# The table is large from the start, because the arbiter would stop whenever the Linux kernel doubles the table: the
# kernel then waits for all processors.
@test "the arbiter's table of descriptors need not grow while connections come" {
  start_arbiter
  local size
  size=$(awk '/^FDSize:/ { print $2 }' "/proc/$ARBITER/status")
  flood messages
  succeeds flood
  ((size >= 4096)) && [[ $(awk '/^FDSize:/ { print $2 }' "/proc/$ARBITER/status") == "$size" ]]
}
