#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Accounting by jobacct_gather/linux, and accounting with the site's own interconnect plugin in addition to the plugin
# of sharedgpu.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/agreement

restart() {
  local service
  for service in slurmctld slurmd1 slurmd2; do "$CLUSTER" stop "$dir" "$service"; done
  for service in slurmctld slurmd1 slurmd2; do "$CLUSTER" start "$dir" "$service"; done
}

setup() {
  cluster_setup
  cp "$dir/etc/slurm.conf" "$dir/slurm.conf.before"
  cp "$dir/etc/acct_gather.conf" "$dir/acct_gather.conf.before"
}

teardown() {
  cluster_teardown
  mv "$dir/slurm.conf.before" "$dir/etc/slurm.conf"
  mv "$dir/acct_gather.conf.before" "$dir/etc/acct_gather.conf"
  restart
}

# configured SED_EXPRESSION: changes slurm.conf, and makes the daemons read it.
configured() {
  sed -i "$1" "$dir/etc/slurm.conf"
  restart
  wait_until 60 both_idle
}
both_idle() { [[ $(sinfo -h -N -o %T | sort -u) == idle ]]; }

a_job_of_each_kind() {
  small="$hold 4% --seconds"
  batch=$(submit --gres=sharedgpu:1 -- bash -c "$small 3; true")
  tasks=$(submit --ntasks=2 --nodes=1 --gres=sharedgpu:1 -- srun bash -c "$small 3; true")
  side=$(submit --ntasks=2 --nodes=1 --gres=sharedgpu:2 -- bash -c \
    "srun --exact -n1 --gres=sharedgpu:1 $small 4 & srun --exact -n1 --gres=sharedgpu:1 bash -c '$small 2; sleep 1' & wait")
  for job in "$batch" "$tasks" "$side"; do
    expect_state "$job" COMPLETED
    wait_until 20 has_lease "$job"
    expect_agreement "$job"
  done
}

@test "with jobacct_gather/linux sacct agrees with the ledger" {
  configured 's|^JobAcctGatherType=.*|JobAcctGatherType=jobacct_gather/linux|'
  scontrol show config | grep -q 'JobAcctGatherType *= jobacct_gather/linux'
  a_job_of_each_kind
}

@test "a site's own interconnect plugin goes on counting, listed before ours or after it" {
  echo "SysfsInterfaces=lo" >"$dir/etc/acct_gather.conf"
  ours=acct_gather_interconnect/sharedgpu site=acct_gather_interconnect/sysfs
  for both in "$site,$ours" "$ours,$site"; do
    configured "s|^\(AccountingStorageTRES=gres/sharedgpu,.*_swap\).*|\1,ic/sysfs|; s|^AcctGatherInterconnectType=.*|AcctGatherInterconnectType=$both|"
    a_job_of_each_kind
    sacct --noconvert -n -P -j "$batch.batch" -o TRESUsageInTot | grep -q 'ic/sysfs=[1-9]'
  done
}
