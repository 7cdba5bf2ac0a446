#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The effects of a lost GPU on its jobs, on the node, on the job on the other GPU, and on the output of sinfo, sacct and
# the ledger.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/own

setup_file() { own_cluster_up "$SHAREDGPU_CLUSTER_DIR/simgpu:$SHAREDGPU_CLUSTER_DIR/simgpu/nvml" OnGpuLoss=drain,requeue; }
teardown_file() { own_cluster_down; }

setup() {
  cluster_setup
  wait_until 20 arbiter_pid
  node=$(arbiter_node)
}
teardown() {
  fault 0 present
  cluster_teardown
}

# Both nodes are this host. The arbiter belongs to the node whose slurmd started it, and reports for that node.
arbiter_node() { tr '\0' '\n' <"/proc/$(arbiter_pid)/environ" | sed -n 's/^SLURMD_NODENAME=//p'; }

# fault NUMBER WHAT...
fault() {
  local state=$SIMGPU_STATE
  (($1 == 0)) || state+=.$1
  "$SHAREDGPU_BUILD/tests/simgpu/simgpu-fault" "$state" "${@:2}"
}

serves() { sharedgpu status >/dev/null 2>&1; }
gpu() { sharedgpu status --json | jq -r ".gpus[] | select(.number == $1) | $2"; }
has_condition() { [[ $(gpu "$1" .condition) == "$2" ]]; }
# Prints the number of the GPU that the job uses.
gpu_of() { sharedgpu status --json | jq -r --argjson job "$1" '.gpus[] as $g | .tenants[] | select(.job == $job and .footprint_bytes > 0 and .placed == [$g.uuid]) | $g.number'; }
is_on() { [[ $(gpu_of "$1") == "$2" ]]; }
# job_id ELEMENT: prints the job number of an element of an array. element JOB_NUMBER: prints the name of the element
# with this job number. The job number of one element is also the number of the whole array.
job_id() { squeue -h -t all -j "$1" -o %A | head -n 1; }
element() { squeue -h -t all -j "$1" -o '%A %F_%K' | sed -n "s/^$1 //p"; }

# submit_to GPU SUBMIT_ARGUMENT...: submits a job, or an array of two elements, that the arbiter places on this GPU.
# Sets `jobs`.
submit_to() {
  local other=$((1 - $1)) job
  sharedgpu drain gpu $other
  job=$(submit -w "$node" --mem=1G "${@:2}")
  jobs=("$job")
  if [[ " $* " == *" --array="* ]]; then jobs=("$(job_id "${job}_1")" "$(job_id "${job}_2")"); fi
  for job in "${jobs[@]}"; do wait_until 20 is_on "$job" "$1"; done
  sharedgpu undrain gpu $other
}

node_is() { [[ $(sinfo -h -n "$node" -o %T) == "$1" ]]; }
reason() { sinfo -h -R -n "$node" -o '%50n|%200E' | sed 's/.*|//; s/ *$//'; }
has_reason() { [[ $(reason) == *"$1"* ]]; }
was_requeued() { [[ $(scontrol -o show job "$1" | grep "^JobId=$1 ") == *' JobState=PENDING '*' Restarts=1 '* ]]; }
states() { sacct -n -P -X -D -j "$1" -o JobIDRaw,State | sed -n "s/^$1|//p" | xargs; }

# lost JOB: prints the column `lost` of the ledger for each run of the job and each GPU.
lost() { sharedgpu ledger --config "$dir/etc/sharedgpu.conf" --job "$1" --by tenant --format json | jq -r '.[].lost' | xargs; }

