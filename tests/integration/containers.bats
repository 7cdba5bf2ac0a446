#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests tenants in Podman's containers, started through the hook of etc/containers/podman, and the files for other
# runtimes. The image is a folder with a few programs of this host. Nothing of the host's Podman is used or changed.
load helpers

# prepare: starts the arbiter and makes the image. Podman finds the hook in this test's own configuration.
prepare() {
  [[ $(id -u) == 0 ]] || skip "a container without an installed user namespace needs root"
  command -v podman crun >/dev/null || skip "podman or crun is not installed"
  make_image /bin/sh /usr/bin/env /bin/cat "$PROGRAMS/hold"
  mkdir -p "$DIR/hooks"
  sed "s|@PREFIX@/bin/sharedgpu|$SHAREDGPU|" "$BATS_TEST_DIRNAME/../../etc/containers/podman/sharedgpu.json.in" \
    >"$DIR/hooks/sharedgpu.json"
  sed "/^hooks_dir/s|= .*|= [\"$DIR/hooks\"]|" "$BATS_TEST_DIRNAME/../../etc/containers/podman/sharedgpu.conf.in" \
    >"$DIR/containers.conf"
  start_arbiter
}

# make_image PROGRAM...: makes the folder $DIR/image with the programs in /bin, their libraries and all of glibc that the
# library needs.
make_image() {
  local image=$DIR/image file
  mkdir -p "$image"/{bin,tmp,lib64,proc,sys,dev,etc,run}
  for file; do
    cp -L "$file" "$image/bin"
    while read -r library; do
      mkdir -p "$image/${library%/*}"
      cp -L "$library" "$image/$library"
    done < <(ldd "$file" "$PRELOAD" | sed -n 's/.*\(=> \|^\t\)\(\/[^ ]*\) .*/\2/p' | grep -v "^$BUILD/interposer")
  done
}

# in_cgroup2 COMMAND...: runs the command with only version 2 of control groups, since crun does not run on hosts with
# both versions. The containers of these tests use no control groups.
in_cgroup2() {
  [[ $(stat -fc %T /sys/fs/cgroup) != cgroup2fs ]] || exec "$@"
  exec unshare --mount --propagation private sh -c 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"' sh "$@"
}

# container [OPTION...] -- COMMAND...: runs the command in a container. The simulated GPU's driver is in the image, and
# the GPU is a file in the host's /dev/shm. The container gets this file as it would get the device files of a real GPU.
container() {
  local options=()
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  export CONTAINERS_CONF=$DIR/containers.conf
  in_cgroup2 podman --root "$DIR/storage" --runroot "$DIR/runroot" --storage-driver vfs \
    --runtime crun run --rm --network host --ipc host --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 -e LD_LIBRARY_PATH="$LD_LIBRARY_PATH" -e SIMGPU_STATE \
    -e SIMGPU_MEMORY -e SIMGPU_CONTEXT "${options[@]}" --rootfs "$DIR/image" "$@"
}

