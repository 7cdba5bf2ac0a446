#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `sharedgpu top`, `status --me` and `trace` show what real tenants do. The full screen runs in a terminal of tmux.
load helpers

TERMINALS=0

setup_file() { command -v tmux >/dev/null || skip "tmux is not installed"; }

# terminal WIDTH HEIGHT [VARIABLE=VALUE...]: starts `sharedgpu top` in a terminal of this size.
terminal() {
  local width=$1 height=$2
  shift 2
  TERMINAL=$DIR/tmux.$((++TERMINALS))  # a killed tmux server may still have the previous socket
  tmux -S "$TERMINAL" -f /dev/null new-session -d -s top -x "$width" -y "$height" \
    env "$@" sh -c '"$0" top --config "$1" --interval 500ms; echo "ended with $?"; sleep 600' "$SHAREDGPU" "$DIR/conf"
}
press() { tmux -S "$TERMINAL" send-keys -t top "$@"; }
screen() { tmux -S "$TERMINAL" capture-pane -p -t top "$@"; }
shows() { screen | grep -q -- "$1"; }
shows_not() { ! shows "$1"; }

eval "$(declare -f teardown | sed '1s/teardown/end_all/')"
teardown() {
  [[ ! -v TERMINAL ]] || tmux -S "$TERMINAL" kill-server 2>/dev/null || true
  end_all
}

# Two tenants that do not fit together.
two_tenants() {
  start_arbiter "$@"
  tenant one hold --bytes 60% --of 256MiB --seconds 600 --progress
  tenant two hold --bytes 60% --of 256MiB --seconds 600 --progress
  progresses one
  progresses two
}

@test "top shows tenants on the whole terminal, sorts, narrows, resizes, and ends by q" {
  two_tenants
  terminal 120 30
  until_true 20 shows '^run 2 '
  shows 'GPU 0  \[#*\.*\]'
  shows '1 GPU, 2 tenants'
  until_true 20 shows 'has it, for another'
  [[ $(screen | grep '^run' | head -n 1) == "run 1 "* ]]
  press t
  until_true 20 eval '[[ $(screen | grep "^run" | head -n 1) == "run 2 "* ]]'
  press '?'
  until_true 20 shows 'm  resident'
  press ' '
  tmux -S "$TERMINAL" resize-window -t top -x 50 -y 12
  until_true 20 shows_not 'MOVE/s'
  shows '^run 1 '
  press q
  until_true 20 shows 'ended with 0'
}

@test "top has colours only where the terminal has them and the user wants them" {
  two_tenants
  terminal 100 20 TERM=screen-256color
  until_true 20 shows '^run 2 '
  screen -e | grep -q $'\e\[3[2346]m'
  tmux -S "$TERMINAL" kill-server
  terminal 100 20 TERM=screen-256color NO_COLOR=1
  until_true 20 shows '^run 2 '
  ! screen -e | grep -q $'\e\[3[1-7]m' || false
  tmux -S "$TERMINAL" kill-server
  terminal 100 20 TERM=vt100
  until_true 20 shows '^run 2 '
  ! screen -e | grep -q $'\e\[3[1-7]m' || false
  tmux -S "$TERMINAL" kill-server
  terminal 100 20 TERM=no-such-terminal
  until_true 20 shows "'no-such-terminal' (TERM) is not known here"
  shows 'ended with 1'
}

@test "top goes on while there is no arbiter, and shows the next one" {
  two_tenants
  terminal 120 20
  until_true 20 shows '^run 2 '
  kill -9 "$ARBITER"
  until_true 20 shows 'no arbiter at'
  shows '^run 2 '
  run_arbiter
  until_true 20 shows '1 GPU, '
}

@test "top --once is for scripts: no terminal is needed, and the rates are those of a second" {
  two_tenants
  "$SHAREDGPU" top --config "$DIR/conf" --once --interval 1s </dev/null >"$DIR/once.out"
  grep -q '^TENANT ' "$DIR/once.out"
  (($(grep -c '^run ' "$DIR/once.out") == 2))
  ! grep -q $'\e' "$DIR/once.out" || false
  "$SHAREDGPU" top --config "$DIR/conf" --json --interval 2s </dev/null >"$DIR/json.out"
  python3 - "$DIR/json.out" <<'PYTHON'
import json, sys
top = json.load(open(sys.argv[1]))
assert 1.9 < top["seconds"] < 30, top
assert len(top["tenants"]) == 2 and len(top["gpus"]) == 1
for tenant in top["tenants"]:
    assert -0.01 <= tenant["busy"] <= 1.01 and -0.01 <= tenant["waiting"] <= 1.01, tenant
assert sum(t["busy"] for t in top["tenants"]) <= 1.05 and sum(t["waiting"] for t in top["tenants"]) > 0.5, top
PYTHON
  run -1 "$SHAREDGPU" top --config "$DIR/conf" </dev/null
  [[ $output == *"not a terminal; see sharedgpu top --once"* ]]
}

