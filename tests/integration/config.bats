#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Bad input gives a message that names the file, line, option or value.
load helpers

# refused LINE EXPECTED: the arbiter does not start if LINE is line 3 of its configuration, and prints EXPECTED.
refused() {
  printf '%s\n' "# a comment" "Socket=$SHAREDGPU_SOCKET" "$1" >"$DIR/bad.conf"
  run timeout 20 "$BUILD/arbiter/sharedgpud" --config "$DIR/bad.conf"
  ((status == 2))
  [[ $output == *"$DIR/bad.conf:3: $2"* ]] || { echo "$output"; return 1; }
}

@test "unknown keys and bad values name file and line" {
  refused "Quantumm=1s" "unknown key 'Quantumm'"
  refused "Quantum=12 parsecs" "Quantum: '12 parsecs' is not a time"
  refused "DeviceMemoryLimit=lots" "DeviceMemoryLimit: 'lots' is not a size"
  refused "Policy=best" "Policy: 'best'"
  refused "UnitsPerGpu=0" "UnitsPerGpu: '0'"
  refused "OnNoArbiter=maybe" "OnNoArbiter: 'maybe'"
  refused "LogLevel=chatty" "LogLevel: 'chatty'"
  refused "Socket=/elsewhere" "Socket: line 2 sets it already"
}

@test "a configuration file that was named must exist" {
  run timeout 20 "$BUILD/arbiter/sharedgpud" --config "$DIR/none.conf"
  ((status == 2))
  [[ $output == *"$DIR/none.conf"* ]]
}

@test "a socket that cannot be created is named in the error" {
  printf '%s\n' "Socket=$DIR/file/socket" "StateDir=$DIR/state" >"$DIR/bad.conf"
  touch "$DIR/file"
  run timeout 20 "$BUILD/arbiter/sharedgpud" --config "$DIR/bad.conf"
  ((status == 1))
  [[ $output == *"$DIR/file"* ]]
}

@test "sharedgpu set changes the policy and the quantum of a running arbiter" {
  start_arbiter
  "$SHAREDGPU" set policy=credit quantum=7s
  run "$SHAREDGPU" status
  [[ $output == *"policy credit"* ]]
  [[ $("$SHAREDGPU" status --json) == *'"quantum_seconds": 7.0'* ]]
  run "$SHAREDGPU" set policy=best
  ((status == 2))
  [[ $output == *"Policy: 'best' is not a policy"* ]]
  run "$SHAREDGPU" set limit=3
  ((status == 2))
  [[ $output == *"'limit=3' is not NAME=VALUE with one of these: gpu, partition, qos, Policy, Quantum"* ]]
  run "$SHAREDGPU" set policy=fcfs policy=credit
  ((status == 2))
  [[ $output == *"policy is given twice"* ]]
  run "$SHAREDGPU" set qos=high quantum=3s
  ((status == 2))
  [[ $output == *"[qos high] Quantum cannot be in a section of this kind, only in gpu or partition"* ]]
  run "$SHAREDGPU" set gpu=0 partition=long quantum=3s
  ((status == 2))
  [[ $output == *"'partition=long': one of gpu=, partition= and qos= at a time"* ]]
  "$SHAREDGPU" set partition=long quantum=3s priority=5
  [[ $("$SHAREDGPU" status --json) == *'"quantum_seconds": 7.0'* ]]
}

@test "a failed write to standard output is an error" {
  start_arbiter
  run bash -c "'$SHAREDGPU' status --json >/dev/full"
  ((status == 1))
  [[ $output == "sharedgpu: standard output: No space left on device" ]]
  run -0 "$SHAREDGPU" run -- /bin/true
}

@test "sharedgpu set priority= applies to running tenants" {
  start_arbiter
  tenant one hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses one
  json_is 's["tenants"][0]["priority"]' 0
  "$SHAREDGPU" set priority=-3
  json_is 's["tenants"][0]["priority"]' -3
}

@test "each GPU has its policy, in the file and by sharedgpu set" {
  export SIMGPU_DEVICES=2
  start_arbiter Policy=credit Quantum=500ms LogLevel=debug "[gpu 1]" Policy=elastic
  of_gpus() { json '" ".join(g["policy"] for g in sorted(s["gpus"], key=lambda g: g["number"]))'; }
  [ "$(of_gpus)" = "credit elastic" ]
  [[ $("$SHAREDGPU" status) == *"  policy elastic, turns 0.5 s (fixed)"* ]]
  "$SHAREDGPU" set gpu=0 policy=priority max-wait=20s
  [ "$(of_gpus)" = "priority elastic" ]
  run "$SHAREDGPU" set gpu=2 policy=fcfs
  ((status == 1))
  [[ $output == *"no GPU 2 here"* ]]
  run "$SHAREDGPU" set gpu=all policy=fcfs
  ((status == 2))
  [[ $output == *"[gpu all]: 'all' is not a GPU's number"* ]]
  run "$SHAREDGPU" set gpu=1
  ((status == 2))
  [[ $output == *"no setting is given"* ]]
  [ "$(of_gpus)" = "priority elastic" ]
}

