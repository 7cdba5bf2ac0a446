#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# How units are requested, counted and compared with the GPUs of a node.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/gpus
setup() { gpus_setup; }
teardown() { gpus_teardown; }

show='echo "units=$SHAREDGPU_UNITS"'
used() { scontrol show node "$1" -d | sed -n 's/.*GresUsed=//p'; }

@test "units are per node" {
  run -0 --separate-stderr srun -N2 --gres=sharedgpu:3 bash -c "$show"
  [ "$(grep -c units=3 <<<"$output")" = 2 ]
}

@test "units have one type, several types or any type" {
  run -0 --separate-stderr srun -w "$typed" --gres=sharedgpu:h200:2 bash -c "$show"
  [[ $output == units=2 ]]
  run -0 --separate-stderr srun -w "$typed" --gres=sharedgpu:h200:2,sharedgpu:a100:3 bash -c "$show"
  [[ $output == units=5 ]]
  run -0 --separate-stderr srun -w "$typed" --gres=sharedgpu:10 bash -c "$show"
  [[ $output == units=10 ]]
}

@test "a type that no node has, and more units of a type than exist, are refused" {
  run sbatch --gres=sharedgpu:b200:1 --wrap true
  [ "$status" -ne 0 ]
  run sbatch --gres=sharedgpu:h200:9 --wrap true
  [ "$status" -ne 0 ]
}

@test "a job waits for units of its type while units of another are free" {
  first=$(submit -w "$typed" --gres=sharedgpu:h200:5 -- sleep 60)
  wait_until 20 has_state "$first" RUNNING
  second=$(submit -w "$typed" --gres=sharedgpu:h200:5 -- true)
  third=$(submit -w "$typed" --gres=sharedgpu:a100:5 -- true)
  expect_state "$third" COMPLETED
  has_state "$second" PENDING
  [[ $(used "$typed") == *sharedgpu:h200:5* ]]
  scancel "$first"
  expect_state "$second" COMPLETED
}

@test "units can be requested per task" {
  srun --help | grep -q -- --tres-per-task || skip "this Slurm has no --tres-per-task"
  run -0 --separate-stderr srun -w "$typed" -n 2 --tres-per-task=gres/sharedgpu:2 bash -c "$show"
  [ "$(grep -c units=4 <<<"$output")" = 2 ]
}

@test "an exclusive job holds all units of its node" {
  job=$(submit -w "$typed" --exclusive -- bash -c "$show")
  expect_state "$job" COMPLETED
  output_has "$job" units=16
}

