#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests GPUs that are lost, fail, return, are drained or are added: some tenants get the driver's error, the other
# tenants notice nothing.
load helpers

# with_gpus COUNT: gives the tenants and the arbiter COUNT simulated GPUs, and lets the arbiter query NVML.
with_gpus() {
  export SIMGPU_DEVICES=$1
  export LD_LIBRARY_PATH=$BUILD/tests/simgpu:$BUILD/tests/simgpu/nvml
}

# fault NUMBER WHAT...: makes GPU NUMBER fail; for WHAT see simgpu-fault.
fault() {
  local state=$SIMGPU_STATE
  (($1 == 0)) || state+=.$1
  "$BUILD/tests/simgpu/simgpu-fault" "$state" "${@:2}"
}

condition_is() { json_is "[g['condition'] for g in s['gpus'] if g['number'] == $1]" "['$2']"; }
reason_is() { json_is "[g['fault'] for g in s['gpus'] if g['number'] == $1]" "['$2']"; }
# gpu_of NAME: prints the numbers of the GPUs that the tenant is placed on.
gpu_of() {
  json "[g['number'] for g in s['gpus'] for t in s['tenants'] if ${PIDS[$1]} in t['pids'] and g['uuid'] in t['placed']]"
}
is_on() { [[ $(gpu_of "$1") == "[$2]" ]]; }

# settle NAME NUMBER WORD...: starts a tenant that is placed on GPU NUMBER of two GPUs.
settle() {
  local other=$((1 - $2))
  "$SHAREDGPU" drain gpu $other
  tenant "$1" hold "${@:3}"
  until_true 30 json_is "[len(t['pids']) for t in s['tenants'] if ${PIDS[$1]} in t['pids']]" '[1]'
  is_on "$1" "$2"
  "$SHAREDGPU" undrain gpu $other
}

all_end() {
  local name
  for name in "$@"; do ! kill -0 "${PIDS[$name]}" 2>/dev/null || return 1; done
}

# have_lost NAME...: succeeds if each tenant has ended with the driver's error, and not with wrong data.
have_lost() {
  local name
  for name in "$@"; do
    finish "$name"
    ((status == 1)) || { tell; false; }
    grep -qE 'CUDA_ERROR_(UNKNOWN|DEVICE_UNAVAILABLE)' "$DIR/$name.err" || { tell; false; }
  done
}

# four_lose HOW...: the command HOW makes GPU 0 fail while four tenants take turns on it. Two other tenants run on the
# other GPU. The running tenant of GPU 0 gets the driver's error at once. Within a second the arbiter notices the loss
# and drops the waiting tenants, and these tenants get the driver's error, too. On a busy host the end of the last
# process may take longer.
four_lose() {
  local begun noticed
  for name in a b c d; do settle $name 0 --bytes 75% --of 256MiB --seconds 600 --verify; done
  for name in x y; do settle $name 1 --bytes 75% --of 256MiB --iterations 60 --kernel-ms 100 --verify --seed 7; done
  begun=$(date +%s%N)
  "$@"
  until_true 30 all_end a b c d
  (($(date +%s%N) - begun < 3000000000))
  noticed=$(date -d "$(sed -n '/GPU 0 .* is lost/s/ .*//p' "$DIR/arbiter.log")" +%s%N)
  echo "noticed after $(((noticed - begun) / 1000000)) ms"
  ((noticed - begun < 1000000000))
  have_lost a b c d
  until_true 5 condition_is 0 lost
  condition_is 1 healthy
  "$SHAREDGPU" status | grep -qE '^0: GPU-.*\(lost: '
  [[ $(grep -c 'GPU 0 (GPU-.*) is lost: .*; tenants there: run .*, run .*, run .*, run' "$DIR/arbiter.log") == 1 ]]
}

returns() {
  local name
  # No tenant is placed on the lost GPU, even if this GPU has the fewest tenants.
  tenant late hold --bytes 5% --of 256MiB --seconds 600 --progress
  progresses late
  is_on late 1
  kill -0 "${PIDS[x]}" "${PIDS[y]}"
  kill "${PIDS[late]}"
  fault 0 present
  until_true 40 condition_is 0 healthy
  tenant back hold --bytes 50% --of 256MiB --seconds 5 --verify
  until_true 30 json_is "[len(t['pids']) for t in s['tenants'] if ${PIDS[back]} in t['pids']]" '[1]'
  is_on back 0
  all_succeed back x y
  used_is 0
}

@test "a GPU with four tenants falls off the bus with an Xid: two other tenants finish, and the GPU returns" {
  with_gpus 2
  start_arbiter
  four_lose eval 'fault 0 xid 79; fault 0 lost'
  until_true 5 reason_is 0 'Xid 79'
  "$SHAREDGPU" ledger --config "$DIR/conf" --by tenant --format json >"$DIR/ledger.json"
  python3 - "$DIR/ledger.json" <<'PY'
import json, sys
rows = json.load(open(sys.argv[1]))
lost = [row for row in rows if row["lost"] == "Xid 79"]
assert lost and all(not row["open"] for row in lost), rows
assert len({row["gpu"] for row in lost}) == 1, rows
assert len(lost) == 4 and len([row for row in rows if row["gpu"] != lost[0]["gpu"] and row["lost"] == "-"]) == 2, rows
PY
  returns
}

@test "a GPU with four tenants is lost without an event: two other tenants finish, and the GPU returns" {
  export SIMGPU_NVML_EVENTS=0
  with_gpus 2
  start_arbiter
  four_lose fault 0 lost
  returns
}

