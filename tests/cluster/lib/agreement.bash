# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Checks that sacct agrees with the ledger about a job's steps.

# Prints the configuration files of the arbiters that have a ledger: that of each host, or the file that all
# nodes share.
ledgers() { compgen -G "$dir/host*/sharedgpu.conf" || echo "$dir/etc/sharedgpu.conf"; }

# The times may differ by a second for each arbiter.
near() { local difference=$(($1 - $2)) most; most=$(ledgers | wc -l); ((difference >= -most && difference <= most)); }

# told_steps JOB: "STEP SECONDS" of each step that a ledger knows, over all GPUs of a host and then over all hosts, as
# sacct would round them.
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
# Every step of the ledger is in sacct with the same seconds, and other steps have no lease time.
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
