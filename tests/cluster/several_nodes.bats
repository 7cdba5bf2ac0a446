#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Jobs whose processes on two nodes wait for each other on the GPUs. Two such jobs do not fit on the GPUs together. If
# each node chose turns by itself, the jobs would soon deadlock.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/hosts
load lib/agreement
setup() { hosts_setup; }
teardown() { hosts_teardown; }

# ranks STEPS ROUNDS [LATE]: submits a job and prints its number. The job runs STEPS steps one after the other, each
# with one process on each of two nodes. The second process starts LATE seconds after the first.
ranks() {
  cat >"$dir/jobs/ranks" <<SCRIPT
#!/bin/bash
for step in {1..$1}; do
  words=$dir/jobs/words.\$SLURM_JOB_ID.\$step
  srun bash -c "sleep \\\$((SLURM_PROCID * ${3:-0})); exec $suite/programs/lockstep --bytes 144MiB --rounds $2 --kernel-ms 8 --words \$words --rank \\\$SLURM_PROCID" || exit
done
SCRIPT
  sbatch --parsable --nodes=2 --ntasks-per-node=1 --gres=sharedgpu:1 --output="$dir/jobs/%j" "$dir/jobs/ranks"
}

# expect_right JOB STEPS: succeeds if the job ends and both processes of each step have verified their memory and their
# rounds.
expect_right() {
  expect_state "$1" COMPLETED 120
  (($(grep -c verified "$dir/jobs/$1") == 2 * $2)) || { output "$1"; false; }
}

@test "two jobs on two nodes take turns on both at once, and sacct agrees with both ledgers" {
  first=$(ranks 3 60)
  second=$(ranks 3 60)
  wait_until 30 running_together "$first" "$second"
  for job in "$first" "$second"; do expect_right "$job" 3; done
  for job in "$first" "$second"; do
    expect_agreement "$job"
    for host in 1 2; do (($(turns "$host" "$job") > 3)) || { echo "job $job: $(turns "$host" "$job") turns on node $host"; false; }; done
  done
}
# turns I JOB: prints the number of the job's turns in the ledger of node I.
turns() { sharedgpu ledger --config "$dir/host$1/sharedgpu.conf" --job "$2" --by step --format json | jq '[.[].turns] | add'; }

@test "the arbiters of both nodes name the gang and its coordinator, and are in contact" {
  job=$(ranks 1 100)
  node=$(sinfo -h -N -o %N | sed -n 1p)
  for host in 1 2; do wait_until 30 names_gang "$host" "$job" "$node"; done
  expect_right "$job" 1
}
names_gang() {
  asking "$1" sharedgpu status --json | jq -e --argjson job "$2" --arg node "$3" \
    '.tenants[] | select(.job == $job).gang | .coordinator == $node and .nodes == 2 and .contact == "held"' >/dev/null
}

@test "jobs on two nodes end right if the arbiter of the first or the second node is killed meanwhile" {
  first=$(ranks 1 150)
  second=$(ranks 1 150)
  for host in 2 1; do
    wait_until 30 both_work "$host"
    killed=$(arbiter_of "$host")
    kill -9 "$killed"
    wait_until 20 is_another "$host" "$killed"
  done
  for job in "$first" "$second"; do expect_right "$job" 1; done
}
both_work() { asking "$1" sharedgpu status --json | jq -e '[.tenants[] | select(.lease_seconds > 0.2 and .footprint_bytes > 0)] | length == 2' >/dev/null; }
is_another() { local now; now=$(arbiter_of "$1") && [[ $now && $now != "$2" ]]; }

@test "a step on one of a job's nodes has its turns, since the other node says that it has no process" {
  job=$(submit --nodes=2 --gres=sharedgpu:1 -- srun -N1 -n1 "$suite/programs/hold" --verify --bytes 64MiB --seconds 15)
  expect_state "$job" COMPLETED 60
  output_has "$job" "$verified"
  run -1 grep -hE "job $job: .*turns on (each|this) node independently" "$dir"/log/sharedgpud-*
}

@test "with PeerPort=0 two jobs on two nodes run one after the other, in the order in which Slurm has started them" {
  for host in 1 2; do
    cp "$dir/host$host/sharedgpu.conf" "$dir/host$host/before"
    sed 's/^PeerPort=.*/PeerPort=0/' "$dir/host$host/before" >"$dir/host$host/sharedgpu.conf"
    kill -9 "$(arbiter_of "$host")"
  done
  first=$(ranks 1 60 8)
  second=$(ranks 1 60)
  for job in "$first" "$second"; do expect_right "$job" 1; done
  for host in 1 2; do cat "$dir/host$host/before" >"$dir/host$host/sharedgpu.conf"; done
  for job in "$first" "$second"; do
    for host in 1 2; do [[ $(turns "$host" "$job") == 1 ]] || { echo "job $job: $(turns "$host" "$job") turns on node $host"; false; }; done
  done
}
