#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# sacct shows the same values of a step as the ledger.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/agreement
setup() { cluster_setup; }
teardown() { cluster_teardown; }

batch=4294967291

# shown JOB STEP In|Out TRES: prints the value in sacct for the job's last run.
shown() { sacct --noconvert -n -P -j "$1.$2" -o "TRESUsage$3Tot" | tail -n 1 | tr , '\n' | sed -n "s/^gres\/$4=//p"; }

# told JOB STEP COLUMN: prints a column of the ledger's last record about a step, in whole MiB.
told() {
  awk -v job="$1" -v step="$2" -v column="$3" \
    '$3 == "used" && $5 == job && $6 == step {n = $column} END {m = int(n / 1048576 + 0.5); print (m == 0 && n > 0 ? 1 : m)}' "$dir/sharedgpu/ledger"
}
evicted=7 restored=8

# run_seconds JOB: prints the lease time of the job's last run on this node, rounded as sacct shows it.
run_seconds() { sharedgpu ledger --config "$dir/etc/sharedgpu.conf" --job "$1" --format json | jq '.[-1].lease_seconds | round'; }

# has_held JOB SECONDS: succeeds if the running job has held a lease for at least this time.
has_held() {
  sharedgpu status --json | jq -e --argjson job "$1" --argjson least "$2" '.tenants[] | select(.job == $job and .lease_seconds >= $least)' >/dev/null
}

@test "sacct shows the swap traffic of two jobs in each direction" {
  first=$(submit --gres=sharedgpu:1 -- bash -c "$hold 75% --seconds 5; sleep 3")
  second=$(submit --gres=sharedgpu:1 -- bash -c "$hold 75% --seconds 5; sleep 3")
  expect_state "$first" COMPLETED
  expect_state "$second" COMPLETED
  for job in "$first" "$second"; do
    wait_until 20 has_lease "$job"
    [ "$(told "$job" $batch $evicted)" -gt 0 ]
    [ "$(shown "$job" batch In sharedgpu_swap)" = "$(told "$job" $batch $restored)" ]
    [ "$(shown "$job" batch Out sharedgpu_swap)" = "$(told "$job" $batch $evicted)" ]
    [ "$(shown "$job" batch Out sharedgpu_lease)" -gt 0 ] # the seconds for which the step has waited
  done
}

@test "a requeued job's second run shows its own seconds" {
  work="$hold 40% --seconds \$((SLURM_RESTART_COUNT ? 2 : 60))"
  batch_job=$(submit --requeue --gres=sharedgpu:1 -- bash -c "$work")
  srun_job=$(submit --requeue --gres=sharedgpu:1 -- bash -c "srun $work")
  wait_until 60 has_held "$batch_job" 5
  wait_until 60 has_held "$srun_job" 5
  again() { [[ $(scontrol show job "$1") == *Restarts=1* ]]; }
  for job in "$batch_job" "$srun_job"; do
    scontrol requeue "$job"
    wait_until 30 has_state "$job" PENDING
    scontrol update JobId="$job" StartTime=now+2 # otherwise Slurm would wait for two minutes; see failures.bats
  done
  for job in "$batch_job" "$srun_job"; do
    wait_until 60 again "$job"
    expect_state "$job" COMPLETED 200
    wait_until 20 has_lease "$job"
    [ "$(run_seconds "$job")" -lt 5 ]
    expect_summary "$job" '.lease_seconds >= 5' REQUEUED
    expect_summary "$job" ".lease_seconds - $(held "$job") | fabs < 0.01" COMPLETED
  done
  near "$(shown "$batch_job" batch In sharedgpu_lease)" "$(run_seconds "$batch_job")"
  near "$(shown "$srun_job" 0 In sharedgpu_lease)" "$(run_seconds "$srun_job")"
}

# most_of STEP ""|Node: prints the longest lease time of a task of the step (TRESUsageInMax), or the node of this task.
most_of() { sacct --noconvert -n -P -j "$1" -o "TRESUsageInMax$2" | tr , '\n' | sed -n 's/^gres\/sharedgpu_lease=//p'; }

