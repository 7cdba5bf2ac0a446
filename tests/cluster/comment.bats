#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# sharedgpu keeps the site's text in AdminComment, and writes its summary even if there are outages at the end of a job.
# accounting.bats tests the summary for jobs of all kinds.

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

comment() { sacct -n -P -X -j "$1" -o AdminComment%5000; }
# reads JOB TEXT: succeeds if AdminComment begins with TEXT. It may fail at first: Slurm may write the job's comment to
# the database a moment after the job's end, and sharedgpu then adds its summary again.
reads() { [[ $(comment "$1") == "$2"* ]]; }
writers() { pgrep -f "^$dir/prefix/sbin/sharedgpu-comment"; } # other writers may belong to another cluster
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
  for name in other.json again.json; do # adds the same entry of another node twice; only one of them counts
    sed "s/\"nodes\":\[[^]]*\]/\"nodes\":[\"other\"]/" "$entry" >new
    mv new "$text-$name"
  done
  expect_summary "$text" '(.nodes | length) == 2'
  once=$(sed 's/.*"lease_seconds":\([0-9.]*\).*/\1/' "$entry")
  sleep 2
  expect_summary "$text" "(.nodes | length) == 2 and (.lease_seconds - 2 * $once | fabs) < 0.01"
}

@test "the summaries of jobs that end while slurmctld, slurmdbd and the writer are down are written later" {
  job=$(submit --gres=sharedgpu:1 -- $hold 4% --seconds 3)
  wait_until 20 has_state "$job" RUNNING
  "$CLUSTER" stop "$dir" slurmdbd
  cancelled=$(submit --gres=sharedgpu:1 -- $hold 4% --seconds 60)
  wait_until 20 has_state "$cancelled" RUNNING
  wait_until 20 tenant_holds "$cancelled"
  scancel --signal=KILL --full "$cancelled" # this job ends while only slurmdbd is down
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

# Writes and reads a comment of jobstats, in the format of its jobstats.py (github.com/PrincetonUniversity/jobstats):
# "JS1:", and then JSON with "nodes", compressed by gzip and encoded in base64. If JOBSTATS is a folder with jobstats'
# sources, jobstats itself reads the data, too.
jobstats_writes() { # NODE
  python3 -c 'import base64, gzip, json, sys
# The base64 text has no padding, so text that is appended to it would be a part of the data.
for n in range(3):
  node = {"total_time": 1.5, "cpus": 1, "total_memory": 1, "used_memory": 1, "x": "y" * n}
  data = {"nodes": {sys.argv[1]: node}, "total_time": 9, "gpus": 1}
  packed = gzip.compress(json.dumps(data).encode())
  if len(packed) % 3 == 0: break
print("JS1:" + base64.b64encode(packed).decode())' "$1"
}
# Stores the text as the EpilogSlurmctld of jobstats does. That script calls sacctmgr. This function writes to the
# database instead, since sacctmgr of Slurm 22.05 stores the text in lower case.
jobstats_stores() { # JOB TEXT
  local cluster
  cluster=$(scontrol show config | sed -n 's/^ClusterName *= //p')
  mariadb --socket="$dir/run/mysql.sock" --user=root slurm_acct_db \
    -e "update ${cluster}_job_table set admin_comment = '$2' where id_job = $1"
}
jobstats_reads() { # JOB NODE: reads the data as `jobstats` does, and as the pipeline in its documentation does
  sacct -n -P -X -j "$1" -o AdminComment | python3 -c 'import base64, gzip, json, sys
text = sys.stdin.read().rstrip("\n")
assert text.startswith("JS1:") and len(text) > 10
assert sys.argv[1] in json.loads(gzip.decompress(base64.b64decode(text[4:])))["nodes"]' "$2"
  sacct -n -P -X -j "$1" -o AdminComment | sed 's/JS1://' | tr -d ' ' | base64 -d | gzip -d | jq -e .nodes >/dev/null
  if [[ ${JOBSTATS-} ]]; then
    PYTHONPATH=$JOBSTATS python3 -c 'import sys
from jobstats import Jobstats
assert sys.argv[2] in Jobstats(jobid=sys.argv[1], prom_server="none").nodes()' "$1" "$2"
  fi
}
system_summary() { sacct -n -P -X -j "$1" -o SystemComment | jq -e "$2" >/dev/null 2>&1; }
has_summary_in() { sacct -n -P -X -j "$1" -o "$2" | grep -q '{"sharedgpu":'; }
reported() { # SINCE PARTITION: prints the lease hours of the partition's jobs since this time
  sharedgpu report --since "$1" --units-per-gpu 8 --format json |
    jq --arg partition "$2" '[.[] | select(.partition == $partition).lease_hours] | add'
}

@test "jobstats' readers read its data, and sharedgpu's readers the summary, whichever was written first" {
  since=$(date +%Y-%m-%dT%H:%M:%S)
  theirs=$(jobstats_writes "$(hostname -s)")
  scontrol create PartitionName=readers Nodes=ALL
  first=$(submit --hold --partition=readers --gres=sharedgpu:1 -- $hold 4% --seconds 2)
  later=$(submit --hold --partition=readers --gres=sharedgpu:1 -- $hold 4% --seconds 2)
  short=$(submit --hold --partition=readers --gres=sharedgpu:1 -- $hold 4% --seconds 2)
  scontrol update JobId="$first" AdminComment="$theirs"
  scontrol update JobId="$short" AdminComment=JS1:Short
  scontrol release "$first" "$later" "$short"
  for job in "$first" "$later" "$short"; do expect_state "$job" COMPLETED; done
  # Replaces the text after sharedgpu has written its summary, as jobstats' EpilogSlurmctld may do.
  wait_until 40 has_summary_in "$later" AdminComment
  jobstats_stores "$later" "$theirs"
  for job in "$first" "$later" "$short"; do
    wait_until 90 system_summary "$job" ".sharedgpu.lease_seconds - $(held "$job") | fabs < 0.01"
  done
  for job in "$first" "$later"; do
    [ "$(comment "$job")" = "$theirs" ] || { echo "not: $theirs"; comment "$job"; false; }
    jobstats_reads "$job" "$(hostname -s)"
  done
  [ "$(comment "$short")" = JS1:Short ]
  sum=0
  for job in "$first" "$later" "$short"; do sum="$sum + $(held "$job")"; done
  jq -en "$(reported "$since" readers) * 3600 - ($sum) | fabs < 0.1" || { reported "$since" readers; echo "$sum"; false; }
  scontrol delete PartitionName=readers
}

@test "with CommentField=SystemComment nothing of sharedgpu is in AdminComment" {
  # Tests a writer that serves several nodes and has its own configuration.
  job=$(submit -- true)
  expect_state "$job" COMPLETED
  mkdir spool
  printf 'CommentField=SystemComment\n' >writer.conf
  now=$(date +%s)
  cat >"spool/$job-$now-other.json" <<ENTRY
{"job":$job,"begin":$now,"end":$now,"share":{"version":1,"nodes":["other"],"lease_seconds":2.5,"waiting_seconds":0.0,
"overuse_seconds":0.0,"handoffs":0,"restored_bytes":0,"evicted_bytes":0,"peak_footprint_bytes":0,
"peak_resident_bytes":0,"backends":["swap"],"gpus":["Simulated GPU"]}}
ENTRY
  timeout 60 "$dir/prefix/sbin/sharedgpu-comment" --config "$PWD/writer.conf" --spool "$PWD/spool" --settle 1
  system_summary "$job" '.sharedgpu.lease_seconds == 2.5'
  [ -z "$(comment "$job")" ]
}
