#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests programs in a container with a Debian (bullseye, glibc 2.31) that is older than the Debian of the build. The
# arbiter runs outside of the container.
load helpers

ROOTS=${SHAREDGPU_ROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/sharedgpu/roots}

# The container's root folder is made once, and no test writes to it.
setup_file() {
  [[ $(id -u) == 0 ]] || return 0
  mkdir -p "$ROOTS"
  exec 9>"$ROOTS/lock"
  flock 9
  [[ -e $ROOTS/bullseye/made ]] && return
  rm -rf "$ROOTS/bullseye"
  debootstrap --variant=minbase bullseye "$ROOTS/bullseye" http://deb.debian.org/debian >"$ROOTS/log" 2>&1 9>&- ||
    { tail -n 20 "$ROOTS/log"; return 1; }
  touch "$ROOTS/bullseye/made"
}

# prepare: starts the arbiter. The container sees only the test's folder, at /mnt, and /proc.
prepare() {
  [[ $(id -u) == 0 ]] || skip "only root may change its root folder"
  cp "$BUILD"/tests/container/{libcuda.so.1,fork,getproc,hold} "$PRELOAD" "$DIR"
  rm -f "$SIMGPU_STATE"
  SIMGPU_STATE=$DIR/gpu
  start_arbiter
}

# in_root COMMAND...: runs the command as a shell of the container would run it.
in_root() {
  unshare --mount --propagation private sh -c 'mount --bind "$1" "$2/mnt" && mount -t proc proc "$2/proc" &&
    root=$2 && shift 2 && exec chroot "$root" "$@"' sh "$DIR" "$ROOTS/bullseye" "$@"
}

# inside NAME PROGRAM ARGUMENT...: starts a tenant in the container.
inside() {
  local name=$1 program=$2
  shift 2
  SIMGPU_STATE=/mnt/gpu SHAREDGPU_SOCKET=/mnt/socket in_root env LD_PRELOAD=/mnt/libsharedgpu.so \
    LD_LIBRARY_PATH=/mnt "/mnt/$program" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

@test "the container's glibc is older than the host's" {
  prepare
  run -0 in_root ldd --version
  [[ $output == *" 2.31"* ]]
}

@test "two tenants in the container swap and verify every byte" {
  prepare
  inside one hold --bytes 75% --of 256MiB --seconds 4 --seed 1 --verify
  inside two hold --bytes 75% --of 256MiB --seconds 4 --seed 2 --verify
  until_true 60 json_is 'len(s["tenants"])' 2
  all_succeed one two
  (($(gpu copied_in) > 0))
  [[ ! -s $DIR/one.err && ! -s $DIR/two.err ]]
}

@test "every door and every kind of child process work in the container" {
  prepare
  inside doors getproc
  succeeds doors
  inside fork fork
  succeeds fork
  [[ ! -s $DIR/doors.err && ! -s $DIR/fork.err ]]
  until_true 60 json_is 'len(s["tenants"])' 0
}
