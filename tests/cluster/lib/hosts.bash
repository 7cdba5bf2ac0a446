# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# A second cluster, in addition to the cluster of the suite. Each of its two nodes is a host with its own arbiter and
# ledger. All test files that use this cluster share it; it is stopped at the end of the suite.

hosts_setup() {
  cluster_setup
  suite=$dir
  dir=$suite-hosts
  [[ -e $dir/up ]] || hosts_up
  # shellcheck disable=SC1091
  source "$dir/env"
  cd "$dir/jobs" || return
}

hosts_teardown() {
  if [[ ! ${BATS_TEST_COMPLETED-} ]]; then
    touch "$suite/failed"
    tail -n 40 "$dir"/log/sharedgpud-*
  fi
  cluster_teardown
}

hosts_up() {
  mkdir -p "$dir/etc" "$dir/jobs"
  chmod 1777 "$dir/jobs"
  echo Quantum=500ms >"$dir/etc/sharedgpu.conf"
  CLUSTER_NAME=h$((RANDOM % 1000))n CLUSTER_HOSTS=yes CLUSTER_PREFIX=$suite/prefix CLUSTER_SIMGPU=$suite/simgpu CLUSTER_GPU_MEMORY=256MiB \
    "$CLUSTER" up "$dir"
  touch "$dir/up"
}

# asking I COMMAND...: runs the command with the socket of node I's arbiter.
asking() { SHAREDGPU_SOCKET=$dir/host$1/sharedgpud.sock "${@:2}"; }

# arbiter_of I: prints the pid of the arbiter of node I.
arbiter_of() { asking "$1" sharedgpu status --json | jq .pid; }
