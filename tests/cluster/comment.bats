#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# AdminComment keeps the text of the site, and is written despite outages at the end of a job. accounting.bats tests
# its contents for jobs of all kinds.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

comment() { sacct -n -P -X -j "$1" -o AdminComment%5000; }
# Slurm may tell the database of the job's end first, and of its comment a moment later: then ours is added anew.
reads() { [[ $(comment "$1") == "$2"* ]]; }
writers() { pgrep -f "^$dir/prefix/sbin/sharedgpu-comment"; } # others may be of another cluster
has_no_tenant() { ! sharedgpu status --json | jq -e --argjson job "$1" '.tenants[] | select(.job == $job and .lease)' >/dev/null; }
taken() { [[ ! -e $dir/sharedgpu/comments/$1 ]] && compgen -G "$dir/sharedgpu/comments/$1-*.json" >/dev/null; }

@test "a job's summary stands beside the site's own text, and other nodes' shares are added once" {
  text=$(submit --gres=sharedgpu:1 -- bash -c "$hold 4% --seconds 2; sleep 1")
  object=$(submit --gres=sharedgpu:1 -- bash -c "$hold 4% --seconds 2; sleep 1")
  none=$(submit -- true)
  wait_until 20 running_together "$text" "$object"
  scontrol update JobId="$text" AdminComment="o'neill pays, 50% \\ \"half\""
  scontrol update JobId="$object" AdminComment='{"power": 1.50, "who": "o'\''neill"}'
  expect_state "$text" COMPLETED
  expect_state "$object" COMPLETED
  expect_summary "$text" '.version == 1 and .lease_seconds > 1 and .peak_footprint_bytes > 0 and .backends == ["swap"] and .gpus == ["Simulated GPU"]'
  wait_until 40 reads "$text" "o'neill pays, 50% \\ \"half\" {\"sharedgpu\":" || { comment "$text"; false; }
  expect_summary "$object" '.lease_seconds > 1'
  wait_until 40 reads "$object" '{"power": 1.50, "who": "o'\''neill","sharedgpu":' || { comment "$object"; false; }
  [ -z "$(comment "$none")" ]

  cd "$dir/sharedgpu/comments"
  entry=$(echo "$text"-*.json)
  for name in other.json again.json; do # a share of another node, told twice
    sed "s/\"nodes\":\[[^]]*\]/\"nodes\":[\"other\"]/" "$entry" >new
    mv new "$text-$name"
  done
  expect_summary "$text" '(.nodes | length) == 2'
  once=$(sed 's/.*"lease_seconds":\([0-9.]*\).*/\1/' "$entry")
  sleep 2
  expect_summary "$text" "(.nodes | length) == 2 and (.lease_seconds - 2 * $once | fabs) < 0.01"
}

@test "jobs that end while slurmctld, slurmdbd and the writer are down are written later" {
  job=$(submit --gres=sharedgpu:1 -- $hold 4% --seconds 3)
  wait_until 20 has_state "$job" RUNNING
  "$CLUSTER" stop "$dir" slurmdbd
  cancelled=$(submit --gres=sharedgpu:1 -- $hold 4% --seconds 60)
  wait_until 20 has_state "$cancelled" RUNNING
  wait_until 20 tenant_holds "$cancelled"
  scancel --signal=KILL --full "$cancelled" # ended where slurmdbd alone is down
  wait_until 20 taken "$cancelled"
  "$CLUSTER" stop "$dir" slurmctld
  wait_until 20 has_no_tenant "$job"
  writers | xargs -r kill -9
  "$CLUSTER" start "$dir" slurmdbd
  "$CLUSTER" start "$dir" slurmctld
  # The next job that ends on the node causes all summaries to be written.
  next=$(submit --gres=sharedgpu:1 -- $hold 4% --seconds 1)
  expect_state "$next" COMPLETED
  for each in "$job" "$cancelled" "$next"; do
    expect_summary "$each" ".lease_seconds > 0 and (.lease_seconds - $(held "$each") | fabs < 0.01)"
  done
}
tenant_holds() { ! has_no_tenant "$1"; }