# All of these jobs fit on the GPU together, so no job waits.
@test "sacct agrees with the ledger: steps side by side, two nodes, an array, a heterogeneous job, an interactive step, a kill, no memory, no time" {
  small="$hold 4%"
  side=$(submit --ntasks=2 --nodes=1 --gres=sharedgpu:2 -- bash -c \
    "srun --exact -n1 --gres=sharedgpu:1 $small --seconds 4 & srun --exact -n1 --gres=sharedgpu:1 $small --seconds 2 & wait")
  nodes=$(submit --nodes=2 --gres=sharedgpu:1 -- srun $small --seconds 3)
  array=$(submit --array=1-2 --gres=sharedgpu:1 -- $small --seconds 3)
  heterogeneous=$(sbatch --parsable --output="$dir/jobs/%j" --gres=sharedgpu:1 : --gres=sharedgpu:1 --wrap "srun --het-group=0,1 $small --seconds 3")
  killed=$(submit --gres=sharedgpu:1 -- $small --seconds 60)
  greedy=$(submit --mem=300M --gres=sharedgpu:1 -- bash -c "$small --seconds 2; tail -c 2G /dev/zero | sort")
  late=$(submit --gres=sharedgpu:1 -- $small --seconds 300)
  interactive=$(salloc --gres=sharedgpu:1 srun --interactive $small --seconds 2 2>&1 | sed -n 's/^salloc: Granted job allocation //p')
  [ "$interactive" ]
  # Slurm checks twice a minute which jobs have exceeded their end time.
  wait_until 60 has_held "$late" 1
  scontrol update JobId="$late" EndTime=now+1
  wait_until 60 has_held "$killed" 2
  scancel --signal=KILL --full "$killed"
  for job in "$side" "$nodes" "$array" "$heterogeneous" "$killed" "$greedy" "$late"; do wait_until 120 ended_all "$job"; done
  expect_state "$late" TIMEOUT
  for job in "$side" "$killed" "$greedy" "$late" "$interactive" $(raw_of "$array") $(raw_of "$heterogeneous"); do expect_agreement "$job"; done
  # Both nodes are this host, which has one arbiter and one ledger. So each node reports the values of the whole step.
  step=$(told_steps "$nodes" | sed -n 's/^0 //p')
  wait_until 20 twice "$nodes" "$step"
  # The longest lease time of a task, and the node of this task.
  near "$(most_of "$nodes.0" "")" "$step"
  [[ " $(scontrol show hostnames "$(sacct -n -P -X -j "$nodes" -o NodeList)" | tr '\n' ' ') " == *" $(most_of "$nodes.0" Node) "* ]]
  [ "$(shown_steps "$side" | awk '$2 > 0' | wc -l)" = 2 ]
  [ "$(raw_of "$array" | wc -l)" = 2 ]
  [ "$(raw_of "$heterogeneous" | wc -l)" = 2 ]
  shown_steps "$interactive" | grep '^interactive [1-9]'
  # Slurm's two nodes are one host with one arbiter, so the summary of a job on both nodes has only this host.
  for job in "$side" "$nodes" "$killed" "$greedy" "$late" "$interactive" $(raw_of "$array") $(raw_of "$heterogeneous"); do
    expect_summary "$job" ".nodes == [\"$(hostname -s)\"] and (.lease_seconds - $(held "$job") | fabs < 0.01)"
  done
}

@test "sacct agrees with the ledger if short processes run beside a step's task" {
  # Some processes of the step have lower pids than the task, so Slurm visits them before the task.
  cat >"$dir/jobs/churn" <<'SCRIPT'
#!/bin/bash
if [[ -w /proc/sys/kernel/ns_last_pid ]]; then echo $(($(</proc/sys/kernel/pid_max) - 400)) >/proc/sys/kernel/ns_last_pid; fi
"$@" &
while kill -0 $! 2>/dev/null; do
  for i in 1 2 3 4 5 6; do sleep 0.0$((RANDOM % 9 + 1)) & done
  sleep 0.02
done
wait
SCRIPT
  chmod +x "$dir/jobs/churn"
  job=$(submit --gres=sharedgpu:1 -- srun "$dir/jobs/churn" $hold 4% --seconds 5)
  expect_state "$job" COMPLETED 120
  expect_agreement "$job"
}

# Prints the sums in sacct over all ended jobs that held units: "JOBS UNIT_SECONDS LEASE_SECONDS".
billed() {
  sacct -a -D --noconvert -n -P -S "$1" -o JobIDRaw,User,End,ElapsedRaw,AllocTRES,TRESUsageInTot | awk -F'|' '
    $1 !~ /[.]/ { counts = $3 !~ /Unknown/ && match($5, /gres\/sharedgpu=[0-9]+/)
                  if (counts) { ++jobs; units += $4 * substr($5, RSTART + 15, RLENGTH - 15) } }
    $1 ~ /[.]/ && counts && match($6, /sharedgpu_lease=[0-9]+/) { lease += substr($6, RSTART + 16, RLENGTH - 16) }
    END { print jobs, units, lease }'
}

