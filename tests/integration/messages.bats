#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Messages to users: why a job waits, and what a run has used. Users see what their site lets them see.

load helpers

# lines NAME TEXT: prints the number of lines with TEXT in a tenant's stderr.
lines() { grep -cF -- "$2" "$DIR/$1.err" || true; }
lines_are() { [[ $(lines "$1" "$2") == "$3" ]]; }

# as USER COMMAND...: runs the command as this user.
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
# users_for USER: prints the users whose tenants USER sees.
users_for() {
  as "$1" "$SHAREDGPU" status --json |
    python3 -c 'import json, sys; print(*sorted(t["uid"] for t in json.load(sys.stdin)["tenants"]))'
}

@test "a tenant that waits says once why, from one of its processes" {
  start_arbiter NoticeAfter=1s Quantum=60s IdleRelease=60s # the holder may pause for long on a busy machine
  tenant holder hold --bytes 80% --of 256MiB --seconds 600 --progress
  progresses holder
  "$SHAREDGPU" run -- bash -c '"$@" & "$@" & wait' bash setpriv --pdeathsig KILL "$PROGRAMS/hold" --bytes 40% --of 256MiB --seconds 600 \
    >"$DIR/waiter.out" 2>"$DIR/waiter.err" 3>&- &
  PIDS[waiter]=$!
  until_true 60 lines_are waiter "this job has waited" 1
  grep -E "^sharedgpu\[[0-9]+\]: this job has waited [0-9]+ s for GPU 0: the turn of run 1 lasts up to [0-9]+ s more$" \
    "$DIR/waiter.err"
  sleep 3
  lines_are waiter "this job has waited" 1
  [ ! -s "$DIR/holder.err" ]
}

@test "tenants that wait are told their places in the queue" {
  start_arbiter NoticeAfter=6s Quantum=60s IdleRelease=60s # the second message may come seconds after the first
  local name
  tenant holder hold --bytes 80% --of 256MiB --seconds 600 --progress
  progresses holder
  for name in one other; do tenant $name hold --bytes 80% --of 256MiB --seconds 600; done
  until_true 60 lines_are one "this job has waited" 1
  until_true 60 lines_are other "this job has waited" 1
  cat "$DIR"/{one,other}.err
  (($(cat "$DIR"/{one,other}.err | grep -cE "; it is next in the queue$") == 1))
  (($(cat "$DIR"/{one,other}.err | grep -cE "; it is number 2 of 2 in the queue, so about 1 turn of 60 s comes before its own$") == 1))
}

@test "a run ends with a line about what it has used, if that is asked for, and with its own exit status" {
  start_arbiter
  run -0 --separate-stderr "$SHAREDGPU" run --summary=yes -- "$PROGRAMS/hold" --bytes 40% --of 256MiB --seconds 1
  [[ $stderr =~ ^"sharedgpu: run 1: "[0-9.]+" s with the GPU, 0.0 s waiting for it; moved 0 B to host memory, 0 B back"$ ]]
  run -3 --separate-stderr "$SHAREDGPU" run --summary=yes -- sh -c 'exit 3'
  [[ $stderr == "sharedgpu: run 2: 0.0 s with the GPU"* ]]
  run -0 --separate-stderr "$SHAREDGPU" run --summary=no -- true
  [ -z "$stderr" ]
}

@test "two users see their own tenants where the site says so, and sums of all; StatusUsers see all" {
  ((EUID == 0)) || skip "needs root, to be two users"
  chmod a+rx "$DIR"
  start_arbiter PrivateData=jobs StatusUsers=2003
  local user
  for user in 2001 2002; do
    as $user "$SHAREDGPU" run -- sleep 600 >"$DIR/$user.out" 2>"$DIR/$user.err" 3>&- &
    PIDS[$user]=$!
  done
  until_true 60 json_is 'len(s["tenants"])' 2
  [ "$(users_for 2001)" = 2001 ]
  [ "$(users_for 2002)" = 2002 ]
  [ -z "$(users_for 2004)" ]
  [ "$(users_for 2003)" = "2001 2002" ]
  [ "$(users_for 0)" = "2001 2002" ]
  [ "$(as 2001 "$SHAREDGPU" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["gpus"][0]["units"])')" = 2 ]
}

@test "no other user can read what the arbiter keeps about jobs" {
  ((EUID == 0)) || skip "needs root, to be two users"
  chmod a+rx "$DIR"
  mkdir -p "$DIR/state"
  umask 0
  start_arbiter LogFile="$DIR/log"
  tenant one hold --bytes 10% --of 256MiB --seconds 0.1
  all_succeed one
  local files file
  mapfile -t files < <(find "$DIR/state" "$DIR/log" -type f)
  ((${#files[@]} > 2))
  for file in "${files[@]}"; do
    echo "$file"
    run ! as 2001 test -r "$file"
  done
}

# rootless COMMAND...: runs the command as a subordinate user in a user namespace of user 2001.
rootless() {
  python3 - "$@" <<'SCRIPT'
import ctypes, os, sys
ready, mapped = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.setresgid(2001, 2001, 2001)
    os.setresuid(2001, 2001, 2001)
    if ctypes.CDLL(None).unshare(0x10000000) != 0:  # CLONE_NEWUSER
        os._exit(77)
    os.write(ready[1], b"x")
    os.read(mapped[0], 1)
    os.setresgid(5, 5, 5)
    os.setresuid(5, 5, 5)
    os.execvp(sys.argv[1], sys.argv[1:])
os.close(ready[1])
if not os.read(ready[0], 1):
    sys.exit(77)
for name in "gid_map", "uid_map":
    with open(f"/proc/{child}/{name}", "w") as file:
        file.write("0 2001 1\n1 300001 100\n")
os.write(mapped[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
SCRIPT
}

@test "a user sees its own tenants from within a rootless container, and from outside those within" {
  ((EUID == 0)) || skip "needs root, to be two users"
  rootless true || skip "there are no user namespaces for ordinary users here"
  chmod a+rx "$DIR"
  start_arbiter PrivateData=jobs
  as 2001 "$SHAREDGPU" run -- sleep 600 >"$DIR/outside.out" 2>"$DIR/outside.err" 3>&- &
  PIDS[outside]=$!
  as 2002 "$SHAREDGPU" run -- sleep 600 >"$DIR/other.out" 2>"$DIR/other.err" 3>&- &
  PIDS[other]=$!
  until_true 60 json_is 'len(s["tenants"])' 2
  seen_within() { rootless "$SHAREDGPU" status --json | python3 -c 'import json, sys; print(*sorted(t["uid"] for t in json.load(sys.stdin)["tenants"]))'; }
  [ "$(seen_within)" = 2001 ]
  [ "$(users_for 2002)" = 2002 ]
}
