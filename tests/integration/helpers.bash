# SPDX-License-Identifier: Apache-2.0
# Gives each test its own arbiter and its own simulated GPU, and runs tenants in the background. The variable BUILD_DIR
# names the build folder, if it is not build/.

bats_require_minimum_version 1.5.0

setup() {
  local root
  root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
  BUILD=$(cd "$root/${BUILD_DIR:-build}" 2>/dev/null || cd "${BUILD_DIR:-build}" && pwd)
  PROGRAMS=$BUILD/tests/programs
  SHAREDGPU=$BUILD/arbiter/sharedgpu
  PRELOAD=$BUILD/interposer/libsharedgpu.so
  DIR=$(mktemp -d /tmp/sharedgpu-test.XXXXXX)
  unset SHAREDGPU_TOKEN LD_PRELOAD CUDA_VISIBLE_DEVICES
  export SHAREDGPU_SOCKET=$DIR/socket
  export LD_LIBRARY_PATH=$BUILD/tests/simgpu
  export SIMGPU_STATE=/dev/shm/${DIR##*/} SIMGPU_MEMORY=256MiB SIMGPU_CONTEXT=4MiB SIMGPU_FORBID_CONFLICTS=1
  declare -gA PIDS=()
  ARBITER=""
}

teardown() {
  local pid
  for pid in "${PIDS[@]}" $ARBITER; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$DIR" "$SIMGPU_STATE"{,.*}
  [[ -z ${GROUP-} ]] || rmdir "$GROUP" 2>/dev/null || true  # a memory cgroup of this test
}

# start_arbiter [LINE...]: starts the arbiter with these lines in its configuration.
start_arbiter() {
  local line lines=("Socket=$SHAREDGPU_SOCKET" "StateDir=$DIR/state" "$@")
  for line in Quantum=500ms LogLevel=debug; do
    [[ " $* " == *" ${line%=*}="* ]] || lines+=("$line")
  done
  mkdir -p "$DIR/state"
  printf '%s\n' "${lines[@]}" >"$DIR/conf"
  run_arbiter
}

# run_arbiter [DAEMON]: starts the arbiter, or the program DAEMON of another build, with the last configuration.
run_arbiter() {
  "${1:-$BUILD/arbiter/sharedgpud}" --config "$DIR/conf" >>"$DIR/arbiter.log" 2>&1 3>&- &
  ARBITER=$!
  until_true 30 timeout 10 "$SHAREDGPU" status >/dev/null
}

# own_group MIB: makes a memory cgroup with a limit of MIB, below this test's own cgroup (version 1) or the topmost
# cgroup (version 2). GROUP is the new cgroup's folder.
own_group() {
  local above limit
  above=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:\(.*,\)\?memory\(,.*\)\?://p' /proc/self/cgroup) limit=memory.limit_in_bytes
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    above=/sys/fs/cgroup limit=memory.max  # version 2 allows processes only in groups without children
    echo +memory 2>/dev/null >$above/cgroup.subtree_control || true
  fi
  GROUP=$above/${DIR##*/}
  mkdir "$GROUP" 2>/dev/null || skip "no memory cgroup can be made here"
  echo $(($1 << 20)) >"$GROUP/$limit" || skip "no limit can be set to a memory cgroup here"
}

# until_true SECONDS COMMAND...: repeats the command until it succeeds. After SECONDS it fails and prints the ends of
# all outputs.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" 2>/dev/null; do
    if ((SECONDS >= end)); then
      echo "still not true: $*"
      tell
      return 1
    fi
    sleep 0.05
  done
}

tell() {
  local file
  for file in "$DIR"/*.out "$DIR"/*.err "$DIR/arbiter.log"; do
    [[ -s $file ]] || continue
    echo "--- ${file##*/}"
    tail -n 40 "$file"
  done
  info || true
}

# tenant NAME PROGRAM ARGUMENT...: starts a test program as a separate tenant. If $GPUS is set, the tenant has that many
# GPUs; if $SHARE is set, the tenant has that share. The old output is deleted first, since `progresses` would take it for
# that of the new program.
tenant() {
  local name=$1 program=$2
  shift 2
  rm -f "$DIR/$name.out"
  "$SHAREDGPU" run ${GPUS:+--gpus "$GPUS"} ${SHARE:+--share "$SHARE"} -- "$PROGRAMS/$program" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

# plain NAME PROGRAM ARGUMENT...: starts a test program without sharedgpu.
plain() {
  local name=$1 program=$2
  shift 2
  rm -f "$DIR/$name.out"
  "$PROGRAMS/$program" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

# finish NAME: waits for the program's end; `status` is its exit status.
finish() {
  local pid=${PIDS[$1]} end=$((SECONDS + 180))
  while kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS >= end)); then
      echo "$1 (pid $pid) does not end"
      timeout 10 "$SHAREDGPU" status --json || true
      tell
      return 1
    fi
    sleep 0.05
  done
  status=0
  wait "$pid" || status=$?
  unset "PIDS[$1]"
}

# succeeds NAME: waits for the program's end, and fails unless its exit status is 0.
succeeds() {
  finish "$1"
  if ((status != 0)); then
    echo "$1 ended with status $status"
    tell
    return 1
  fi
}

# all_succeed NAME...: waits until all programs have ended, and fails unless all exit statuses are 0.
all_succeed() {
  local name
  for name in "$@"; do succeeds "$name"; done
}

# progresses NAME: waits until the program has printed something, for a minute at most.
progresses() { until_true 60 test -s "$DIR/$1.out"; }

info() { "$BUILD/tests/simgpu/simgpu-info" "$SIMGPU_STATE"; }
# gpu FIELD: prints one number of the simulated GPU, such as peak or used.
gpu() { info | awk -v field="$1" '$1 == field { print $2 }'; }
used_is() { [[ $(gpu used) == "$1" ]]; }

# json EXPRESSION: prints the value of a Python expression over `s`, the output of `sharedgpu status --json`.
json() { timeout 20 "$SHAREDGPU" status --json | python3 -c "import json, sys; s = json.load(sys.stdin); print($1)"; }
json_is() { [[ $(json "$1") == "$2" ]]; }