# inside NAME [OPTION... --] PROGRAM ARGUMENT...: starts a tenant in a container.
inside() {
  local name=$1 words=("${@:2}")
  [[ ${words[0]} == -[a-z]* ]] || words=(-- "${words[@]}")
  export -f container in_cgroup2
  export DIR
  "$SHAREDGPU" run -- bash -c 'container "$@"' bash "${words[@]}" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

@test "two tenants in containers of Podman swap and verify every byte" {
  prepare
  inside one hold --bytes 75% --of 256MiB --seconds 4 --seed 1 --verify
  inside two hold --bytes 75% --of 256MiB --seconds 4 --seed 2 --verify
  until_true 60 json_is 'len([t for t in s["tenants"] if t["footprint_bytes"]])' 2
  all_succeed one two
  (($(gpu copied_in) > 0))
  [[ ! -s $DIR/one.err && ! -s $DIR/two.err ]]
  until_true 30 json_is 'len(s["tenants"])' 0
}

@test "a container of a job has the library, the socket and the job's variables; one outside of jobs is unchanged" {
  prepare
  # shellcheck disable=SC2016
  inside job sh -c 'echo "$LD_PRELOAD $SHAREDGPU_SOCKET"; test -S "$SHAREDGPU_SOCKET" && cat /proc/self/maps'
  succeeds job
  grep -qx "$PRELOAD $SHAREDGPU_SOCKET" "$DIR/job.out"
  grep -q "$PRELOAD" "$DIR/job.out"
  [[ ! -s $DIR/job.err ]]
  run -0 --separate-stderr container -- env
  [[ $output != *LD_PRELOAD* && $output != *SHAREDGPU_SOCKET* ]]
  [[ -z $stderr ]]
}

@test "a container of a job with an empty LD_PRELOAD stays as it is" {
  prepare
  inside empty -e LD_PRELOAD= -- env
  succeeds empty
  grep -qx "LD_PRELOAD=" "$DIR/empty.out"
  run ! grep -q SHAREDGPU_SOCKET "$DIR/empty.out"
  [[ ! -s $DIR/empty.err ]]
}

@test "a container that inherits the preload outside of jobs starts without it, and nothing complains" {
  prepare
  run -0 --separate-stderr container -e LD_PRELOAD="/missing/libsharedgpu.so" -- env
  [[ $output != *LD_PRELOAD* ]]
  [[ -z $stderr ]]
}

@test "programs that use musl run in a container of a job, and nothing complains" {
  prepare
  command -v musl-gcc >/dev/null || skip "musl-tools is not installed"
  mkdir -p "$DIR/image/lib"
  cp -L "$(readlink -f /lib/ld-musl-*.so.1)" "$DIR/image/lib/$(basename /lib/ld-musl-*.so.1)"
  musl-gcc -o "$DIR/image/bin/musl" "$BATS_TEST_DIRNAME/../interposer/musl.c"
  inside musl musl
  succeeds musl
  grep -qx works "$DIR/musl.out"
  [[ ! -s $DIR/musl.err ]]
}

# without_sharing NAME: succeeds if the container NAME has run without the library and one line says why.
without_sharing() {
  succeeds "$1"
  grep -qx works "$DIR/$1.out"
  cat "$DIR/$1.err"
  (($(wc -l <"$DIR/$1.err") == 1))
  grep -q "^sharedgpu: .* cannot be mounted in the container: .*; the container runs without GPU sharing$" "$DIR/$1.err"
}

# spoil COMMAND...: runs the command in the image's folder, and then starts a container of a job.
spoil() {
  (cd "$DIR/image" && "$@")
  # shellcheck disable=SC2016
  inside spoilt sh -c '[ -z "$LD_PRELOAD" ] && echo works'
}

@test "an image whose links or files are in the way starts without GPU sharing, and nothing outside of it is written" {
  prepare
  local outside=$DIR/outside top=${BUILD#/}
  top=${top%%/*}
  mkdir "$outside"
  rm -r "${DIR:?}/image/$top"
  spoil ln -s "$outside" "$top"
  without_sharing spoilt
  spoil ln -sfn "../../../../../../../../$outside" "$top"
  without_sharing spoilt
  spoil ln -sfn "$top" "$top"
  without_sharing spoilt
  rm "$DIR/image/$top"
  spoil touch "$top"
  without_sharing spoilt
  rm "$DIR/image/$top"
  [[ -z $(ls -A "$outside") ]]
}

@test "a link of the image that stays inside of it is no obstacle" {
  prepare
  local top=${BUILD#/}
  top=${top%%/*}
  mv "$DIR/image/$top" "$DIR/image/elsewhere"
  ln -s /elsewhere "$DIR/image/$top"
  inside linked cat /proc/self/maps
  succeeds linked
  grep -q libsharedgpu.so "$DIR/linked.out"
  [[ ! -s $DIR/linked.err ]]
}

@test "a read-only image without the folders starts without GPU sharing; with the folders it shares" {
  prepare
  mkdir -p "$DIR/image/$BUILD/interposer" "$DIR/image/$DIR"
  touch "$DIR"/image/{etc/{hosts,hostname,resolv.conf},run/.containerenv} # files that Podman itself creates
  ln -s /proc/mounts "$DIR/image/etc/mtab"
  # shellcheck disable=SC2016
  local read_only='mount -t tmpfs none "$DIR/image" && cp -a "$DIR/copy/." "$DIR/image" && mount -o remount,ro "$DIR/image" && exec "$@"'
  cp -a "$DIR/image" "$DIR/copy"
  export -f container in_cgroup2
  export DIR
  run -0 --separate-stderr "$SHAREDGPU" run -- unshare --mount --propagation private bash -c "$read_only" bash \
    bash -c 'container -- cat /proc/self/maps'
  [[ $output == *"$PRELOAD"* && -z $stderr ]]
  rm -r "$DIR/copy/${BUILD:?}"
  run -0 --separate-stderr "$SHAREDGPU" run -- unshare --mount --propagation private bash -c "$read_only" bash \
    bash -c 'container -- cat /proc/self/maps'
  [[ $output != *"$PRELOAD"* ]]
  [[ $stderr == "sharedgpu: "*": cannot be created: Read-only file system; the container runs without GPU sharing" ]]
}

@test "nothing is created in a folder that a user mounts above the library" {
  prepare
  local users=$DIR/users top=${BUILD#/}
  mkdir "$users"
  # shellcheck disable=SC2016
  inside mounted -v "$users:/${top%%/*}" -- sh -c '[ -z "$LD_PRELOAD" ] && echo works'
  without_sharing mounted
  [[ -z $(ls -A "$users") ]]
}

@test "programs that podman exec starts share the GPU, if it is told to hand on the job's variables" {
  prepare
  # shellcheck disable=SC2016
  local script='
    containers() { podman --root "$DIR/storage" --runroot "$DIR/runroot" --storage-driver vfs --runtime crun "$@"; }
    containers run --detach --name one --network host --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
      --rootfs "$DIR/image" sh -c "while :; do cat /dev/null; done" >"$DIR/id" &&
      LD_PRELOAD=$PRELOAD containers exec --env LD_PRELOAD --env "SHAREDGPU_*" --env "CUDA_*" one sh -c "env; cat /proc/self/maps"
    containers rm --force --time 0 one >"$DIR/id"'
  export DIR PRELOAD CONTAINERS_CONF=$DIR/containers.conf
  export -f in_cgroup2
  run -0 --separate-stderr "$SHAREDGPU" run -- bash -c 'in_cgroup2 "$@"' bash bash -c "$script"
  [[ $output == *"SHAREDGPU_SOCKET=$SHAREDGPU_SOCKET"* && $output == *" $PRELOAD"* ]]
  [[ -z $stderr ]]
}

@test "a text that is not a container's configuration is printed unchanged, with one line on stderr" {
  [[ -x $SHAREDGPU ]]
  run -0 --separate-stderr "$SHAREDGPU" oci <<<'{"mounts": 3}'
  [[ $output == '{"mounts": 3}' ]]
  [[ $stderr == "sharedgpu: standard input: 'mounts' is not a list; the container runs without GPU sharing" ]]
}

# enroot_hook COMMAND...: runs enroot's hook by the command. The container's environment has LINES_OF_USER, too. MOUNTS
# and ENVIRON are the contents of the files that the hook has written.
enroot_hook() {
  printf '%s\n' PATH=/bin "LD_PRELOAD=/missing/libsharedgpu.so:/lib/mine.so" "${LINES_OF_USER[@]}" >"$DIR/environ"
  : >"$DIR/mounts"
  sed "s|@PREFIX@/lib/sharedgpu/libsharedgpu.so|$PRELOAD|; s|@PREFIX@/bin/sharedgpu|$SHAREDGPU|" "$BATS_TEST_DIRNAME/../../etc/containers/enroot/50-sharedgpu.sh.in" \
    >"$DIR/hook"
  mkdir -p "$DIR/rootfs"
  ENROOT_ROOTFS=$DIR/rootfs ENROOT_ENVIRON=$DIR/environ ENROOT_MOUNTS=$DIR/mounts "$@" bash "$DIR/hook" 2>"$DIR/hook.err"
  MOUNTS=$(<"$DIR/mounts") ENVIRON=$(<"$DIR/environ")
}

@test "enroot's hook adds the job's folders and variables, and outside of jobs removes the preload" {
  start_arbiter
  enroot_hook "$SHAREDGPU" run --
  [[ $MOUNTS == *"$BUILD/interposer $BUILD/interposer none "*"$DIR $DIR none "* ]]
  [[ $ENVIRON == *"SHAREDGPU_SOCKET=$SHAREDGPU_SOCKET"*"SHAREDGPU_TOKEN="*"LD_PRELOAD=/lib/mine.so:$PRELOAD" ]]
  enroot_hook env
  [[ -z $MOUNTS && $ENVIRON == $'PATH=/bin\nLD_PRELOAD=/lib/mine.so' ]]
  [[ ! -s $DIR/hook.err ]]
}

@test "enroot's hook leaves alone a container with an empty LD_PRELOAD" {
  start_arbiter
  LINES_OF_USER=(LD_PRELOAD=)
  enroot_hook "$SHAREDGPU" run --
  [[ -z $MOUNTS && $ENVIRON == *$'\nLD_PRELOAD=' && $ENVIRON != *SHAREDGPU* ]]
}

@test "enroot's hook leaves alone a container whose image is in the way, and says why" {
  start_arbiter
  local top=${BUILD#/}
  mkdir "$DIR/rootfs"
  ln -s loop "$DIR/rootfs/loop"
  ln -s loop "$DIR/rootfs/${top%%/*}"
  enroot_hook "$SHAREDGPU" run --
  [[ -z $MOUNTS && $ENVIRON == $'PATH=/bin\nLD_PRELOAD=/lib/mine.so' ]]
  grep -q "^sharedgpu: .* cannot be mounted in the container: .*Too many levels of symbolic links" "$DIR/hook.err"
}
