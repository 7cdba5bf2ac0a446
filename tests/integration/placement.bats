#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests the placement of tenants on GPUs. A tenant's processes see only the GPUs of its placement.
load helpers

setup_file() { export SIMGPU_DEVICES=2; }

# A Python expression for json(): the number of tenants placed on each GPU, in the host's order of GPUs.
placed='[sum(g["uuid"] in t["placed"] for t in s["tenants"]) for g in sorted(s["gpus"], key=lambda g: g["number"])]'
placed_are() { json_is "$placed" "$1"; }
uuid() { json "[g['uuid'] for g in s['gpus'] if g['number'] == $1][0]"; }

# command_of NAME WORD...: runs a command as a tenant.
command_of() {
  local name=$1
  shift
  "$SHAREDGPU" run -- "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

@test "tenants are spread over the GPUs, and each sees its own alone" {
  start_arbiter
  local name
  for name in a b c d; do
    tenant $name hold --bytes 10% --of 256MiB --seconds 600 --progress
    progresses $name
  done
  json_is "$placed" '[2, 2]'
  json_is '[g["units"] for g in s["gpus"]]' '[2, 2]'
  json_is 'all(t["placed"] == t["gpus"] and len(t["gpus"]) == 1 for t in s["tenants"])' True
  "$SHAREDGPU" status | grep -q '^0: GPU-'
  kill "${PIDS[a]}" "${PIDS[b]}" "${PIDS[c]}" "${PIDS[d]}"
  until_true 20 placed_are '[0, 0]'
}

@test "the processes of one tenant share its GPU and its lease" {
  start_arbiter
  tenant rival hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
  # shellcheck disable=SC2016
  command_of ranks bash -c 'for rank in 1 2 3 4; do "$0/hold" --bytes 15% --of 256MiB --seconds 600 & ids="$ids $!"; done
    trap "kill $ids" TERM; wait' "$PROGRAMS"
  until_true 30 json_is '[(len(t["pids"]), t["gpus"] == t["placed"]) for t in s["tenants"]]' '[(1, True), (4, True)]'
  json_is 'len(set(g for t in s["tenants"] for g in t["gpus"]))' 2
  json_is '[(t["lease"], len([x for x in t["sessions"] if x["gate_open"]])) for t in s["tenants"]]' '[(True, 1), (True, 4)]'
  kill "${PIDS[ranks]}"
  until_true 20 json_is 'len(s["tenants"])' 1
}

@test "a tenant that spans GPUs gets distinct ones; if there are too few, it gets a message and goes on" {
  start_arbiter
  GPUS=2 tenant two devices --bytes 25MiB --iterations 100000 --progress
  GPUS=3 tenant three devices --bytes 25MiB --iterations 3
  succeeds three
  grep -qx 'sharedgpu: --gpus 3: this node has 2; the job runs with 2 GPUs' "$DIR/three.err"
  progresses two
  json_is '[len(t["placed"]) for t in s["tenants"]]' '[2]'
  [[ ! -s $DIR/two.err ]]
  run -2 "$SHAREDGPU" run --gpus 13 -- true
  [[ $output == *"--gpus: '13' is not a number from 1 to 12"* ]]
  CUDA_VISIBLE_DEVICES=0 run -2 "$SHAREDGPU" run --gpus 2 -- true
  [[ $output == *"--gpus: CUDA_VISIBLE_DEVICES names the GPUs already"* ]]
}

@test "a placement survives the arbiter's death, even of a tenant that has no session yet" {
  start_arbiter
  command_of first sleep 600
  until_true 20 placed_are '[1, 0]'
  command_of second sleep 600
  until_true 20 placed_are '[1, 1]'
  kill "${PIDS[first]}"
  until_true 20 placed_are '[0, 1]'
  kill -9 "$ARBITER"
  wait "$ARBITER" 2>/dev/null || true
  run_arbiter
  placed_are '[0, 1]'
  # If a tenant ends while no arbiter runs, the next arbiter drops its placement.
  kill -9 "$ARBITER"
  wait "$ARBITER" 2>/dev/null || true
  kill "${PIDS[second]}"
  wait "${PIDS[second]}" || true
  run_arbiter
  placed_are '[0, 0]'
}

@test "a tenant is placed on GPUs that its step can open" {
  LD_LIBRARY_PATH+=:$BUILD/tests/simgpu/nvml
  start_arbiter
  local name
  for name in a b c; do
    SHAREDGPU_DEVICES=1 command_of $name sleep 600
  done
  until_true 20 placed_are '[0, 3]'
  SHAREDGPU_DEVICES=0,1 command_of d sleep 600
  until_true 20 placed_are '[1, 3]'
}

@test "the arbiter finds a driver that becomes ready later" {
  mkdir "$DIR/driver"
  LD_LIBRARY_PATH=$DIR/driver start_arbiter
  json_is 's["gpus"]' '[]'
  command_of before sleep 600
  tenant early hold --bytes 50MiB --seconds 600 --progress
  progresses early
  json_is '[g["verified"] for g in s["gpus"]]' '[False]'
  ln -s "$BUILD/tests/simgpu/libcuda.so.1" "$DIR/driver/"
  until_true 30 json_is '[g["verified"] for g in s["gpus"]]' '[True, True]'
  command_of after sleep 600
  until_true 20 json_is 'sorted(len(t["placed"]) for t in s["tenants"])' '[0, 1]'
  grep -q 'warning.*no GPU found' "$DIR/arbiter.log"
}

@test "numbers in CUDA_VISIBLE_DEVICES count the tenant's GPUs; the UUID of another GPU is used as it is" {
  start_arbiter
  command_of blocker sleep 600
  until_true 20 placed_are '[1, 0]'
  local first second
  first=$(uuid 0) second=$(uuid 1)
  command_of number env CUDA_VISIBLE_DEVICES=0 "$PROGRAMS/hold" --bytes 25MiB --seconds 600 --progress
  progresses number
  json_is '[t["gpus"] for t in s["tenants"] if t["gpus"]]' "[['$second']]"
  kill "${PIDS[number]}"
  wait "${PIDS[number]}" || true
  command_of none env -u CUDA_VISIBLE_DEVICES "$PROGRAMS/hold" --bytes 25MiB --seconds 600 --progress
  progresses none
  json_is '[t["gpus"] for t in s["tenants"] if t["gpus"]]' "[['$second']]"
  kill "${PIDS[none]}"
  wait "${PIDS[none]}" || true
  run -1 "$SHAREDGPU" run -- env CUDA_VISIBLE_DEVICES=1 "$PROGRAMS/hold" --bytes 25MiB --seconds 1
  command_of other env CUDA_VISIBLE_DEVICES="$first" "$PROGRAMS/hold" --bytes 25MiB --seconds 600 --progress
  progresses other
  json_is '[(t["gpus"], t["placed"]) for t in s["tenants"] if t["gpus"]]' "[(['$first'], ['$second'])]"
}

@test "without Slurm the user chooses GPUs by CUDA_VISIBLE_DEVICES; without an arbiter it stays as it is" {
  start_arbiter
  # shellcheck disable=SC2016
  local show='echo "[$CUDA_VISIBLE_DEVICES][$SHAREDGPU_GPUS]"'
  CUDA_VISIBLE_DEVICES=1 run -0 "$SHAREDGPU" run -- bash -c "$show"
  [ "$output" = "[1][]" ]
  run -0 "$SHAREDGPU" run -- bash -c "$show"
  [[ $output == "[$(uuid 0)][$(uuid 0)]" ]]
  printf 'Socket=%s\nArbiterTimeout=0s\n' "$DIR/nobody" >"$DIR/nobody.conf"
  SHAREDGPU_SOCKET='' run -0 "$SHAREDGPU" run --config "$DIR/nobody.conf" -- bash -c "$show"
  [[ $output == *"[][]" ]]
}