@test "sharedgpu report adds up the numbers of sacct" {
  since=$(date +%Y-%m-%dT%H:%M:%S) # leaves out the jobs of earlier tests: some had parallel steps, which the report
                                   # counts only once
  for units in 1 2; do srun --gres=sharedgpu:$units $hold 4% --seconds 2; done
  reports() {
    sharedgpu report --since "$since" --units-per-gpu 8 --format json | jq -e --arg billed "$(billed "$since")" '
      ($billed | split(" ") | map(tonumber)) as [$jobs, $units, $lease] | $lease > 0 and
      ([.[].jobs] | add) == $jobs and (([.[].unit_hours] | add) * 3600 - $units | fabs) < 4 and
      (([.[].lease_hours] | add) * 3600 - $lease | fabs) < 4 and
      all(.[]; .user == "root" and .partition == "main")' >/dev/null
  }
  wait_until 20 reports || { billed "$since"; sharedgpu report --since "$since" --units-per-gpu 8; false; }
}

twice() { local shown; shown=$(shown_steps "$1" | sed -n 's/^0 //p') && near "$shown" $((2 * $2)); }
# Prints the job numbers of an array's elements or of a heterogeneous job's components.
raw_of() { sacct --noconvert -n -P -X -j "$1" -o JobIDRaw; }
ended_all() { [[ -z $(squeue -h -j "$1" 2>/dev/null) ]]; }

answers() { sharedgpu status --json >/dev/null 2>&1; }

# Succeeds when all jobs have ended, except jobs whose launch was lost because slurmd was killed during the launch.
# Slurm shows such a job as running, but the job has no output.
all_others_ended() {
  local job
  [[ -z $(squeue -h -t PENDING) ]] || return 1
  for job in $(squeue -h -o %i); do [[ ! -e $dir/jobs/$job ]] || return 1; done
}
# When a node registers, Slurm requeues its jobs that should have begun at least 20 s ago (BatchStartTimeout and
# MessageTimeout) and have not.
find_lost_launches() {
  sleep 22
  for service in slurmd1 slurmd2; do
    "$CLUSTER" kill "$dir" "$service"
    "$CLUSTER" start "$dir" "$service"
  done
}

# SHAREDGPU_KILLS and SHAREDGPU_KILL_JOBS make the test longer, for example 100 jobs and 300 kills.
@test "daemons killed at random while jobs run: every second of the ledger is in sacct once" {
  local jobs=() kills=0 service pid
  for ((i = 0; i < ${SHAREDGPU_KILL_JOBS:-6}; ++i)); do
    # After its last use of the GPU, the job waits until a killed arbiter has restarted.
    jobs+=("$(submit --mem=1G --gres=sharedgpu:1 -- bash -c "$hold 40% --seconds $((2 + i % 4)); sleep 5")")
  done
  wait_until 60 has_lease "${jobs[0]}"
  while ((kills++ < ${SHAREDGPU_KILLS:-5})); do
    service=$(shuf -n 1 -e slurmd1 slurmd2 slurmctld slurmdbd arbiter)
    echo "kill $service"
    if [[ $service == arbiter ]]; then
      for pid in $(arbiter_pid); do kill -9 "$pid"; done
      # Waits, since the supervisor restarts the arbiter more slowly after each kill. A job that waits for the arbiter
      # for too long would run unmanaged.
      wait_until 30 answers
    elif [[ $service == slurmctld ]]; then
      # Stops slurmctld instead of killing it: a killed slurmctld may forget that a job has ended.
      "$CLUSTER" stop "$dir" "$service"
      "$CLUSTER" start "$dir" "$service"
    else
      "$CLUSTER" kill "$dir" "$service"
      "$CLUSTER" start "$dir" "$service"
    fi
    sleep 0.$((RANDOM % 10))
  done
  wait_until 300 all_others_ended
  if [[ $(squeue -h) ]]; then find_lost_launches; fi
  for job in "${jobs[@]}"; do
    expect_state "$job" COMPLETED 300
    output_has "$job" "$verified"
  done
  local SUMMARY_WAIT=150 # after outages of the database, sharedgpu-comment tries again every 60 to 90 s
  for job in "${jobs[@]}"; do
    expect_agreement "$job"
    expect_summary "$job" ".lease_seconds - $(held "$job") | fabs < 0.01"
  done
}