@test "a second arbiter on one socket ends with a message and status 0" {
  start_arbiter
  run -0 timeout 20 "$BUILD/arbiter/sharedgpud" --config "$DIR/conf"
  [[ $output == *"$SHAREDGPU_SOCKET"* ]]
}

@test "sharedgpu names the wrong option and value" {
  start_arbiter
  run "$SHAREDGPU" run --memory lots -- true
  ((status != 0))
  [[ $output == *"'lots'"* ]]
  run "$SHAREDGPU" frobnicate
  ((status != 0))
  [[ $output == *frobnicate* ]]
}

@test "the daemons name a wrong option in one line, and the option that is probably meant" {
  for program in arbiter/sharedgpud comment/sharedgpu-comment exporter/sharedgpu-exporter; do
    [[ -x $BUILD/$program ]] || continue
    run -2 "$BUILD/$program" --confg "$DIR/conf"
    name=${program#*/}
    [[ $output == "$name: "*"--confg"*"; did you mean --config?; see $name --help" && ${#lines[@]} == 1 ]] || { echo "$output"; false; }
  done
}

@test "sharedgpu run takes the values that srun takes, and names the options that have no effect here" {
  start_arbiter Policy=priority MaxPriority=100 MaxRequest=50%
  for wrong in --memory=1000000 --deadline=2 --priority=1001 --share=50:25 --gpus=0 --backend=none; do
    run -2 "$SHAREDGPU" run --config "$DIR/conf" "$wrong" -- true
    [[ $output == "sharedgpu: ${wrong%=*}: '${wrong#*=}' is not "* ]]
  done
  run -0 "$SHAREDGPU" run --config "$DIR/conf" --deadline 1:30 --share 80 --priority 5 -- echo ran
  [ "$output" = "sharedgpu: --share=80 has no effect here: shares count under Policy=elastic or deadline, not under priority
sharedgpu: --priority=5 is above 0, the highest of a run: it counts as 0
sharedgpu: --deadline=1:30 has no effect here: deadlines count under Policy=deadline, not under priority
ran" ]
  run -0 "$SHAREDGPU" run --config "$DIR/conf" --memory 64MiB --priority -5 -- echo ran
  [ "$output" = ran ]
}

@test "sharedgpu run passes on the exit status, and the status for a missing command" {
  start_arbiter
  run -7 "$SHAREDGPU" run -- sh -c 'exit 7'
  run -127 "$SHAREDGPU" run -- /no/such/command
  [[ $output == */no/such/command* ]]
}

@test "sharedgpu run uses the user's own timeout" {
  # shellcheck disable=SC2016
  local show='echo "[$SHAREDGPU_ARBITER_TIMEOUT]"'
  start_arbiter ArbiterTimeout=100ms
  run -0 "$SHAREDGPU" run --config "$DIR/conf" -- bash -c "$show"
  [ "$output" = "[100]" ]
  SHAREDGPU_ARBITER_TIMEOUT=2345 run -0 "$SHAREDGPU" run --config "$DIR/conf" -- bash -c "$show"
  [ "$output" = "[2345]" ]
  SHAREDGPU_ARBITER_TIMEOUT=soon run -0 "$SHAREDGPU" run --config "$DIR/conf" -- bash -c "$show"
  [[ $output == *"[100]"* ]]
  [[ $output == *"SHAREDGPU_ARBITER_TIMEOUT: 'soon' is not a number of milliseconds"* ]]
}

@test "test programs name their wrong options" {
  run "$PROGRAMS/hold" --bytes 3parsecs
  ((status == 1))
  [[ $output == *"'3parsecs' is not a size"* ]]
  run "$PROGRAMS/hold" --no-such-option
  ((status > 100))
  SIMGPU_MEMORY=much run "$PROGRAMS/hold"
  ((status == 1))
  [[ $output == *"SIMGPU_MEMORY: 'much' is not a size"* ]]
}

@test "a second arbiter in one StateDir ends with an error that names the first" {
  start_arbiter
  printf 'Socket=%s\nStateDir=%s\n' "$DIR/other" "$DIR/state" >"$DIR/other.conf"
  run -1 "$BUILD/arbiter/sharedgpud" --config "$DIR/other.conf"
  [[ $output == *"StateDir $DIR/state: another arbiter (pid $ARBITER) uses this folder"* ]]
  kill -9 "$ARBITER"
  wait "$ARBITER" || true
  run_arbiter
}

@test "the folders of StateDir, Socket and LogFile must belong to the arbiter's user" {
  mkdir -m 777 "$DIR/open"
  told() { run -1 timeout 20 "$BUILD/arbiter/sharedgpud" --config "$DIR/bad"; [[ $output == *"$1 all users may write to $DIR/open"* ]]; }
  printf '%s\n' "Socket=$DIR/socket" "StateDir=$DIR/open" >"$DIR/bad"
  told StateDir
  printf '%s\n' "Socket=$DIR/open/run/socket" "StateDir=$DIR/state" >"$DIR/bad"
  told "Socket folder"
  printf '%s\n' "Socket=$DIR/socket" "StateDir=$DIR/state" "LogFile=$DIR/open/log" >"$DIR/bad"
  told LogFile
}
