#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Slurm's own qsub, called by the wrapper in etc/slurm-torque.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() {
  cluster_setup
  qsub="$dir/prefix/share/sharedgpu/etc/slurm-torque/qsub"
}
teardown() { cluster_teardown; }

gres_of() { scontrol show job "$1" | sed -n 's/.*TresPerNode=\(gres[:/]\)\?//p'; }

# script LINE...: writes a job script with these lines. The script holds device memory, and prints the variables that
# jobs submitted by it would inherit.
script() {
  printf '%s\n' '#!/bin/bash' "$@" "#PBS -o $dir/jobs/out -j oe" "$hold 50% --seconds 1" \
    'echo "cpus=$SLURM_CPUS_ON_NODE units=$SHAREDGPU_UNITS passes=[$SBATCH_GRES$SHAREDGPU_QSUB_GRES]"' >"$dir/jobs/script"
}

@test "qsub -l gres=sharedgpu:1 works beside other resources, and nothing of it is passed on" {
  script
  job=$("$qsub" -o "$dir/jobs/out" -j oe -V -l nodes=1:ppn=2,gres=sharedgpu:1 "$dir/jobs/script")
  [ "$(gres_of "$job")" = sharedgpu:1 ]
  expect_state "$job" COMPLETED
  output_has out "$verified"
  output_has out "cpus=2 units=1 passes=[]"
}

@test "qsub -I -l gres=sharedgpu: gives an interactive job its units" {
  # Runs the shell of the job in a terminal, from which it reads its commands.
  run command script -qec "'$qsub' -I -l gres=sharedgpu:2" /dev/null <<'IN'
srun sh -c 'echo units=$SHAREDGPU_UNITS'
exit
IN
  [[ $output == *units=2* ]] || { echo "$output"; false; }
}

@test "#PBS -l gres= works beside #SBATCH lines; the command line has precedence; without the wrapper it is lost" {
  script '#SBATCH --comment=both' '#PBS -N named -l nodes=1:ppn=2,gres=sharedgpu:2'
  hold_it() { "$1" -h -o /dev/null -e /dev/null "${@:2}" "$dir/jobs/script"; }
  job=$(hold_it "$qsub")
  [ "$(gres_of "$job")" = sharedgpu:2 ]
  [[ $(scontrol show job "$job") == *Comment=both* ]]
  [ "$(gres_of "$(hold_it "$qsub" -l gres=sharedgpu:3 -l walltime=10:00)")" = sharedgpu:3 ]
  # Slurm's own qsub ignores the request without a message. If a release of Slurm fails this test, it does not need the
  # wrapper.
  [ -z "$(gres_of "$(hold_it qsub -l gres=sharedgpu:3)")" ]
}
