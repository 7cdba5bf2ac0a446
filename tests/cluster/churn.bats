#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Jobs are submitted, cancelled and requeued at random on two nodes, while slurmds and the arbiter are killed from time
# to time. At the end, no file or process of the jobs is left, and no lease time is counted twice.
#
#   CHURN_JOBS   number of jobs (default 16; a thousand take some ten minutes)
#   CHURN_SEED   seed of the random choices (default 1); two runs with the same seed still differ in timing

bats_require_minimum_version 1.5.0
load lib/jobs
setup() { cluster_setup; }
teardown() { cluster_teardown; }

# Lists the files, sockets and shared memory of a node's jobs, but not those that daemons keep while they run.
files_left() {
  # After each restart of slurmd, the files with Slurm's own state of the node have other names. If slurmd was killed
  # before a job's epilog, the job's file in run/jobs stays for thirty days.
  find "$dir/spool" "$dir/run" "$dir/prefix" "$SIMGPU_STATE"* -not -name 'cred_state*' -not -name 'hwloc_topo*' \
    -not -path "$dir/run/jobs/*" | sort
}
# Lists the control groups of jobs in all hierarchies.
groups_left() { find /sys/fs/cgroup -type d -path "*$name*" -name 'job_*' 2>/dev/null; }
# Lists the processes that run a test program, and the slurmstepds of this cluster.
processes_left() {
  local pid
  for pid in /proc/[0-9]*; do
    [[ $(readlink "$pid/exe") != "$dir/programs/"* ]] || echo "$pid: $(tr '\0' ' ' <"$pid/cmdline")"
    [[ $(tr '\0' ' ' <"$pid/cmdline") != *slurmstepd* ]] || ! grep -qzxF "SLURM_CONF=$SLURM_CONF" "$pid/environ" || echo "$pid"
  done 2>/dev/null
}
# The arbiter's descriptors of processes and jobs. None of them may remain when the processes and jobs have ended.
descriptors_left() { find "/proc/$(arbiter_pid)/fd" -lname '*pidfd*' -o -lname '*memfd:sharedgpu-lease*' -o -lname '/proc/*' | wc -l; }
sockets_of_arbiter() { find "/proc/$(arbiter_pid)/fd" -lname 'socket:*' | wc -l; }
tenants_left() {
  sharedgpu status --json | jq -c '(.tenants[] | select((.sessions | length) > 0 or .lease or (.placed | length) > 0)),
    (.gpus[] | select(.units > 0 or .resident_bytes > 0 or .footprint_bytes > 0 or .promised_bytes > 0))'
}
files_are_as_before() { diff -q "$dir/before" <(files_left) >/dev/null; }
is_empty() { [[ -z $("$@") ]]; }
none() { [[ $("$@") == 0 ]]; }
nodes_are_idle() {
  resume_nodes
  [[ $(sinfo -h -N -o %T | sort -u) == idle ]]
}
# If slurmd is killed while it starts a job, Slurm does not know whether the node runs the job, and drains the node. The
# test resumes the node, as an administrator would. If a node is drained for another reason, the test fails.
resume_nodes() {
  local node
  for node in $(sinfo -h -R -o '%E|%N' | sed -n 's/^Duplicate jobid.*|//p'); do
    scontrol update NodeName="$node" State=RESUME && echo "$node" >>"$dir/resumed"
  done
}

# some_job NUMBER [SQUEUE_OPTION...]: prints one of the jobs, which the random NUMBER chooses. The caller passes the
# number, since RANDOM in a subshell ignores the seed.
some_job() {
  local jobs
  mapfile -t jobs < <(squeue -h -o %i "${@:2}")
  ((${#jobs[@]} == 0)) || echo "${jobs[$1 % ${#jobs[@]}]}"
}

submit_some() {
  local size="$((RANDOM % 4 * 10 + 10))%" options=(--mem=1G --requeue --gres=sharedgpu:$((RANDOM % 3 + 1)))
  case $((RANDOM % 9)) in
    0) submit "${options[@]}" -- sleep 10 ;;
    1) submit "${options[@]}" -- $hold "$size" --seconds 10 ;;
    # Both nodes are this host, so the job's two tasks are one tenant.
    2) submit "${options[@]}" -N2 -- srun $hold "$size" --seconds 1 ;;
    3) submit "${options[@]}" -- bash -c "srun $hold $size --seconds 1; srun $hold $size --seconds 1" ;;
    4) submit "${options[@]}" -- bash -c "$hold $size --seconds 10 & $hold 10% --seconds 1" ;;
    5) submit "${options[@]}" -- bash -c "trap '' TERM; $hold $size --seconds 3" ;;
    # The job exceeds its time limit of one minute.
    6) submit "${options[@]}" --time=1 -- $hold "$size" --seconds 300 ;;
    *) submit "${options[@]}" -- $hold "$size" --seconds 1 ;;
  esac
}

cancel_some() {
  local number=$RANDOM how=() job
  job=$(some_job "$number")
  ((RANDOM % 3)) || how=(--full --signal=KILL)
  if [[ $job ]]; then scancel "${how[@]}" "$job" 2>/dev/null || true; fi
}

