#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The arbiter counts the real memory of processes, even if their reports differ. Tests processes that are no tenants,
# and tenants with false reports: of memory that they do not have, of less memory than they have, or of a lack of host
# memory.
load helpers

MIB=$((1 << 20))

# The arbiter uses the simulated NVML, which reports pids as the processes themselves see them.
with_nvml() { export LD_LIBRARY_PATH=$BUILD/tests/simgpu:$BUILD/tests/simgpu/nvml; }

# hog NAME [SECONDS]: starts a process without the library. It allocates 60% of the GPU's memory as soon as so much is
# free.
hog() {
  until "$PROGRAMS/hold" --bytes 60% --of 256MiB --iterations 1 >/dev/null 2>&1; do sleep 0.1; done
  plain "$1" hold --bytes 60% --of 256MiB --gap-ms 50 --seconds "${2:-600}" --progress
  progresses "$1"
}

# claims NAME OPTION...: starts a tenant that does not use the library, and whose reports differ from its memory.
claims() {
  local name=$1
  shift
  "$PROGRAMS/claims" --socket "$SHAREDGPU_SOCKET" --gpu "$(json 's["gpus"][0]["uuid"]')" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
  progresses "$name"
}

honest() { tenant "$1" hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --iterations "${2:-40}" --verify --progress; }
unmanaged_is() { json_is 's["gpus"][0]["unmanaged_bytes"]' "$1"; }

@test "pinned memory that a tenant reports but does not have does not hinder others" {
  with_nvml
  start_arbiter
  claims liar --pinned 200MiB
  grep -q granted "$DIR/liar.out"
  honest first
  succeeds first
}

@test "contexts that tenants report but do not have do not hinder others" {
  with_nvml
  start_arbiter
  local i
  for i in 1 2 3 4; do claims liar$i --context 60MiB; done
  honest first
  succeeds first
}

@test "a tenant that reports memory while another runs does not stop the other" {
  with_nvml
  start_arbiter
  tenant first hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --iterations 300 --verify --progress
  progresses first
  claims liar --swappable 200MiB
  claims pins --pinned 200MiB
  claims other --context 60MiB
  succeeds first
}

@test "evictable memory that a tenant reports but does not have keeps nobody away, and the tenant is named" {
  with_nvml
  start_arbiter
  claims liar --swappable 200MiB --takes 4MiB
  honest first 400
  progresses first
  until_true 100 json_is '[t["state"] for t in s["tenants"]]' "['running', 'running']"
  until_true 100 json_is '[t["overreported_bytes"] > 150 << 20 for t in s["tenants"] if t["overreported_bytes"]]' '[True]'
  "$SHAREDGPU" status | grep -q "(reports .* of GPU memory that NVML does not show)"
  grep -qE "uid $(id -u): reports .* on GPU 0 that NVML does not show; the arbiter counts what NVML shows" "$DIR/arbiter.log"
  (($(grep -c "that NVML does not show" "$DIR/arbiter.log") == 1))
  succeeds first
}

