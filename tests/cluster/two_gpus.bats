#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Nodes of two GPUs. Both nodes share one arbiter. So tests that count jobs submit all of them to the first node.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/own

setup_file() { own_cluster_up "$SHAREDGPU_CLUSTER_DIR/simgpu"; }
teardown_file() { own_cluster_down; }

setup() {
  cluster_setup
  node=$(sinfo -h -N -o %N | sort | head -n 1)
}
teardown() { cluster_teardown; }

# Prints the number of tenants that are placed on each GPU.
placed() { sharedgpu status --json | jq -c '[.gpus[].uuid as $g | [.tenants[].placed | index($g) | values] | length]'; }
placed_are() { [[ $(placed) == "$1" ]]; }
# Succeeds if this number of jobs waits for units. Jobs that Slurm has not examined yet have no reason, and do not count.
queued_for_units_are() { [[ $(squeue -h -t PD -r -o %r | grep -cE 'Resources|Priority') == "$1" ]]; }
running_are() { [[ $(squeue -h -t R -o %i | wc -l) == "$1" ]]; }
# shellcheck disable=SC2016
show='echo "[$CUDA_VISIBLE_DEVICES]"'

@test "sixteen jobs of one unit are placed eight on each GPU and end right; jobs without a free unit queue" {
  blocker=$(submit -w "$node" --mem=1G --gres=sharedgpu:4 -- sleep 600)
  wait_until 20 running_are 1
  array=$(submit -w "$node" --mem=1G --array=1-16 --gres=sharedgpu:1 -- \
    bash -c "until [[ -e $dir/jobs/go ]]; do sleep 0.2; done; $hold 40MiB --iterations 5")
  wait_until 30 running_are 13
  wait_until 20 queued_for_units_are 4
  scancel "$blocker"
  wait_until 30 running_are 16
  wait_until 10 placed_are '[8,8]'
  touch "$dir/jobs/go"
  wait_until 60 no_jobs
  [ "$(cat "$dir"/jobs/[0-9]* | grep -cF "$verified")" = 16 ]
  placed_are '[0,0]'
}

@test "the tasks of a job share its GPU, whatever the user has set in CUDA_VISIBLE_DEVICES" {
  blocker=$(submit -w "$node" --gres=sharedgpu:1 -- sleep 600)
  wait_until 20 placed_are '[1,0]' || placed_are '[0,1]'
  CUDA_VISIBLE_DEVICES=7 run -0 srun -w "$node" -n4 --gres=sharedgpu:1 bash -c "$show; $hold 10MiB --iterations 5"
  [ "$(grep -c '^\[GPU-[^,]*\]$' <<<"$output")" = 4 ]
  [ "$(grep '^\[GPU-' <<<"$output" | sort -u | wc -l)" = 1 ]
  [ "$(grep -cF "$verified" <<<"$output")" = 4 ]
  mine=$(grep -m 1 '^\[GPU-' <<<"$output" | tr -d '[]')
  [[ $(sharedgpu status --json | jq -r --argjson job "$blocker" '.tenants[] | select(.job == $job).placed[0]') != "$mine" ]]
}

@test "a job that spans GPUs holds both; a request for more gets a message, and the job goes on" {
  run -0 srun -w "$node" --gres=sharedgpu:2 --sharedgpu-gpus=2 bash -c "$show; $dir/programs/devices --bytes 50MiB"
  [[ $output =~ \[GPU-[^,]*,GPU-[^,]*\] ]]
  job=$(submit -w "$node" --gres=sharedgpu:1 --sharedgpu-gpus=3 -- bash -c "$show")
  expect_state "$job" COMPLETED
  output_has "$job" "sharedgpu: --sharedgpu-gpus=3: this node has 2; the job runs with 2 GPUs"
  run ! srun --gres=sharedgpu:1 --sharedgpu-gpus=none true
  [[ $output == *"--sharedgpu-gpus: 'none' is not a number from 1 to 12"* ]]
}

@test "a job keeps its GPU in all its steps and after the arbiter's death; a step without units has no GPU" {
  steps="srun -Q bash -c '$show'; srun -Q --gres=none bash -c '$show'"
  job=$(submit -w "$node" --gres=sharedgpu:1 -- bash -c "$show; until [[ -e $dir/jobs/go ]]; do sleep 0.2; done; $steps")
  wait_until 20 output_has "$job" "[GPU-"
  kill -9 "$(arbiter_pid)"
  # Another tenant is placed on the job's GPU before the job's next step. If the arbiter placed the job a second time,
  # the job would get the other GPU.
  other=$(submit -w "$node" --gres=sharedgpu:8 -- sleep 600)
  wait_until 20 has_state "$other" RUNNING
  touch "$dir/jobs/go"
  expect_state "$job" COMPLETED
  [ "$(output "$job" | grep '^\[GPU-' | sort | uniq -c | awk '{print $1}')" = 2 ]
  output_has "$job" "[]"
}
