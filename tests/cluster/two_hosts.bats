#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Jobs on two hosts that have an arbiter and a ledger each.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/hosts
setup() { hosts_setup; }
teardown() { hosts_teardown; }

# Prints how many seconds a step of the job's last run took.
elapsed() { sacct -n -P -j "$1" -o ElapsedRaw | tail -n 1; }
told_by_both() { tells "$1" '.nodes | length == 2' COMPLETED; }

@test "the runs of a requeued job are distinguished on each of its nodes, whatever the numbers of their steps" {
  cat >"$dir/jobs/work" <<SCRIPT
#!/bin/bash
if ((SLURM_RESTART_COUNT == 0)); then
  srun --nodes=1 --ntasks=1 --nodelist=\$SLURMD_NODENAME $hold 4% --seconds 1
  srun $hold 4% --seconds 12
  touch "$dir/jobs/first"
  sleep 600
fi
srun --overlap $hold 4% --seconds 6 &
sleep 2
srun --overlap $hold 4% --seconds 1
wait
SCRIPT
  job=$(sbatch --parsable --requeue --nodes=2 --ntasks-per-node=1 --gres=sharedgpu:1 --output="$dir/jobs/%j" "$dir/jobs/work")
  wait_until 90 test -e "$dir/jobs/first"
  scontrol requeue "$job"
  wait_until 30 has_state "$job" PENDING
  scontrol update JobId="$job" StartTime=now+2
  expect_state "$job" COMPLETED 200
  wait_until 60 told_by_both "$job"
  # Each step held a lease on the GPU of each node, for no longer than the step ran.
  for step in 0 1; do
    seconds=$(sacct --noconvert -n -P -j "$job.$step" -o TRESUsageInTot | tail -n 1 | tr , '\n' | sed -n 's/^gres\/sharedgpu_lease=//p')
    ((seconds > 0 && seconds <= 2 * $(elapsed "$job.$step") + 2)) ||
      { sacct -D -j "$job" -o JobID,State,ElapsedRaw,TRESUsageInTot%80; grep -E ' (class|begin|grant|release) ' "$dir"/host*/sharedgpu/ledger; false; }
  done
  # Both steps ran at the same time.
  tells "$job" ".lease_seconds > 4 and .lease_seconds <= 2 * $(elapsed "$job.0") + 2" COMPLETED || { summary "$job" COMPLETED; false; }
}