@test "status --me tells a tenant where it stands" {
  start_arbiter Quantum=60s
  tenant one hold --bytes 60% --of 256MiB --seconds 600 --progress
  tenant two hold --bytes 60% --of 256MiB --seconds 600 --progress
  until_true 60 json_is "len(s['gpus'][0]['holders']) == 1 == len(s['gpus'][0]['queue'])" True
  local holder waiting
  holder=$(json "s['gpus'][0]['holders'][0]")
  waiting=$((3 - holder))
  local said
  said=$(SHAREDGPU_RUN=$waiting "$SHAREDGPU" status --me)
  [[ $said =~ ^"Run $waiting waits for GPU 0, and is next in the queue. Run $holder ("[a-z0-9_-]+") has the GPU, and the turn may last another "[0-9.]+" s."$ ]]
  [[ $(SHAREDGPU_RUN=$holder "$SHAREDGPU" status --me) == "Run $holder has GPU 0; 1 other waits. The turn may last another "* ]]
  SHAREDGPU_RUN=$waiting "$SHAREDGPU" status --me --json | python3 -c '
import json, sys
(me,) = json.load(sys.stdin)["tenants"]
assert me["state"] == "waiting" and me["gpus"][0]["place"] == 1, me
assert 0 < me["gpus"][0]["turn_left_seconds"] <= 60, me'
  (($("$SHAREDGPU" status --me | wc -l) == 2))
  [[ $(SHAREDGPU_RUN=99 SLURM_JOB_ID=7 "$SHAREDGPU" status --me) == "Job 7 has not used a shared GPU of this node yet." ]]
}

@test "the trace agrees with the ledger and the status, and its picture is XML" {
  start_arbiter
  tenant one hold --bytes 60% --of 256MiB --seconds 4 --verify
  tenant two hold --bytes 60% --of 256MiB --seconds 4 --verify
  all_succeed one two
  "$SHAREDGPU" trace --config "$DIR/conf" >"$DIR/trace.json"
  "$SHAREDGPU" ledger --config "$DIR/conf" --by tenant --format json >"$DIR/ledger.json"
  python3 - "$DIR" <<'PYTHON'
import json, sys
trace = json.load(open(f"{sys.argv[1]}/trace.json"))
tenants = {row["tenant"]: row for row in json.load(open(f"{sys.argv[1]}/ledger.json"))}
events = trace["traceEvents"]
names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
sums, lanes = {}, {}
for e in events:
    if e["ph"] == "M":
        assert e["name"] in ("process_name", "thread_name", "process_sort_index"), e
        continue
    assert e["ph"] == "X" and e["dur"] >= 0 and isinstance(e["ts"], int), e
    lanes.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    key = names[e["pid"]].split(" (")[0], e["cat"]
    sums[key] = sums.get(key, 0) + e["dur"] / 1e6
for lane in lanes.values():
    lane.sort()
    assert all(a[1] <= b[0] for a, b in zip(lane, lane[1:])), lane
for name, row in tenants.items():
    assert abs(sums[name, "lease"] - row["lease_seconds"]) < 1e-3, (name, sums, row)
    assert sums[name, "waiting"] > 1 and sums[name, "moving in"] > 0 and sums[name, "moving out"] > 0, sums
    assert sums[name, "moving in"] <= sums[name, "waiting"] + 0.5, sums
PYTHON
  "$SHAREDGPU" trace --config "$DIR/conf" --svg >"$DIR/trace.svg"
  python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$DIR/trace.svg"
  (($("$SHAREDGPU" trace --config "$DIR/conf" --until now-1hour | grep -c '"X"' || true) == 0))
  echo "no ledger" >"$DIR/other"
  run -1 "$SHAREDGPU" trace "$DIR/other"
  [[ $output == "sharedgpu: $DIR/other: not a ledger: no line of it is a record" ]]
}

@test "overrides are listed and cleared, and a partition that Slurm does not have is refused" {
  mkdir "$DIR/bin"
  printf '#!/bin/sh\n[ "$3" = long ] || { echo "Partition $3 not found"; exit 1; }\n' >"$DIR/bin/scontrol"
  chmod +x "$DIR/bin/scontrol"
  PATH=$DIR/bin:$PATH
  start_arbiter "AdminUsers=$(id -u)"
  set_() { "$SHAREDGPU" set --config "$DIR/conf" "$@"; }
  set_ Quantum=2s max-wait=1m
  set_ partition=long Policy=fcfs
  run -0 set_ --list
  [[ $output == $'Quantum=2s\nMaxWait=1m\n[partition long] Policy=fcfs' ]]
  set_ --list --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) == 3'
  run -2 set_ partition=lnog Policy=fcfs
  [[ $output == "sharedgpu: Slurm has no partition 'lnog'" ]]
  run -2 set_ Quantm=2s
  [[ $output == *"did you mean Quantum?" ]]
  set_ Quantum=
  json_is "s['quantum_seconds']" 0.5
  run -1 set_ Quantum=
  [[ $output == "sharedgpu: Quantum: nothing is set that could be cleared" ]]
  set_ --clear
  [[ -z $(set_ --list) ]]
}
