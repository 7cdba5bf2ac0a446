# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# A second cluster, in addition to the cluster of the suite. Its nodes look as if they had GPUs (see with-gpus), and it
# has ConstrainDevices=yes. The first node has one GPU of each of two types, and shares both. The second node has
# four GPUs of one type: two are shared, and two are ordinary gres/gpu. All test files that use this
# cluster share it; it is stopped at the end of the suite.

gpus_setup() {
  cluster_setup
  suite=$dir
  dir=$suite-gpus
  [[ -e $dir/up ]] || gpus_up
  # shellcheck disable=SC1091
  source "$dir/env"
  typed=$(sinfo -h -N -o %N | sed -n 1p) mixed=$(sinfo -h -N -o %N | sed -n 2p)
  cd "$dir/jobs" || return
}

gpus_teardown() {
  if [[ ! ${BATS_TEST_COMPLETED-} ]]; then
    touch "$suite/failed"
    gpus_say sharedgpu | tail -n 20
  fi
  cluster_teardown
  if ! cmp -s "$dir/gres.right" "$dir/etc/gres.conf"; then gpus_restart idle "$(<"$dir/gres.right")"; fi
}

gpus_up() {
  local name=g$((RANDOM % 1000))n
  mkdir -p "$dir/etc" "$dir/jobs"
  chmod 1777 "$dir/jobs"
  printf '0 NVIDIA H200\n1 NVIDIA A100-SXM4-80GB\n' >"$dir/gpus1"
  printf '%s NVIDIA H200\n' 0 1 2 3 >"$dir/gpus2"
  echo "NodeName=${name}2 Name=gpu File=/dev/nvidia[2-3]" | tee "$dir/gres.right" >"$dir/etc/gres.conf"
  printf '%s\n' "Socket=$dir/run/sharedgpud.sock" "StateDir=$dir/sharedgpu" "LogFile=$dir/log/sharedgpud" PeerPort=0 \
    >"$dir/etc/sharedgpu.conf"
  echo "PrologFlags=Contain" >"$dir/slurm.conf.extra"
  write_probe >"$dir/probe"
  chmod 755 "$dir/probe"
  CLUSTER_NAME=$name CLUSTER_PREFIX=$suite/prefix CLUSTER_GPUS=4 CLUSTER_SIMGPU=$suite/simgpu:$suite/simgpu/nvml CLUSTER_GPU_MEMORY=256MiB \
    CLUSTER_GRES1=sharedgpu:h200:8,sharedgpu:a100:8 CLUSTER_GRES2=gpu:2,sharedgpu:16 \
    CLUSTER_GRES_TYPES=gpu,sharedgpu CLUSTER_CONSTRAIN_DEVICES=yes "$CLUSTER" up "$dir"
  touch "$dir/up"
}

# A program that prints the GPUs whose files it can open, and its number of units: "0 1 ctl units=2".
write_probe() {
  cat <<'PROBE'
#!/bin/bash
for file in /dev/nvidia*; do
  error=$( (exec 3<"$file") 2>&1)
  if [[ $error != *"not permitted"* ]]; then printf '%s ' "${file#/dev/nvidia}"; fi
done
echo "units=${SHAREDGPU_UNITS-}"
PROBE
}

# gpus_say TEXT: prints the lines with TEXT in the log of slurmd of the mixed node.
gpus_say() { grep -hF -- "$1" "$dir/log/slurmd-$mixed"; }

# gpus_restart STATE LINES...: restarts slurmd of the mixed node with LINES as its gres.conf, and waits until
# the node is in STATE. At the end of a test, gpus_teardown restores the original gres.conf.
gpus_restart() {
  "$CLUSTER" stop "$dir" slurmd2
  printf '%s\n' "${@:2}" >"$dir/etc/gres.conf"
  : >"$dir/log/slurmd-$mixed"
  # After an invalid configuration, Slurm keeps the node drained until an administrator resumes it.
  CLUSTER_PATIENCE=1 "$CLUSTER" start "$dir" slurmd2 2>/dev/null || true
  # Until the new slurmd has registered, the node has its earlier state.
  wait_until 20 gpus_say "slurmd started on"
  if [[ $1 == idle ]]; then scontrol update nodename="$mixed" state=resume 2>/dev/null || true; fi
  wait_until 10 gpus_state "$1"
}

gpus_state() { [[ $(sinfo -h -n "$mixed" -o %T) == "$1" ]]; }
