#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The ways to start a job: as any user, by sbatch, srun and salloc, as an array, and with the user's own LD_PRELOAD.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

ours="$SHAREDGPU_CLUSTER_DIR/prefix/lib/sharedgpu/libsharedgpu.so"
show_preload='echo "preload=[$LD_PRELOAD]"'
# count LIST WORD: prints how often the word is in the list.
count() { tr ': ' '\n\n' <<<"$1" | grep -cxF "$2"; }
preload_of() { sed -n 's/^preload=\[\(.*\)\]$/\1/p'; }

@test "two jobs of unprivileged users take turns" {
  first=$(as_nobody sbatch --parsable -o "$dir/jobs/%j" --gres=sharedgpu:1 --wrap "id -un; $hold 75% --seconds 4")
  second=$(setpriv --reuid daemon --regid daemon --clear-groups sbatch --parsable -o "$dir/jobs/%j" --gres=sharedgpu:1 \
    --wrap "id -un; $hold 75% --seconds 4")
  expect_state "$first" COMPLETED
  expect_state "$second" COMPLETED
  output_has "$first" nobody
  output_has "$second" daemon
  output_has "$first" "$verified"
  output_has "$second" "$verified"
  wait_until 20 has_lease "$first"
}

@test "an srun step gets the GPU" {
  run -0 srun --gres=sharedgpu:1 $hold 50% --seconds 1
  [[ $output == *"$verified"* ]]
}

@test "the steps of one batch job get the GPU one after the other" {
  job=$(submit --gres=sharedgpu:1 -- bash -c "srun $hold 50% --seconds 1 && srun $hold 60% --seconds 1")
  expect_state "$job" COMPLETED
  [ "$(grep -cF "$verified" "$dir/jobs/$job")" = 2 ]
}

@test "a step within salloc gets the GPU" {
  run -0 salloc --gres=sharedgpu:1 srun $hold 50% --seconds 1
  [[ $output == *"$verified"* ]]
}

@test "several processes of one job hold the GPU together" {
  run -0 srun --ntasks=2 --nodes=1 --gres=sharedgpu:1 $hold 40% --seconds 2
  [ "$(grep -cF "$verified" <<<"$output")" = 2 ]
}

@test "the lease time of a step of several tasks with children counts once" {
  job=$(submit --ntasks=3 --nodes=1 --gres=sharedgpu:1 -- srun bash -c "$hold 20% --seconds 5; true")
  expect_state "$job" COMPLETED
  wait_until 20 has_lease "$job"
  # The lease time is at most the elapsed time. If each task counted separately, it would be three times as long.
  [ "$(lease_seconds "$job")" -le $(($(sacct -n -X -j "$job" -o ElapsedRaw) + 1)) ]
  [ "$(lease_seconds "$job")" -ge 3 ]
}

completed_of() { sacct -n -X -j "$1" -o State%20 | grep -c COMPLETED; }
has_completed() { [[ $(completed_of "$1") == "$2" ]]; }

@test "the elements of a job array take turns" {
  job=$(submit --array=1-3 --gres=sharedgpu:1 -- $hold 60% --seconds 2)
  wait_until 90 has_completed "$job" 3
  [ "$(cat "$dir"/jobs/* | grep -cF "$verified")" = 3 ]
}

@test "LD_PRELOAD has our library alone if the user has none" {
  preload=$(env -u LD_PRELOAD srun --gres=sharedgpu:1 bash -c "$show_preload" | preload_of)
  [ "$preload" = "$ours" ]
}

@test "the user's LD_PRELOAD is kept, and our library is appended once" {
  other=$(ldconfig -p | sed -n 's/.*libm\.so\.6.*=> //p' | head -n 1)
  preload=$(LD_PRELOAD=$other srun --gres=sharedgpu:1 bash -c "$show_preload" | preload_of)
  [ "$(count "$preload" "$other")" = 1 ]
  [ "$(count "$preload" "$ours")" = 1 ]
  [[ $preload == "$other"* ]]
}

@test "a step of a batch job has our library once in LD_PRELOAD" {
  job=$(submit --gres=sharedgpu:1 -- srun bash -c "$show_preload")
  expect_state "$job" COMPLETED
  preload=$(output "$job" | preload_of)
  [ "$(count "$preload" "$ours")" = 1 ]
}

@test "a job script that fails keeps its exit status" {
  job=$(submit --gres=sharedgpu:1 -- bash -c 'exit 7')
  expect_state "$job" FAILED
  [[ $(scontrol show job "$job") == *ExitCode=7:0* ]]
}

@test "more units than a node has are refused with Slurm's own message" {
  run sbatch --gres=sharedgpu:9 --wrap true
  [ "$status" -ne 0 ]
  [[ $output == *"Requested node configuration is not available"* ]]
}

@test "units are counted: the ninth unit of a node waits" {
  node=$(sinfo -h -N -o %N | head -n 1)
  first=$(submit -w "$node" --gres=sharedgpu:8 -- sleep 100)
  second=$(submit -w "$node" --gres=sharedgpu:1 -- true)
  wait_until 20 has_state "$first" RUNNING
  sleep 2
  has_state "$second" PENDING
  scancel "$first"
  expect_state "$second" COMPLETED
}