@test "host memory that a session reports and that the kernel does not know of is not counted, and the session is named" {
  local line folder
  line=$(grep -E ':memory:|^0::' /proc/self/cgroup | head -1)
  folder=/sys/fs/cgroup$([[ $line == 0::* ]] || echo /memory)/${line##*:}
  [[ -r $folder/memory.current || -r $folder/memory.usage_in_bytes ]] || skip "the memory cgroup cannot be read"
  start_arbiter
  claims liar --host 4096GiB
  until_true 100 grep -qE "pid ${PIDS[liar]}, uid $(id -u): reports 4 TiB of host memory for swap, but holds " "$DIR/arbiter.log"
  json_is '[t["overreported_host_bytes"] > 4000 << 30 for t in s["tenants"]]' '[True]'
  "$SHAREDGPU" status | grep -q "(reports .* of host memory that it does not have)"
}

@test "a tenant that falsely reports a lack of host memory is named, and ended after MaxOveruse" {
  with_nvml
  start_arbiter MaxOveruse=1s OnOveruse=cancel
  claims liar --swappable 200MiB --takes 200MiB --stuck
  tenant first hold --bytes 75% --of 256MiB --iterations 20 --verify
  until_true 150 grep -q "says that it has no host memory, though .* are free for its job" "$DIR/arbiter.log"
  until_true 20 json_is '[t["overdue"]["free_host_bytes"] > 1 << 29 for t in s["tenants"] if t["overdue"]]' '[True]'
  "$SHAREDGPU" status | grep -q "it has not evicted its memory; it says that it has no host memory, though"
  finish liar
  ((status == 128 + 15))
  grep -q "has kept memory on GPU 0 that others wait for" "$DIR/arbiter.log"
  succeeds first
}

@test "a process that is no tenant is noticed, and a tenant that does not fit beside it waits for its end" {
  with_nvml
  start_arbiter
  hog outside
  honest first
  until_true 20 json_is 'len(s["gpus"][0]["unmanaged"])' 1
  json_is 's["gpus"][0]["unmanaged"][0]["pid"]' "${PIDS[outside]}"
  json_is 's["gpus"][0]["unmanaged"][0]["uid"]' "$(id -u)"
  (($(json 's["gpus"][0]["usable_bytes"]') < 110 * MIB))
  "$SHAREDGPU" status | grep -qE "unmanaged .* pid ${PIDS[outside]} \($(id -un)\)"
  until_true 20 grep -qE "pid ${PIDS[outside]}, uid $(id -u): has .* of GPU 0 without being a tenant" "$DIR/arbiter.log"
  kill -9 "${PIDS[outside]}"
  succeeds first
}

@test "tenants go on beside a process that takes the memory that they have evicted" {
  with_nvml
  start_arbiter Quantum=200ms
  honest first 200
  honest second 200
  progresses first
  progresses second
  # Between two turns, no tenant has memory on the GPU for a moment.
  local i
  for ((i = 0; i < 400; ++i)); do
    "$PROGRAMS/hold" --bytes 60% --of 256MiB --gap-ms 50 --seconds 4 >>"$DIR/outside.out" 2>&1 && break
  done
  all_succeed first second
}

@test "tenants that fit beside a process that is no tenant run beside it" {
  with_nvml
  start_arbiter
  hog outside
  tenant first hold --bytes 30% --of 256MiB --changes 20 --iterations 40 --verify
  tenant second hold --bytes 30% --of 256MiB --changes 20 --iterations 40 --verify
  all_succeed first second
}

@test "memory that a tenant allocates without the library is noticed, and an honest tenant waits for its end" {
  with_nvml
  start_arbiter
  claims liar --context 4MiB --takes 150MiB
  until_true 20 json_is 'len(s["gpus"][0]["unmanaged"])' 1
  json_is 's["gpus"][0]["unmanaged"][0]["pid"]' "${PIDS[liar]}"
  json_is 's["gpus"][0]["unmanaged"][0]["uid"]' "$(id -u)"
  (($(json 's["gpus"][0]["usable_bytes"]') < 120 * MIB))
  honest first
  "$SHAREDGPU" status | grep -qE "unmanaged .* pid ${PIDS[liar]} \($(id -un)\)"
  until_true 20 grep -qE "pid ${PIDS[liar]}, uid $(id -u): has .* of GPU 0 beyond what its session reports" "$DIR/arbiter.log"
  kill -0 "${PIDS[first]}"
  kill -9 "${PIDS[liar]}"
  succeeds first
}

@test "tenants that fit beside another's unreported memory take turns there" {
  with_nvml
  start_arbiter Quantum=200ms
  tenant first hold --bytes 30% --of 256MiB --changes 20 --kernel-ms 20 --iterations 300 --verify --progress
  progresses first
  claims liar --takes 150MiB
  tenant second hold --bytes 30% --of 256MiB --changes 20 --kernel-ms 20 --iterations 100 --verify
  all_succeed first second
  json_is 's["gpus"][0]["unmanaged"][0]["pid"]' "${PIDS[liar]}"
}

@test "no honest tenant hides memory, however fast it swaps" {
  with_nvml
  start_arbiter Quantum=100ms Unmanaged=cancel
  local name
  for name in first second third; do honest $name 150; done
  for name in first second third; do progresses $name; done  # before a process has a session, its context counts as unmanaged
  for ((i = 0; i < 60; ++i)); do
    json_is 's["gpus"][0]["unmanaged"]' '[]'
    json_is '[t[f + "_bytes"] for t in s["tenants"] for f in ("unreported", "unseen", "overreported", "overreported_host") if t[f + "_bytes"]]' '[]'
    sleep 0.1
  done
  all_succeed first second third
  ! grep -qE "beyond what its session reports|that NVML does not show|of host memory for swap, but" "$DIR/arbiter.log"
}

@test "a process that is no tenant is asked to end with Unmanaged=cancel, unless it is root's" {
  with_nvml
  ((UID == 0)) || skip "needs another user"
  start_arbiter Unmanaged=cancel
  chmod a+rx "$DIR"
  hog roots
  # The state of the simulated GPU belongs to root; other users cannot open it without this.
  chmod a+rw "$SIMGPU_STATE"
  setpriv --reuid 4321 --regid 4321 --clear-groups "$PROGRAMS/hold" --bytes 20% --of 256MiB --gap-ms 50 --seconds 600 --progress >"$DIR/users.out" 2>"$DIR/users.err" 3>&- &
  PIDS[users]=$!
  progresses users
  tenant first hold --bytes 10% --of 256MiB --gap-ms 50 --seconds 600 --progress
  finish users
  ((status == 143))
  kill -0 "${PIDS[roots]}"
}

@test "a session without reported memory, or on a GPU that does not exist, spares its process for a minute at most" {
  with_nvml
  ((UID == 0)) || skip "needs another user"
  start_arbiter Unmanaged=cancel
  chmod a+rx "$DIR"
  tenant first hold --bytes 10% --of 256MiB --gap-ms 50 --seconds 600 --progress
  progresses first
  chmod a+rw "$SIMGPU_STATE"
  local name gpu
  for name in nothing invented; do
    gpu=GPU-09000000-0000-0000-0000-000000000000
    [[ $name == invented ]] || gpu=$(json 's["gpus"][0]["uuid"]')
    setpriv --reuid 4321 --regid 4321 --clear-groups "$PROGRAMS/claims" --socket "$SHAREDGPU_SOCKET" --gpu "$gpu" --takes 80MiB >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
    PIDS[$name]=$!
  done
  sleep 30
  kill -0 "${PIDS[nothing]}" "${PIDS[invented]}"
  for name in nothing invented; do
    finish $name
    ((status == 143))
  done
  kill -0 "${PIDS[first]}"
}

@test "without NVML the reports of tenants are believed, and status says so" {
  start_arbiter
  tenant first hold --bytes 30% --of 256MiB --seconds 600 --progress
  progresses first
  json_is 's["gpus"][0]["surveyed"]' False
  json_is 's["gpus"][0]["unmanaged_bytes"]' None
  "$SHAREDGPU" status | grep -q "contexts .* (unverified)"
}
