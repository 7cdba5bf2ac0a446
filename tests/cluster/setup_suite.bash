# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Starts one cluster for all tests of this folder, and installs the build into the cluster's folder. The cluster's
# folder has all files that jobs use: unprivileged users may be unable to read the sources.
#
# SHAREDGPU_BUILD names the build folder (default: build), and SHAREDGPU_CLUSTER_DIR names the cluster's folder. After a
# failure the cluster's folder and the logs in it are kept.

setup_suite() {
  local here root build dir
  here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
  root=$(dirname "$(dirname "$here")")
  build=${SHAREDGPU_BUILD:-$root/build}
  dir=${SHAREDGPU_CLUSTER_DIR:-$(mktemp -d /tmp/sgpu-test.XXXXXX)}
  export SHAREDGPU_CLUSTER_DIR=$dir SHAREDGPU_BUILD=$build CLUSTER=$here/cluster

  [[ -e $dir/installed ]] || "$root/scripts/install-for-cluster" "$build" "$dir"
  mkdir -p "$dir/etc" "$dir/jobs"
  chmod 1777 "$dir/jobs"
  # Turns are short, since the tests wait for many turns. All nodes share one arbiter, so the arbiter needs no
  # connection to other arbiters.
  cat >"$dir/etc/sharedgpu.conf" <<CONF
Socket=$dir/run/sharedgpud.sock
StateDir=$dir/sharedgpu
Quantum=500ms
LogLevel=debug
LogFile=$dir/log/sharedgpud
PeerPort=0
CONF
  CLUSTER_NAME=t$((RANDOM % 1000))n CLUSTER_PREFIX=$dir/prefix CLUSTER_SIMGPU=$dir/simgpu CLUSTER_GPU_MEMORY=256MiB \
    "$CLUSTER" up "$dir"
}

teardown_suite() {
  local beside=("$SHAREDGPU_CLUSTER_DIR"-{gpus,hosts}) each # additional clusters: lib/gpus.bash and lib/hosts.bash
  for each in "${beside[@]}"; do
    if [[ -e $each ]]; then "$CLUSTER" down "$each"; fi
  done
  "$CLUSTER" down "$SHAREDGPU_CLUSTER_DIR"
  if [[ -e $SHAREDGPU_CLUSTER_DIR/failed ]]; then
    echo "# the cluster's logs stay in $SHAREDGPU_CLUSTER_DIR/log" >&3
    # Failed tests are repeated once, with new additional clusters.
    for each in "${beside[@]}"; do
      if [[ -e $each ]]; then rm -rf "$each-failed" && mv "$each" "$each-failed"; fi
    done
  else
    rm -rf "$SHAREDGPU_CLUSTER_DIR" "${beside[@]}"
  fi
}
