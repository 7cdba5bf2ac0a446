#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Mistakes in the configuration. Each mistake causes a message that names the file, line or option of the mistake, and
# no job fails. Each test that needs a cluster has its own.

bats_require_minimum_version 1.5.0
load lib/jobs

setup() {
  cluster_setup
  suite=$dir
  dir=$(mktemp -d /tmp/sgpu-bad.XXXXXX)
  mkdir -p "$dir/etc" "$dir/jobs"
  cp -r "$suite/prefix" "$dir/prefix"
  cat >"$dir/etc/sharedgpu.conf" <<CONF
Socket=$dir/run/sharedgpud.sock
StateDir=$dir/sharedgpu
ArbiterTimeout=1s
LogFile=$dir/log/sharedgpud
CONF
}

teardown() {
  if [[ ! ${BATS_TEST_COMPLETED-} ]]; then
    touch "$suite/failed"
    grep -h sharedgpu "$dir"/log/slurmd-* | tail -n 20 || true
    tail -n 10 "$dir"/log/sharedgpud "$dir"/jobs/* || true
  fi
  "$CLUSTER" down "$dir"
  rm -rf "$dir"
}

up() {
  CLUSTER_NAME=b$((RANDOM % 1000))n CLUSTER_PREFIX=$dir/prefix CLUSTER_SIMGPU=$suite/simgpu CLUSTER_GPU_MEMORY=256MiB \
    "$CLUSTER" up "$dir" || return
  # shellcheck disable=SC1091
  source "$dir/env"
  cd "$dir/jobs"
}

# Checks the log of slurmd on both nodes.
slurmd_says() { grep -qF -- "$1" "$dir"/log/slurmd-*1 && grep -qF -- "$1" "$dir"/log/slurmd-*2; }

# Succeeds if a job with units ends with the right result, without sharing.
job_ends_right() {
  local job
  job=$(submit --gres=sharedgpu:1 -- $hold 50% --seconds 1)
  expect_state "$job" COMPLETED
  output_has "$job" "$verified"
}

@test "an unknown key in sharedgpu.conf is reported, and jobs run without sharing" {
  echo "Colour=blue" >>"$dir/etc/sharedgpu.conf"
  up
  slurmd_says "$dir/etc/sharedgpu.conf:5: unknown key 'Colour'"
  job_ends_right
  run "$dir/prefix/sbin/sharedgpud" --config "$dir/etc/sharedgpu.conf"
  [ "$status" -ne 0 ]
  [[ $output == *"$dir/etc/sharedgpu.conf:5: unknown key 'Colour'"* ]]
}

@test "a bad value in sharedgpu.conf is reported, and jobs run without sharing" {
  echo "Quantum=12 parsecs" >>"$dir/etc/sharedgpu.conf"
  up
  slurmd_says "$dir/etc/sharedgpu.conf:5: Quantum: '12 parsecs' is not a time"
  job_ends_right
  run "$dir/prefix/sbin/sharedgpud" --config "$dir/etc/sharedgpu.conf"
  [ "$status" -ne 0 ]
  [[ $output == *"$dir/etc/sharedgpu.conf:5: Quantum: '12 parsecs' is not a time"* ]]
}

@test "an unknown policy is reported" {
  echo "Policy=no-such-policy" >>"$dir/etc/sharedgpu.conf"
  run "$dir/prefix/sbin/sharedgpud" --config "$dir/etc/sharedgpu.conf"
  [ "$status" -ne 0 ]
  [[ $output == *"Policy"* && $output == *"'no-such-policy'"* ]]
}

@test "a missing sharedgpu.conf is reported" {
  mv "$dir/etc/sharedgpu.conf" "$dir/elsewhere"
  echo "optional $dir/prefix/lib/slurm/spank_sharedgpu.so config=$dir/etc/missing.conf" >"$dir/etc/plugstack.conf"
  cp "$dir/elsewhere" "$dir/etc/sharedgpu.conf"
  up
  slurmd_says "$dir/etc/missing.conf"
}

@test "an unknown argument in plugstack.conf" {
  echo "optional $dir/prefix/lib/slurm/spank_sharedgpu.so config=$dir/etc/sharedgpu.conf colour=blue" >"$dir/etc/plugstack.conf"
  up
  slurmd_says "plugstack.conf: unknown argument 'colour=blue'"
  job_ends_right
}

@test "a relative path in plugstack.conf" {
  echo "optional $dir/prefix/lib/slurm/spank_sharedgpu.so config=sharedgpu.conf" >"$dir/etc/plugstack.conf"
  up
  slurmd_says "plugstack.conf: config: 'sharedgpu.conf' is not an absolute path"
}

# Overwrites Slurm's release number in a plugin by the number of another release.
spoil_version() {
  local file=$1 address bytes
  address=$(nm -D "$file" | awk '$3=="plugin_version"{print $1}')
  # In a shared library, the offset of read-only data in the file equals its address in memory.
  bytes=$(od -An -tx4 -j "$((16#$address))" -N 4 "$file" | tr -d ' ')
  [ "$bytes" = "$(printf '%08x' "$(slurm_version_number)")" ]
  printf '\x01\x05\x15\x00' | dd of="$file" bs=1 seek="$((16#$address))" conv=notrunc status=none
}
# Prints the release number of this Slurm as plugins store it. For 22.05.8, it is 0x160508.
slurm_version_number() {
  local major minor micro
  IFS=. read -r major minor micro < <(sinfo --version | cut -d' ' -f2)
  echo $(((10#$major << 16) + (10#$minor << 8) + 10#$micro))
}

@test "a GRES plugin of another Slurm release: units are counted, jobs run without sharing" {
  spoil_version "$dir/prefix/lib/slurm/gres_sharedgpu.so"
  up
  slurmd_says "Incompatible Slurm plugin $dir/prefix/lib/slurm/gres_sharedgpu.so version (21.05.1)"
  job_ends_right
}

@test "a SPANK plugin of another Slurm release: jobs run without sharing" {
  spoil_version "$dir/prefix/lib/slurm/spank_sharedgpu.so"
  up
  slurmd_says "Incompatible Slurm plugin $dir/prefix/lib/slurm/spank_sharedgpu.so version (21.05.1)"
  job_ends_right
}

# Makes a plugin need a function that no Slurm has.
spoil_function() { sed -i "s/\b$2\b/${2%?}_/" "$1"; }

@test "plugins that need a function which this Slurm lacks are refused at load, and jobs run without sharing" {
  spoil_function "$dir/prefix/lib/slurm/gres_sharedgpu.so" slurm_unsetenvp
  spoil_function "$dir/prefix/lib/slurm/spank_sharedgpu.so" spank_unsetenv
  up
  slurmd_says "undefined symbol: slurm_unsetenv_"
  slurmd_says "undefined symbol: spank_unseten_"
  job_ends_right
}

@test "an accounting plugin that needs a function which this Slurm lacks: slurmctld says so and does not start" {
  up
  "$CLUSTER" stop "$dir" slurmctld
  spoil_function "$dir/prefix/lib/slurm/acct_gather_interconnect_sharedgpu.so" jobacctinfo_2_stats
  CLUSTER_PATIENCE=3 run "$CLUSTER" start "$dir" slurmctld
  [ "$status" -ne 0 ]
  wait_until 20 grep -F "undefined symbol: jobacctinfo_2_stat_" "$dir/log/slurmctld"
}

@test "a socket path that cannot be created: jobs run without sharing and say so" {
  sed -i 's|^Socket=.*|Socket=/proc/none/sharedgpud.sock|' "$dir/etc/sharedgpu.conf"
  up
  job=$(submit --gres=sharedgpu:1 -- $hold 50% --seconds 1)
  expect_state "$job" COMPLETED
  output_has "$job" "$verified"
  output_has "$job" /proc/none/sharedgpud.sock
  wait_until 10 grep -F "Socket folder /proc/none: No such file or directory" "$dir/log/sharedgpud"
}

@test "a socket path that is too long for a socket" {
  long=$dir/$(printf 'x%.0s' {1..120})
  sed -i "s|^Socket=.*|Socket=$long|; /^LogFile/d" "$dir/etc/sharedgpu.conf"
  run "$dir/prefix/sbin/sharedgpud" --config "$dir/etc/sharedgpu.conf"
  [ "$status" -ne 0 ]
  [[ $output == *"$long"* ]]
}

# Restarts slurmd with LINE as its gres.conf.
restart_with_gres_conf() {
  "$CLUSTER" stop "$dir" slurmd1
  echo "$1" >"$dir/etc/gres.conf"
  CLUSTER_PATIENCE=3 run "$CLUSTER" start "$dir" slurmd1
}

@test "more units in gres.conf than in slurm.conf: Slurm says so, and slurm.conf holds" {
  up
  restart_with_gres_conf "Name=sharedgpu Count=16"
  [ "$status" -eq 0 ]
  grep -F "gres.conf for GRES sharedgpu has 8 more configured than expected in slurm.conf" "$dir"/log/slurmd-*1
  run sbatch --gres=sharedgpu:9 --wrap true
  [ "$status" -ne 0 ]
  job_ends_right
}

@test "a bad count in gres.conf: slurmd names it and does not start, and the job waits until it is corrected" {
  up
  node=$(sinfo -h -N -o %N | head -n 1)
  restart_with_gres_conf "Name=sharedgpu Count=eight"
  [ "$status" -ne 0 ]
  grep -F "Invalid GRES record for sharedgpu, invalid count eight" "$dir"/log/slurmd-*1
  job=$(submit -w "$node" --gres=sharedgpu:1 -- $hold 50% --seconds 1)
  restart_with_gres_conf "Name=sharedgpu Count=8"
  [ "$status" -eq 0 ]
  expect_state "$job" COMPLETED
  output_has "$job" "$verified"
}