@test "a GPU with four tenants disappears from the host: two other tenants finish, and the GPU returns" {
  export SIMGPU_NVML_EVENTS=0
  with_gpus 2
  start_arbiter
  four_lose fault 0 absent
  returns
}

@test "a tenant of two GPUs loses one: its rival on the other GPU goes on" {
  with_gpus 2
  start_arbiter
  GPUS=2 tenant both devices --bytes 150MiB --iterations 100000 --progress
  progresses both
  "$SHAREDGPU" drain gpu 0
  tenant other hold --bytes 75% --of 256MiB --iterations 60 --kernel-ms 50 --verify
  until_true 30 json_is "[len(t['pids']) for t in s['tenants'] if ${PIDS[other]} in t['pids']]" '[1]'
  is_on other 1
  fault 0 lost
  finish both
  ((status != 0))
  succeeds other
}

@test "a GPU reports a grave error: its tenants finish, and none is placed there until it is undrained" {
  with_gpus 2
  start_arbiter
  settle there 0 --bytes 50% --of 256MiB --seconds 6 --verify
  fault 0 xid 13  # an error of one program, not of the GPU
  fault 0 xid 48
  until_true 10 condition_is 0 failing
  reason_is 0 'Xid 48'
  tenant new hold --bytes 50% --of 256MiB --seconds 600 --progress
  progresses new
  is_on new 1
  succeeds there
  "$SHAREDGPU" undrain gpu 0
  condition_is 0 healthy
}

@test "ECC errors and a required reset are noticed without events, and so is their end" {
  export SIMGPU_NVML_EVENTS=0
  with_gpus 2
  start_arbiter
  settle there 0 --bytes 50% --of 256MiB --seconds 600 --progress
  progresses there
  sleep 1.5  # the arbiter has read the first count
  fault 0 ecc
  until_true 10 condition_is 0 failing
  reason_is 0 'ECC error'
  "$SHAREDGPU" undrain gpu 0
  fault 0 unusable
  until_true 10 reason_is 0 'reset required'
  fault 0 present
  until_true 10 condition_is 0 healthy
  kill -0 "${PIDS[there]}"
}

@test "a drained GPU gets no new tenant, even from the next arbiter; its tenants go on" {
  with_gpus 2
  start_arbiter
  settle there 0 --bytes 50% --of 256MiB --iterations 60 --kernel-ms 100 --verify
  "$SHAREDGPU" drain gpu 0 the fan is replaced
  json_is '[(g["number"], g["drained"], g["drain_reason"]) for g in sorted(s["gpus"], key=lambda g: g["number"])]' \
    "[(0, True, 'the fan is replaced'), (1, False, None)]"
  "$SHAREDGPU" status | grep -qE '^0: GPU-.*\(drained: the fan is replaced\)'
  tenant new hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses new
  is_on new 1
  kill -9 "$ARBITER"
  wait "$ARBITER" || true
  run_arbiter
  json_is '[g["drained"] for g in s["gpus"] if g["number"] == 0]' '[True]'
  tenant newer hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses newer
  is_on newer 1
  succeeds there
  run ! "$SHAREDGPU" drain gpu 7
  [[ $output == *'no GPU 7 here'* ]]
  run -2 "$SHAREDGPU" drain gpu x
  "$SHAREDGPU" undrain gpu 0
  tenant last hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses last
  is_on last 0
}

@test "if all GPUs are drained, a tenant gets the driver's error, and the log says why" {
  with_gpus 2
  start_arbiter
  "$SHAREDGPU" drain gpu 0-1
  tenant none hold --bytes 10% --of 256MiB --iterations 3
  finish none
  ((status == 1))
  grep -q CUDA_ERROR_NO_DEVICE "$DIR/none.err"
  grep -q 'not placed: all GPUs here that it can open have failed or are drained' "$DIR/arbiter.log"
}

@test "a GPU that is added is used" {
  with_gpus 3
  fault 2 absent
  start_arbiter
  settle first 0 --bytes 10% --of 256MiB --seconds 600 --progress
  json_is 'len(s["gpus"])' 2
  fault 2 present
  until_true 30 json_is 'len(s["gpus"])' 3
  tenant second hold --bytes 10% --of 256MiB --iterations 200 --kernel-ms 20 --verify
  tenant third hold --bytes 10% --of 256MiB --iterations 200 --kernel-ms 20 --verify
  until_true 30 json_is 'sorted(len(t["placed"]) for t in s["tenants"])' '[1, 1, 1]'
  json_is 'len({t["placed"][0] for t in s["tenants"]})' 3
  all_succeed second third
}

@test "OnGpuLoss=drain: the arbiter has Slurm drain the node, with the reason, and a hanging scontrol delays no tenant" {
  mkdir "$DIR/bin"
  printf '#!/bin/bash\nprintf "%%s|" "$@" >>%q\nexec sleep 20\n' "$DIR/scontrol.calls" >"$DIR/bin/scontrol"
  chmod +x "$DIR/bin/scontrol"
  with_gpus 2
  PATH=$DIR/bin:$PATH SLURMD_NODENAME=node7 start_arbiter OnGpuLoss=drain,requeue
  settle there 1 --bytes 10% --of 256MiB --seconds 600 --progress
  progresses there
  fault 0 lost
  until_true 10 test -s "$DIR/scontrol.calls"
  grep -qE '^update\|nodename=node7\|state=DRAIN\|reason=sharedgpu: GPU 0 \(GPU-.*\) is lost: lost to its driver\|$' "$DIR/scontrol.calls"
  tenant new hold --bytes 10% --of 256MiB --iterations 3 --verify
  succeeds new
}
