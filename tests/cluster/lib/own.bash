# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# A cluster for one test file alone, whose nodes have two simulated GPUs and by default 16 units each. Both nodes are
# this host and have one arbiter. Call own_cluster_up from setup_file() and own_cluster_down from
# teardown_file().

# own_cluster_up LIBRARIES LINE...: starts the cluster with the simulated driver in LIBRARIES, and adds the lines to
# sharedgpu.conf. A test file may set OWN_SLURM_CONF to lines that are added to slurm.conf, and OWN_GRES_CONF
# to the lines of gres.conf.
own_cluster_up() {
  local first=$SHAREDGPU_CLUSTER_DIR own
  own=$(mktemp -d /tmp/sgpu-own.XXXXXX)
  chmod 755 "$own"
  mkdir -p "$own"/{etc,jobs}
  chmod 1777 "$own/jobs"
  ln -s "$first/programs" "$own/programs"
  printf '%s\n' "Socket=$own/run/sharedgpud.sock" "StateDir=$own/sharedgpu" Quantum=200ms LogLevel=debug \
    "LogFile=$own/log/sharedgpud" "${@:2}" >"$own/etc/sharedgpu.conf"
  if [[ ${OWN_SLURM_CONF-} ]]; then echo "$OWN_SLURM_CONF" >"$own/slurm.conf.extra"; fi
  if [[ ${OWN_GRES_CONF-} ]]; then echo "$OWN_GRES_CONF" >"$own/etc/gres.conf"; fi
  export SHAREDGPU_FIRST_CLUSTER=$first SHAREDGPU_CLUSTER_DIR=$own
  CLUSTER_NAME=g$((RANDOM % 1000))n CLUSTER_GPUS=2 CLUSTER_PREFIX=$first/prefix CLUSTER_SIMGPU=$1 \
    CLUSTER_GPU_MEMORY=256MiB "$CLUSTER" up "$own" || { touch "$own/failed"; return 1; }
}

own_cluster_down() {
  "$CLUSTER" down "$SHAREDGPU_CLUSTER_DIR"
  if [[ -e $SHAREDGPU_CLUSTER_DIR/failed ]]; then
    touch "$SHAREDGPU_FIRST_CLUSTER/failed"
    echo "# the cluster's logs stay in $SHAREDGPU_CLUSTER_DIR/log" >&3
  else
    rm -rf "$SHAREDGPU_CLUSTER_DIR"
  fi
}