@test "a step holds all units of its job, fewer, or with --gres=none no units" {
  # srun has -Q, since it prints a line if its step has to wait for the end of the previous step.
  job=$(submit -w "$typed" --gres=sharedgpu:a100:4 -- bash -c "srun -Q bash -c '$show'; srun -Q --gres=sharedgpu:a100:1 bash -c '$show'; srun -Q --gres=none bash -c '$show'")
  expect_state "$job" COMPLETED
  [ "$(output "$job")" = "units=4
units=1
units=" ]
}

@test "every task of a job array holds units of its own" {
  job=$(sbatch --parsable -w "$typed" --array=1-4 --gres=sharedgpu:h200:2 -o "$dir/jobs/%A_%a" --wrap "$show; sleep 1")
  wait_until 20 all_used
  wait_until 30 no_jobs
  [ "$(cat "$dir/jobs/${job}_"*)" = "$(printf 'units=2\n%.0s' 1 2 3 4)" ]
}
all_used() { [[ $(used "$typed") == *sharedgpu:h200:8* ]]; }

@test "each part of a heterogeneous job holds its own units" {
  run -0 --separate-stderr srun -w "$typed" --gres=sharedgpu:h200:2 bash -c "$show" : -w "$mixed" --gres=sharedgpu:3 bash -c "$show"
  [ "$(sort <<<"$output")" = "units=2
units=3" ]
}

@test "restarted daemons know which units a job holds" {
  local script="touch $dir/jobs/began; while [[ ! -e $dir/jobs/go ]]; do sleep 0.1; done; srun $dir/probe"
  job=$(submit -w "$typed" --gres=sharedgpu:h200:5 -- bash -c "$script")
  wait_until 20 test -e "$dir/jobs/began"
  "$CLUSTER" stop "$dir" slurmctld
  "$CLUSTER" stop "$dir" slurmd1 # stop, not kill: after a kill, Slurm 24.11 forgets that the job's
                                 # prolog has run, and ends the job
  "$CLUSTER" start "$dir" slurmctld
  "$CLUSTER" start "$dir" slurmd1
  [[ $(used "$typed") == *sharedgpu:h200:5* ]]
  touch "$dir/jobs/go"
  expect_state "$job" COMPLETED
  output_has "$job" "0 ctl units=5"
  wait_until 10 none_used
}
none_used() { [[ $(used "$typed") == *sharedgpu:h200:0* ]]; }

@test "a number of units other than UnitsPerGpu times the GPUs is logged with both numbers and both files" {
  echo UnitsPerGpu=4 >>"$dir/etc/sharedgpu.conf"
  gpus_restart idle "$(<"$dir/etc/gres.conf")"
  gpus_say "slurm.conf gives this node Gres=sharedgpu:16, but UnitsPerGpu=4 in $dir/etc/sharedgpu.conf times its GPUs (2) makes sharedgpu:8"
  sed -i /UnitsPerGpu/d "$dir/etc/sharedgpu.conf"
  gpus_restart idle "$(<"$dir/etc/gres.conf")"
  run -1 gpus_say UnitsPerGpu
}

@test "sharedgpu gres shows the lines for a node" {
  run -0 nsenter -m -r -t "$(<"$dir/run/slurmd1.pid")" sharedgpu gres --config "$dir/etc/sharedgpu.conf"
  [[ $output == *" Gres=sharedgpu:a100-sxm4-80gb:8,sharedgpu:h200:8"* ]]
  [[ $output == *" Name=sharedgpu Type=h200 File=/dev/nvidia[0]"* ]]
  sed 's/^UnitsPerGpu.*//; $a UnitsPerGpu=513' "$dir/etc/sharedgpu.conf" >"$BATS_TEST_TMPDIR/conf"
  run -1 nsenter -m -r -t "$(<"$dir/run/slurmd1.pid")" sharedgpu gres --config "$BATS_TEST_TMPDIR/conf"
  [[ $output == *"UnitsPerGpu=513 times the GPUs (2) makes 1026 units; Slurm can number 1024 at most"* ]]
  run -1 unshare --mount "${CLUSTER%/*}/lib/with-gpus" /dev/null sharedgpu gres --config "$dir/etc/sharedgpu.conf"
  [[ $output == *"no GPU found"* ]]
}

@test "File= in gres.conf names the GPUs" {
  right=$(<"$dir/gres.right")
  gpus_restart idle "$right" "NodeName=$mixed Name=sharedgpu File=/dev/nvidia1"
  gpus_say "UnitsPerGpu=8 in $dir/etc/sharedgpu.conf times its GPUs (1) makes sharedgpu:8"
  run -0 --separate-stderr srun -w "$mixed" --gres=sharedgpu:16 "$dir/probe"
  [[ $output == "0 1 ctl units=16" ]]
  # No GRES names the first GPU, so Slurm lets every job open it.
  run -0 --separate-stderr srun -w "$mixed" "$dir/probe"
  [[ $output == "0 ctl units=" ]]
}

@test "fewer units in gres.conf than in slurm.conf are logged" {
  right=$(<"$dir/gres.right")
  gpus_restart idle "$right" "NodeName=$mixed Name=sharedgpu Count=8"
  gpus_say "gres.conf has 8 units sharedgpu and slurm.conf 16"
}

@test "a GPU that gres.conf offers both as gpu and as sharedgpu is offered as neither, and the node is invalid" {
  right=$(<"$dir/gres.right")
  gpus_restart inval "$right" "NodeName=$mixed Name=sharedgpu File=/dev/nvidia[1-2]"
  gpus_say "this node offers no units: gres.conf offers /dev/nvidia2 both as sharedgpu and as another GRES"
  [[ $(sinfo -h -n "$mixed" -o %E) == *"gres/sharedgpu count reported lower than configured"* ]]
  gpus_restart idle "$right"
  run -0 --separate-stderr srun -w "$mixed" --gres=sharedgpu:1 "$dir/probe"
  [[ $output == "0 1 ctl units=1" ]]
}
