#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Slurm accepts its commands in the documentation, and the installed files that the documentation mentions exist. The
# test replaces words that stand for the reader's own names (JOB, job.sh, ./simulate, gpu1). scripts/check-commands
# finds the commands.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; root=$BATS_TEST_DIRNAME/../..; }
teardown() { cluster_teardown; }

# runs WORD...: runs one command, in a form for which this cluster suffices.
runs() {
  case $1 in
    sbatch | srun) [[ "$*" == *--help* || "$*" == *--jobid* ]] || set -- "$1" --test-only "${@:2}" ;;
    salloc) set -- salloc "${options[@]}" true ;; # only the options, since the command that follows them needs a
                                                  # terminal
  esac
  "$@"
}

# options_of WORD...: sets `options` to the options before the program.
options_of() {
  options=()
  while [[ ${2-} == -* ]]; do options+=("$2"); shift; done
}

@test "every command of Slurm in the documentation is valid" {
  printf '#!/bin/sh\n' >job.sh
  printf '#!/bin/sh\n' | tee simulate detect train.py >program
  chmod +x job.sh simulate detect program
  cluster=$(scontrol show config | sed -n 's/^ClusterName *= //p')
  sacctmgr -i add account physics,chemistry cluster="$cluster" >/dev/null
  sacctmgr -i add user daemon account=chemistry >/dev/null
  job=$(submit --gres=sharedgpu:1 -- sleep 60)
  wait_until 20 has_state "$job" RUNNING
  failed=0 count=0
  while IFS=$'\t' read -r place line; do
    count=$((count + 1))
    line=${line//JOB/$job}
    line=${line//-j 1 /-j $job }
    eval "words=($line)"
    options_of "${words[@]}"
    runs "${words[@]}" >out 2>&1 </dev/null || {
      echo "$place: ${words[*]}: exit status $?"
      cat out
      failed=1
    }
  done < <("$root/scripts/check-commands" --slurm)
  sacctmgr -i delete user daemon account=chemistry >/dev/null
  sacctmgr -i delete account physics,chemistry >/dev/null
  sacctmgr -i delete qos light >/dev/null
  [ "$failed" = 0 ]
  [ "$count" -gt 30 ]
}

documented() { "$root/scripts/documented" "$root/docs/$1" "$2"; }

@test "the first job of the documentation runs, and its filters of text show what they are to show" {
  echo "print('trained')" >train.py
  documented first-job.md 'Save this as `job.sh`' >job.sh
  job=$(sbatch --parsable --output="$dir/jobs/%j" job.sh)
  expect_state "$job" COMPLETED
  output_has "$job" trained
  bash -euo pipefail -c "$(documented first-job.md 'if this command prints options')" | grep -q -- --sharedgpu-memory
  bash -euo pipefail -c "$(documented install.md 'To check the configuration after')" | grep GresTypes | grep -q sharedgpu
  bash -euo pipefail -c "$(documented install.md '## Trying it')" >out
  grep -q "SHAREDGPU_UNITS=1" out
  grep -q "^policy" out
  (export SLURM_JOB_NODELIST=gpu[03-04] && eval "$(grep '^head=' "$root/docs/parallel.md")" && [ "$head" = gpu03 ])
}

@test "the documentation's ways to read AdminComment and to start a program in a shell work" {
  job=$(submit --gres=sharedgpu:1 -- $hold 10%)
  expect_summary "$job" .lease_seconds
  eval "$(sed -n 's/^\$ \(sacct .*AdminComment | jq .*\)/\1/p' "$root/docs/accounting.md" | sed "s/-j 1 /-j $job /")" >out
  jq -e .lease_seconds out
  printf '%s\n' '#!/bin/sh' 'echo "device $CUDA_VISIBLE_DEVICES"' >simulate
  chmod +x simulate
  eval "$(grep '^srun .* bash -c ' "$root/docs/parallel.md" | sed 's/--sharedgpu-gpus=2 //')" >out
  [ "$(sort out)" = "device 0
device 1" ]
  run script -qec "$(documented notebooks.md '## An interactive job without a hub')" /dev/null <<'IN'
echo units=$SHAREDGPU_UNITS
exit
IN
  [[ $output == *units=1* ]] || { echo "$output"; false; }
}

@test "every installed file that the documentation names is installed" {
  paths=$(grep -hoE '/opt/sharedgpu/[A-Za-z0-9_./-]*[A-Za-z0-9]' "$root"/README.md "$root"/docs/*.md | sort -u)
  [ "$(wc -l <<<"$paths")" -gt 5 ]
  for path in $paths; do
    [[ -e $dir/prefix/${path#/opt/sharedgpu/} ]] || { echo "$path is not installed"; false; }
  done
}