@test "OnGpuLoss=drain,requeue: the node is drained with the reason, its jobs are requeued, and the other GPU's job goes on" {
  # The job number of one element is the number of the array. If sharedgpu requeues this element, Slurm must not requeue
  # the other element with it.
  submit_to 0 --requeue --array=1-2 --gres=sharedgpu:1 -- \
    bash -c "$hold 40% --seconds \$((SLURM_RESTART_COUNT ? 1 : 600))"
  there=("${jobs[@]}")
  submit_to 1 --requeue --gres=sharedgpu:1 -- $hold 40% --seconds 12
  beside=${jobs[0]}
  fault 0 xid 79
  fault 0 lost
  wait_until 20 has_reason "sharedgpu: GPU 0 ($(gpu 0 .uuid)) is lost: Xid 79"
  for job in "${there[@]}"; do wait_until 20 was_requeued "$job"; done
  has_condition 0 lost
  wait_until 10 node_is draining
  fault 0 present
  expect_state "$beside" COMPLETED
  output_has "$beside" "$verified"
  wait_until 40 has_condition 0 healthy
  wait_until 10 node_is drained
  scontrol update nodename="$node" state=resume
  for job in "${there[@]}"; do
    scontrol update JobId="$(element "$job")" StartTime=now+2 # see failures.bats
  done
  for job in "${there[@]}"; do
    expect_state "$(element "$job")" COMPLETED
    output_has "$job" "$verified"
    # A program may end at the driver's error, so its job may fail before slurmctld requeues it.
    [[ $(states "$job") =~ ^(REQUEUED|FAILED)\ COMPLETED$ ]]
    [ "$(lost "$job")" = "Xid 79 -" ]
  done
  [ "$(states "$beside")" = COMPLETED ]
  [ "$(lost "$beside")" = - ]
  for job in "${there[@]}"; do
    expect_summary "$job" ".gpu_losses | length == 1 and .[0].gpu == \"$(gpu 0 .uuid)\" and .[0].reason == \"Xid 79\"" REQUEUED
    expect_summary "$job" 'has("gpu_losses") | not' COMPLETED
  done
}

@test "by default the GPU's jobs fail with the driver's error, the node is not drained, and no job comes to the GPU until it is back" {
  sed -i '/^OnGpuLoss=/d' "$dir/etc/sharedgpu.conf"
  old=$(arbiter_pid)
  kill -9 "$old"
  wait_until 20 another_arbiter "$old"
  wait_until 20 serves
  submit_to 0 --requeue --array=1-2 --gres=sharedgpu:1 -- $hold 40% --seconds 600
  there=("${jobs[@]}")
  submit_to 1 --gres=sharedgpu:1 -- $hold 40% --seconds 12
  beside=${jobs[0]}
  fault 0 lost
  for job in "${there[@]}"; do
    expect_state "$(element "$job")" FAILED 20
    grep -qE 'CUDA_ERROR_(UNKNOWN|DEVICE_UNAVAILABLE)' "$dir/jobs/$job"
    [ "$(lost "$job")" = "lost to its driver" ]
  done
  has_condition 0 lost
  [[ $(sinfo -h -n "$node" -o %T) != drain* ]]
  # The next job is placed on the other GPU, although that GPU has a tenant and the lost GPU has none.
  late=$(submit -w "$node" --mem=1G --gres=sharedgpu:1 -- $hold 10% --seconds 3)
  wait_until 20 is_on "$late" 1
  fault 0 present
  wait_until 40 has_condition 0 healthy
  back=$(submit -w "$node" --mem=1G --gres=sharedgpu:1 -- $hold 10% --seconds 3)
  wait_until 20 is_on "$back" 0
  for job in "$beside" "$late" "$back"; do
    expect_state "$job" COMPLETED
    output_has "$job" "$verified"
  done
  [ "$(states "${there[0]}")" = FAILED ]
  [ -z "$(reason)" ]
  for job in "${there[@]}"; do
    expect_summary "$job" ".gpu_losses | length == 1 and .[0].gpu == \"$(gpu 0 .uuid)\" and .[0].reason == \"lost to its driver\""
  done
  expect_summary "$beside" 'has("gpu_losses") | not'
}
