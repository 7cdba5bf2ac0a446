# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Checks that sacct agrees with the ledger about a job's steps.

# Prints the configuration file of each arbiter with a ledger: a file for each host, or the one file that all nodes
# share.
ledgers() { compgen -G "$dir/host*/sharedgpu.conf" || echo "$dir/etc/sharedgpu.conf"; }

# near A B: succeeds if the seconds A and B differ by at most one second for each arbiter.
near() { local difference=$(($1 - $2)) most; most=$(ledgers | wc -l); ((difference >= -most && difference <= most)); }

# told_steps JOB: prints "STEP SECONDS" for each step in a ledger. The seconds are the sums over all GPUs of a host,
# rounded as in sacct, and added up over all hosts.
told_steps() {
  local ledger
  for ledger in $(ledgers); do
    sharedgpu ledger --config "$ledger" --job "$1" --by step --format json |
      jq 'group_by(.step)[] | {step: .[0].step, seconds: ([.[].lease_seconds] | add | if . > 0 and . < 1 then 1 else round end)}'
  done | jq -rs 'group_by(.step)[] | "\(.[0].step) \([.[].seconds] | add)"' | sort
}
shown_steps() {
  sacct --noconvert -n -P -j "$1" -o JobIDRaw,TRESUsageInTot | grep "^$1\." | sed -n 's/^[0-9]*\.\([^|]*\)|.*gres\/sharedgpu_lease=\([0-9]*\).*/\1 \2/p' | sort
}
# Succeeds if sacct has every step of the ledger with the same seconds (near()), and other steps have no lease time in
# sacct.
agree() {
  local step told shown
  while read -r step told; do
    shown=$(shown_steps "$1" | awk -v step="$step" '$1 == step {print $2}')
    [[ $shown ]] && near "$shown" "$told" || return 1
  done <<<"$(told_steps "$1")"
  [[ $(shown_steps "$1" | awk '$2 > 0 {print $1}') == "$(told_steps "$1" | cut -d' ' -f1)" ]]
}
expect_agreement() {
  wait_until 20 agree "$1" || { echo "job $1"; told_steps "$1"; shown_steps "$1"; return 1; }
}
