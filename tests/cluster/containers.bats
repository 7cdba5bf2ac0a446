#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Slurm's option --container, with crun and the oci.conf of etc/containers/slurm. The image is a folder with a few
# programs of this host. crun runs without control groups, since it does not support hosts that have both versions of
# cgroups.

bats_require_minimum_version 1.5.0
load lib/jobs

setup() {
  cluster_setup
  command -v crun >/dev/null || skip "crun is not installed"
  make_bundle
}

teardown() {
  rm -f "$dir/etc/oci.conf"
  rm -rf "$dir/bundle"
  cluster_teardown
}

# make_bundle: makes the folder $dir/bundle with config.json and the image.
make_bundle() {
  local image=$dir/bundle/rootfs file library
  mkdir -p "$image"/{bin,tmp,proc,dev,sys,etc}
  for file in /bin/sh /usr/bin/env /bin/cat "$dir/programs/hold"; do
    cp -L "$file" "$image/bin"
    while read -r library; do
      mkdir -p "$image/${library%/*}"
      cp -L "$library" "$image/$library"
    done < <(ldd "$file" "$dir/prefix/lib/sharedgpu/libsharedgpu.so" | sed -n 's/.*\(=> \|^\t\)\(\/[^ ]*\) .*/\2/p')
  done
  jq -n '{ociVersion: "1.0.0", root: {path: "rootfs"},
    process: {user: {uid: 0, gid: 0}, args: ["true"], cwd: "/", env: ["PATH=/bin"]},
    mounts: [{destination: "/proc", type: "proc", source: "proc"},
             {destination: "/dev/shm", type: "bind", source: "/dev/shm", options: ["rbind", "rw"]}],
    linux: {namespaces: [{type: "pid"}, {type: "mount"}]}}' >"$dir/bundle/config.json"
}

# oci_conf SED: installs the example after an edit by the sed expression.
oci_conf() {
  sed "s|crun --root=/tmp/crun-%u|$dir/crun|g; $1" "$dir/prefix/share/sharedgpu/containers/slurm/oci.conf" >"$dir/etc/oci.conf"
  cat >"$dir/crun" <<SCRIPT
#!/bin/sh
exec unshare --mount --propagation private sh -c '[ \$(stat -fc %T /sys/fs/cgroup) = cgroup2fs ] ||
  mount -t cgroup2 none /sys/fs/cgroup; exec "\$@"' sh crun --cgroup-manager=disabled --root=$dir/run/crun "\$@"
SCRIPT
  chmod +x "$dir/crun"
}

@test "two jobs in containers of Slurm swap and verify every byte" {
  oci_conf ""
  for job in 1 2; do
    srun --gres=sharedgpu:1 --container="$dir/bundle" hold --verify --bytes 75% --of 256MiB --seconds 4 \
      >"$dir/jobs/$job" 2>"$dir/jobs/$job.err" &
  done
  wait
  for job in 1 2; do
    grep -q "$verified" "$dir/jobs/$job"
    [[ ! -s $dir/jobs/$job.err ]]
  done
}

@test "a step in a container that starts from a batch script has the library, and nothing complains" {
  oci_conf ""
  id=$(sbatch --parsable --wait --gres=sharedgpu:1 -o "$dir/jobs/%j" \
    --wrap "srun --container=$dir/bundle sh -c 'echo \$LD_PRELOAD; cat /proc/self/maps'")
  grep -qx "$dir/prefix/lib/sharedgpu/libsharedgpu.so" "$dir/jobs/$id"
  ! grep -q ld.so: "$dir/jobs/$id"
}

@test "if oci.conf does not call sharedgpu, one line says so and the container runs" {
  oci_conf "s|[^\"]*bin/sharedgpu oci [^;]*; exec ||"
  id=$(sbatch --parsable --wait --gres=sharedgpu:1 -o "$dir/jobs/%j" \
    --wrap "srun --container=$dir/bundle sh -c 'echo \"\$LD_PRELOAD.\"; env; env >/dev/null'")
  grep -qx "." "$dir/jobs/$id"
  (($(grep -c '^sharedgpu: this container runs without GPU sharing: ' "$dir/jobs/$id") == 1))
  ! grep -q ld.so: "$dir/jobs/$id"
}
