#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests the operation of an arbiter: its settings are checked and reloaded, its log file is rotated, its health is
# watched, and the service manager is told about it. A healthy run logs no warnings.
load helpers

documented() { "$BATS_TEST_DIRNAME/../../scripts/documented" "$BATS_TEST_DIRNAME/../../docs/operate.md" "$@"; }
check() { timeout 20 "$BUILD/arbiter/sharedgpud" --check "$DIR/conf"; }

@test "--check names all errors with file, line, key and value, and shows what is not the default" {
  printf '%s\n' "Quantum=5s" "MaxWait=30s" "[gpu 0]" "Policy=fcfs" >"$DIR/conf"
  run -0 check
  [[ $output == *"$DIR/conf: ok
  Quantum=5s
  [gpu 0] Policy=fcfs" ]]
  printf '%s\n' "Quantum=soon" "Policee=fcfs" "MaxWait=9s" "nonsense" >"$DIR/conf"
  run -1 check
  [[ $output == "$DIR/conf:1: Quantum: 'soon' is not a time"*"
$DIR/conf:2: unknown key 'Policee'; did you mean Policy?
$DIR/conf:4: expected Key=Value, not 'nonsense'" ]]
  printf '%s\n' "AdminUsers=no-such-user" "StateDir=$DIR/state" "Socket=$DIR/s" >"$DIR/conf"
  run -0 check
  [[ $output == *"$DIR/conf: warning: AdminUsers: no user 'no-such-user' on this host"* ]]
  rm "$DIR/conf"
  run -2 check
  [[ $output == "$DIR/conf: No such file or directory" ]]
  [[ ! -e $DIR/s ]]
}

@test "the page on operation shows real outputs, and has a row for each check" {
  cd "$DIR"
  printf '%s\n' "Quantum=5s" "[gpu 0]" "Policy=fcfs" >sharedgpu.conf
  diff <(documented 'it prints `ok`' | tail -n +2) <("$BUILD/arbiter/sharedgpud" --check sharedgpu.conf)
  diff <("$SHAREDGPU" doctor --list | sed -E 's/^([^ ]+) +(.*)/| `\1` | \2 |/') \
    <(sed -n '/^| check |/,/^$/p' "$BATS_TEST_DIRNAME/../../docs/operate.md" | tail -n +3 | sed '/^$/d')
}

@test "a reload changes a running arbiter, names what needs a restart, and disturbs no program" {
  start_arbiter Quantum=500ms
  tenant one hold --bytes 40% --of 256MiB --seconds 600 --progress
  progresses one
  printf '%s\n' "Socket=$SHAREDGPU_SOCKET" "StateDir=$DIR/state" Quantum=9s Policy=credit LogLevel=debug UnitsPerGpu=4 \
    >"$DIR/conf"
  run -0 "$SHAREDGPU" reload --config "$DIR/conf"
  [ "$output" = "$(documented 'The answer and' | tail -n +2)" ]
  json_is 's["policy"], s["quantum_seconds"]' "credit 9.0"
  # Changes by `sharedgpu set` stay until the arbiter ends.
  "$SHAREDGPU" set quantum=4s
  sed -i s/Quantum=9s/Quantum=8s/ "$DIR/conf"
  kill -HUP "$ARBITER"
  until_true 20 grep -q "values that sharedgpu set has given stay in force: Quantum" "$DIR/arbiter.log"
  json_is 's["quantum_seconds"]' 4.0
  echo "Quantum=never" >"$DIR/conf"
  SHAREDGPU_SOCKET=$SHAREDGPU_SOCKET run -1 "$SHAREDGPU" reload --config "$DIR/conf"
  [[ $output == *"sharedgpu: $DIR/conf:1: Quantum: 'never' is not a time"*"
sharedgpu: the arbiter keeps the settings that it has" ]]
  grep -q "error: .*the settings stay as they are: $DIR/conf:1: Quantum: 'never'" "$DIR/arbiter.log"
  json_is 's["policy"]' credit
  run -1 "$SHAREDGPU" reload --json --config "$DIR/conf"
  [[ $(python3 -c 'import json, sys; print(sorted(json.loads(sys.argv[1])))' "$output") == \
    "['capacity_waits', 'changed', 'error', 'need_restart', 'overridden']" ]]
  json_is 'len(s["tenants"][0]["pids"])' 1
  kill -0 "${PIDS[one]}"
}

@test "LogFile moves and LogLevel changes by a reload; a log that was moved away is begun anew" {
  start_arbiter LogLevel=info
  mkdir -m 755 "$DIR/log"
  echo "LogFile=$DIR/log/file" >>"$DIR/conf"
  "$SHAREDGPU" reload --config "$DIR/conf"
  grep -q "changed: LogFile" "$DIR/log/file"
  mv "$DIR/log/file" "$DIR/log/file.1"
  sed -i s/LogLevel=info/LogLevel=debug/ "$DIR/conf"
  "$SHAREDGPU" reload --config "$DIR/conf"
  grep -q "changed: LogLevel" "$DIR/log/file"
  run ! grep -q "changed: LogLevel" "$DIR/log/file.1"
  "$SHAREDGPU" run -- /bin/true
  sed -i "s|LogFile=.*|LogFile=/proc/none/file|" "$DIR/conf"
  run -1 "$SHAREDGPU" reload --config "$DIR/conf"
  [[ $output == *"LogFile /proc/none"* ]]
  grep -q "LogFile /proc/none" "$DIR/log/file"
}

@test "supervise passes SIGHUP and SIGTERM on to the arbiter" {
  mkdir -p "$DIR/state"
  printf '%s\n' "Socket=$SHAREDGPU_SOCKET" "StateDir=$DIR/state" "LogFile=$DIR/arbiter.log" >"$DIR/conf"
  "$SHAREDGPU" supervise --config "$DIR/conf" >"$DIR/supervise.err" 2>&1 3>&- &
  PIDS[supervise]=$!
  until_true 30 timeout 10 "$SHAREDGPU" status >/dev/null
  ARBITER=$(pgrep -P "${PIDS[supervise]}")
  echo Quantum=3s >>"$DIR/conf"
  kill -HUP "${PIDS[supervise]}"
  until_true 20 grep -q "SIGHUP: the settings were read again: changed: Quantum" "$DIR/arbiter.log"
  kill -TERM "${PIDS[supervise]}"
  until_true 20 bash -c "! kill -0 $ARBITER"
}

# slurm_stand_in STATE REASON: makes an scontrol that shows the node in this state, and records updates of the node.
slurm_stand_in() {
  mkdir -p "$DIR/bin"
  cat >"$DIR/bin/scontrol" <<IN
#!/bin/sh
[ "\$1" != update ] || { echo "\$@" >>"$DIR/updates"; exit; }
echo "NodeName=n1 Arch=x86_64 State=$1 Reason=$2 [root@2026] Other=1"
IN
  printf '#!/bin/sh\n' >"$DIR/bin/logger"
  chmod +x "$DIR/bin"/*
}
healthcheck() {
  PATH=$DIR/bin:$PATH SLURMD_NODENAME=n1 SHAREDGPU_COMMAND=$SHAREDGPU SHAREDGPU_HEALTH_STATE=$DIR/health \
    timeout 20 "$BATS_TEST_DIRNAME/../../etc/sharedgpu-healthcheck" --config "$DIR/conf" "$@"
}

@test "the health check drains no node while the arbiter restarts, and drains one without an arbiter once" {
  slurm_stand_in IDLE none
  start_arbiter
  run healthcheck --drain
  [[ ! -e $DIR/updates ]]
  kill -KILL "$ARBITER"
  wait "$ARBITER" || true
  run -0 healthcheck --drain
  [[ ! -e $DIR/updates && -s $DIR/health ]]
  echo $(($(date +%s) - 301)) >"$DIR/health"
  run -1 healthcheck
  [[ $output == "for 30"?" s: the arbiter does not answer" && ! -e $DIR/updates ]]
  run -1 healthcheck --drain
  [[ $(<"$DIR/updates") == "update NodeName=n1 State=DRAIN Reason=sharedgpu healthcheck: for 30"?" s: the arbiter does not answer" ]]
  slurm_stand_in IDLE+DRAIN "sharedgpu healthcheck: for 301 s: the arbiter does not answer"
  rm "$DIR/updates"
  run -1 healthcheck --drain
  [[ ! -e $DIR/updates ]]
  run -2 healthcheck --none
}

@test "doctor works for everybody, names what is wrong, and fails only then" {
  start_arbiter
  run -0 "$SHAREDGPU" doctor --config "$DIR/conf" config arbiter permissions
  [[ $output == "ok      config         $DIR/conf
ok      arbiter        version "*" serves $SHAREDGPU_SOCKET
ok      permissions    "* ]]
  run -0 "$SHAREDGPU" doctor --list
  [[ $output == *"plugins        sharedgpu's plugins in PluginDir"* ]]
  run -2 "$SHAREDGPU" doctor --config "$DIR/conf" lungs
  [[ $output == "sharedgpu: no check 'lungs'; sharedgpu doctor --list shows all" ]]
  echo Quantum=never >>"$DIR/conf"
  run -1 "$SHAREDGPU" doctor --config "$DIR/conf" --json config arbiter
  [[ $(python3 -c 'import json, sys; s = json.loads(sys.argv[1]); print(s["all_well"], [c["verdict"] for c in s["checks"]])' \
    "$output") == "False ['wrong', 'ok']" ]]
  # On any host, all checks end in time and print a result.
  run timeout 60 "$SHAREDGPU" doctor --config "$DIR/conf"
  ((status == 1 && ${#lines[@]} > 20))
}

@test "a healthy run logs no warnings" {
  # At 0.2 GB/s, moving the memory of a tenant takes a second. After half a second, the arbiter looks for the reason of
  # the delay. It must not log a warning.
  export SIMGPU_PCIE=0.2
  start_arbiter Quantum=1s LogLevel=info
  for name in one two; do tenant "$name" hold --bytes 75% --of 256MiB --seconds 5 --verify; done
  all_succeed one two
  (($(grep -c "warning:\|error:" "$DIR/arbiter.log") == 0)) || { cat "$DIR/arbiter.log"; return 1; }
}
