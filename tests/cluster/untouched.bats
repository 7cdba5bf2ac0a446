#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A job without the GRES has no trace of sharedgpu in its environment, its maps or its open files.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

# Prints each place where a name of sharedgpu is found. The job does not inherit the test's environment, which contains
# the socket and the PATH of this cluster.
traces='
  cat /proc/self/environ | tr "\0" "\n" | grep -i -e sharedgpu -e LD_PRELOAD && echo "FOUND in the environment"
  grep -i -e sharedgpu /proc/self/maps && echo "FOUND in the maps"
  ls -l /proc/self/fd /proc/$$/fd | grep -i -e sharedgpu -e sharedgpud -e memfd && echo "FOUND in the open files"
  echo searched'

clean_environment=PATH=/usr/bin:/bin

@test "a batch job without the GRES has nothing of ours" {
  job=$(env -i SLURM_CONF="$SLURM_CONF" $clean_environment sbatch --parsable -o "$dir/jobs/%j" --wrap "$traces")
  expect_state "$job" COMPLETED
  output_has "$job" searched
  run -1 grep FOUND "$dir/jobs/$job"
}

@test "a step without the GRES has nothing of ours" {
  run -0 env -i SLURM_CONF="$SLURM_CONF" $clean_environment srun bash -c "$traces"
  [[ $output == *searched* ]]
  [[ $output != *FOUND* ]]
}

@test "the search finds the traces of a job with the GRES" {
  run -0 env -i SLURM_CONF="$SLURM_CONF" $clean_environment srun --gres=sharedgpu:1 bash -c "$traces"
  [[ $output == *"FOUND in the environment"* ]]
  [[ $output == *"FOUND in the maps"* ]]
}

@test "a job without the GRES does not start the arbiter or talk to it" {
  run -0 sharedgpu status --json
  before=$(jq '[.. | objects | select(has("tenants")) | .tenants[]] | length' <<<"$output")
  job=$(submit -- sleep 2)
  wait_until 20 has_state "$job" RUNNING
  run -0 sharedgpu status --json
  [ "$(jq '[.. | objects | select(has("tenants")) | .tenants[]] | length' <<<"$output")" = "$before" ]
  expect_state "$job" COMPLETED
}