requeue_some() {
  local number=$RANDOM job
  job=$(some_job "$number" -t RUNNING)
  # Sets the start time of the requeued job, which Slurm would otherwise delay by two minutes.
  if [[ $job ]] && scontrol requeue "$job" 2>/dev/null; then
    requeued=$((requeued + 1))
    scontrol update job="$job" StartTime=now 2>/dev/null || true
  fi
}

kill_some_daemon() {
  local daemon=slurmd$((RANDOM % 2 + 1))
  if ((RANDOM % 2)); then
    kill -9 "$(arbiter_pid)" || true
  else
    "$CLUSTER" kill "$dir" "$daemon"
    # The node may be busy with an earlier action of the test; it has to be idle only at the end.
    CLUSTER_PATIENCE=2 "$CLUSTER" start "$dir" "$daemon" 2>/dev/null || true
  fi
}

# Prints the jobs' lease seconds on the only GPU from the ledger, as "JOB SECONDS".
by_ledger() { sharedgpu ledger --config "$dir/etc/sharedgpu.conf" --by tenant --format json | jq -r '.[] | "\(.tenant | ltrimstr("job ")) \(.lease_seconds)"'; }
# Prints the completed jobs that have run only once, from sacct, as "JOB SECONDS ELAPSED STEPS". Leaves out jobs on two
# nodes: the only arbiter reports the whole job for each node, and sacct adds up both.
by_sacct() {
  sacct --noconvert -n -P -D -S now-1days -o JobIDRaw,State,ElapsedRaw,TRESUsageInTot%200,NNodes | awk -F'|' '
    { split($1, part, "."); job = part[1] }
    part[2] == "" { runs[job]++; right[job] = $2 == "COMPLETED" && $5 == 1; elapsed[job] = $3 }
    match($4, /sharedgpu_lease=[0-9]+/) { lease[job] += substr($4, RSTART + 16, RLENGTH - 16); steps[job]++ }
    END { for (job in right) if (right[job] && runs[job] == 1) print job, lease[job] + 0, elapsed[job], steps[job] + 0 }'
}

@test "many jobs that are submitted, cancelled and requeued leave nothing behind" {
  jobs=${CHURN_JOBS:-16} requeued=0
  RANDOM=${CHURN_SEED:-1}
  name=$(scontrol show config | sed -n 's/^ClusterName *= //p')
  srun --gres=sharedgpu:1 true # starts the arbiter if none runs
  wait_until 20 is_empty processes_left
  files_left >"$dir/before"
  sockets=$(sockets_of_arbiter)

  for ((i = 1; i <= jobs; ++i)); do
    submit_some >/dev/null
    ((RANDOM % 3)) || cancel_some
    ((RANDOM % 4)) || requeue_some
    ((i % (jobs < 200 ? 10 : 50))) || kill_some_daemon
    # Lets more jobs queue than the nodes can run at once, so that some jobs are cancelled while they wait.
    while (($(squeue -h | wc -l) > 24)); do
      resume_nodes
      sleep 0.2
    done
  done
  # Most jobs end by themselves. Requeued jobs may have to wait for long, so the remaining jobs are cancelled.
  wait_until 15 nodes_are_idle 2>/dev/null || true
  scancel --user=root
  wait_until 60 no_jobs
  touch "$dir/resumed"
  echo "# $jobs jobs, $requeued requeued; nodes resumed $(wc -l <"$dir/resumed") times; $(sacct -n -X -S now-1days -o State%20 | sort | uniq -c | xargs)" >&3

  wait_until 30 nodes_are_idle
  wait_until 20 is_empty processes_left || { processes_left; false; }
  wait_until 20 is_empty groups_left || { groups_left; false; }
  wait_until 20 is_empty tenants_left || { tenants_left; false; }
  wait_until 20 none descriptors_left || { ls -l "/proc/$(arbiter_pid)/fd"; false; }
  [ "$(sockets_of_arbiter)" -le "$sockets" ]
  wait_until 20 files_are_as_before || { diff "$dir/before" <(files_left); false; }
  [ "$("$SHAREDGPU_BUILD/tests/simgpu/simgpu-info" "$SIMGPU_STATE" | sed -n 's/^used //p')" = 0 ]

  run ! grep -H CUDA_ERROR "$dir"/jobs/*

  # For each job, the lease times of the ledger and of sacct differ by at most one second for each step, and are not
  # longer than the job.
  sleep 3
  join <(by_ledger | sort) <(by_sacct | sort) >"$dir/both"
  echo "# $(wc -l <"$dir/both") jobs compared" >&3
  [ -s "$dir/both" ]
  awk '{ apart = $2 - $3; if (apart < 0) apart = -apart
         if (apart > $5 || $2 > $4 + 1) { print "job " $1 ": ledger " $2 ", sacct " $3 " in " $5 " steps, elapsed " $4; bad = 1 } }
       END { exit bad }' "$dir/both"
  ! sharedgpu ledger --config "$dir/etc/sharedgpu.conf" --by turn --format json | jq -e 'any(.[]; .open)'
}
