#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests jobs of batch systems for which there are no plugins. TORQUE's scripts are called as pbs_mom calls them. The
# hook for OpenPBS uses a replacement for the Python module of OpenPBS. The wrapper of Slurm's qsub calls a replacement
# for Slurm's qsub.
load helpers

etc=$BATS_TEST_DIRNAME/../../etc
user=nobody
resources="gres=sharedgpu:2+matlab:1,walltime=01:00:00,nodes=1:ppn=2,neednodes=1:ppn=2"

# batch_setup [LINE...]: starts an arbiter for jobs, with these lines in its configuration.
batch_setup() {
  [[ $(id -u) == 0 ]] || skip "needs root to become another user"
  start_arbiter Tenants=jobs "$@"
  chmod 755 "$DIR"
  export SHAREDGPU SHAREDGPU_JOBS=$DIR/jobs
}
# mom COMMAND...: runs the command with the environment and the open pipe that pbs_mom gives to scripts. The reader of
# the pipe gets EOF when the last process has closed the pipe.
mom() {
  local gres=${resources#gres=}
  if [[ $gres == "$resources" ]]; then gres=""; fi
  env ${gres:+PBS_RESOURCE_GRES="${gres%%,*}"} PBS_RESOURCE_NODES=1:ppn=2 PBS_NUM_NODES=1 PBS_NUM_PPN=2 PBS_NP=2 PBS_NODENUM=0 \
    PBS_MSHOST="$HOSTNAME" "$@" 14> >(cat >"$DIR/pipe"; echo ended >"$DIR/pipe")
}
prologue() { mom "$etc/torque/prologue" "$1" "$user" nogroup STDIN "$resources" batch "" "/mom_priv/jobs/$1.SC"; }
epilogue() {
  mom "$etc/torque/epilogue" "$1" "$user" nogroup STDIN 4711 "$resources" "cput=00:00:04,vmem=335096kb,walltime=00:00:06" \
    batch "" 0 "/mom_priv/jobs/$1.SC"
}
# qstat_prints LINE: makes a command qstat that prints LINE about a job, in the format of TORQUE's qstat.
qstat_prints() {
  printf '%s\n' '#!/bin/sh' '[ "$1 $2" = "-f -1" ] && echo "Job Id: $3"' "printf '    %s\\n' 'Job_Name = hold' '$1' 'Resource_List.nodes = 1'" \
    >"$DIR/qstat"
  chmod 755 "$DIR/qstat"
  export QSTAT=$DIR/qstat
}
as_user() { setpriv --reuid "$user" --regid nogroup --clear-groups "$@"; }

# tenants_are UNITS PROCESSES: succeeds if the only tenant belongs to the user and has UNITS units and PROCESSES
# processes; without arguments, succeeds if there is no tenant.
tenants_are() {
  json_is "[[t['uid'], t['units'], len(t['pids'])] for t in s['tenants']]" "[${1:+[$(id -u "$user"), $1, $2]}]"
}
nothing_left() { tenants_are && [[ -z $(ls -A "$SHAREDGPU_JOBS") ]] && ! pgrep -f "job hold $1 "; }
# name NAME: prints a job's name that no other run of these tests uses.
name() { echo "$1.${DIR##*.}"; }

# groups_setup [LINE...]: starts an arbiter that puts jobs with a limit of host memory into control groups below PARENT.
groups_setup() {
  batch_setup "CgroupParent=/${DIR##*/}" "$@"
  local memory=/sys/fs/cgroup/memory
  [[ -d $memory ]] || memory=/sys/fs/cgroup
  PARENT=$memory/${DIR##*/}
}
groups_or_skip() {
  [[ $output != *"no control group"* ]] || skip "no control groups can be made here: $(grep 'not limited\|not enter' "$DIR/arbiter.log")"
}
is_in_group() { grep -q ":/${DIR##*/}/run_1\$" "/proc/$1/cgroup"; }
# limit [RUN]: prints the limit of the run's group.
limit() { cat "$PARENT/run_${1:-1}"/memory.limit_in_bytes 2>/dev/null || cat "$PARENT/run_${1:-1}/memory.max"; }
group_is_gone() { [[ ! -e $PARENT/run_1 ]]; }

# hook EVENT: runs the hook of OpenPBS for the event, see openpbs/pbs.py.
hook() {
  sed "s|@PREFIX@/share/sharedgpu/etc|$etc|" "$etc/openpbs/sharedgpu.py.in" >"$DIR/hook.py"
  python3 "$BATS_TEST_DIRNAME/openpbs/pbs.py" "$DIR/hook.py" "$1"
}
job_of() { printf '"job": {"id": "%s", "euser": "%s", "exec_vnode": "(node0:ncpus=1:sharedgpu=1)+(node1[0]:ncpus=1:sharedgpu=2)+(node1[1]:sharedgpu=1)"}' "$1" "$user"; }

@test "TORQUE: the tasks of a job are one tenant of its user, with its units, and the epilogue prints its lease time" {
  batch_setup
  job=$(name 12)
  prologue "$job"
  tenants_are 2 0
  export PBS_JOBID=$job
  for task in 1 2; do
    as_user "$etc/torque/job_starter" "$PROGRAMS/hold" --bytes 40% --seconds 2 --verify >"$DIR/$task.out" 2>&1 3>&- &
    PIDS[$task]=$!
  done
  until_true 20 tenants_are 2 2
  wait "${PIDS[1]}" && wait "${PIDS[2]}"
  grep -q "every byte verified" "$DIR/1.out"
  run -0 epilogue "$job"
  [[ $output =~ ^"sharedgpu: job $job held a lease on this node for "[1-9][0-9.]*s$ ]]
  until_true 20 nothing_left "$job"
}

@test "TORQUE: the files of mom_priv that the documentation writes run the scripts" {
  batch_setup
  mkdir "$DIR/mom_priv"
  "$BATS_TEST_DIRNAME/../../scripts/documented" "$BATS_TEST_DIRNAME/../../docs/torque.md" 'In `/var/spool/torque/mom_priv`:' |
    sed "s|/opt/sharedgpu/share/sharedgpu/etc|$etc|" >"$DIR/commands"
  (cd "$DIR/mom_priv" && bash -euo pipefail "$DIR/commands")
  job=$(name 13)
  mom "$DIR/mom_priv/prologue.parallel" "$job" "$user" nogroup STDIN "$resources" batch "" "/mom_priv/jobs/$job.SC"
  tenants_are 2 0
  [ "$(cut -d' ' -f1 "$DIR/mom_priv/config")" = '$job_starter' ]
  PBS_JOBID=$job run -0 as_user "$(cut -d' ' -f2 "$DIR/mom_priv/config")" "$PROGRAMS/hold" --bytes 40% --verify
  [[ $output == *"every byte verified"* ]]
  run -0 mom "$DIR/mom_priv/epilogue.parallel" "$job" "$user" nogroup STDIN 4711 "$resources" "walltime=00:00:06" batch "" 0 "/mom_priv/jobs/$job.SC"
  until_true 20 nothing_left "$job"
}

@test "TORQUE: the units of -W x=GRES: are known only to the server, which is asked for them" {
  batch_setup
  resources=walltime=01:00:00,nodes=1,neednodes=1
  job=$(name 16)
  expect() {
    qstat_prints "$2"
    prologue "$job"
    tenants_are "$1" 0 || { echo "$2"; return 1; }
  }
  expect 1 'x = GRES:sharedgpu:1'
  expect 2 'x = GRES:sharedgpu@2'
  expect 3 'x = NACCESSPOLICY:SHARED;gres:matlab+5%sharedgpu+3'
  # No job has more units than the node.
  expect 8 'x = GRES:sharedgpu:100000'
  grep -q 'asks for 100000 units, but gets only the 8 of this node' "$DIR/arbiter.log"
  local many
  for many in 2147483648 99999999999999999999999; do
    qstat_prints "x = GRES:sharedgpu:$many"
    run -0 prologue "$job"
    [[ $output == *"--units 1000000: this node has only 8 units; the run gets 8" ]]
    tenants_are 8 0
  done
  epilogue "$job"
  until_true 20 nothing_left "$job"
  # Three cases: the job has no attribute x, the server refuses the query, and there is no qstat.
  qstat_prints 'submit_args = -W y=GRES:sharedgpu:1'
  prologue "$job"
  printf '%s\n' '#!/bin/sh' 'echo "qstat: Unauthorized Request" >&2; exit 1' >"$DIR/qstat"
  run -0 prologue "$job"
  [ -z "$output" ]
  QSTAT=$DIR/none run -0 prologue "$job"
  [ -z "$output" ]
  tenants_are
}

@test "TORQUE: a job's tenant does not hold pbs_mom's pipes open" {
  batch_setup
  job=$(name 17)
  prologue "$job"
  tenants_are 2 0
  until_true 20 grep -q ended "$DIR/pipe"
  tenants_are 2 0
  epilogue "$job"
  until_true 20 nothing_left "$job"
}

@test "TORQUE: the element of an array is a job of its own" {
  batch_setup
  job="20[1].${DIR##*.}"
  prologue "$job"
  tenants_are 2 0
  epilogue "$job"
  until_true 20 nothing_left "$job"
}

@test "TORQUE: PBS_RESOURCE_GRES sets the units; another job's environment is not readable; a job without units is left alone" {
  batch_setup
  job=$(name 13)
  resources=gres=sharedgpu:h200:3,nodes=1 prologue "$job"
  tenants_are 3 0
  run setpriv --reuid daemon --regid daemon --clear-groups cat "$SHAREDGPU_JOBS/$job"
  [[ $status != 0 && $output == *"Permission denied"* ]]
  # Nothing is left of an earlier job with the same name.
  resources=gres=sharedgpu,nodes=1 prologue "$job"
  tenants_are 1 0
  epilogue "$job"
  resources=nodes=1 prologue 14.server
  until_true 20 nothing_left "$job"
  run -0 env PBS_JOBID=14.server "$etc/torque/job_starter" sh -c 'echo "[$SHAREDGPU_TOKEN$LD_PRELOAD] $1"' sh "two words"
  [ "$output" = "[] two words" ]
  run -0 epilogue 14.server
  [ -z "$output" ]
}

@test "TORQUE: a job starts even without an arbiter" {
  export SHAREDGPU SHAREDGPU_JOBS=$DIR/jobs SHAREDGPU_ARBITER_TIMEOUT=100
  # No arbiter runs, and none can be started: `supervise` of this command fails.
  printf '%s\n' '#!/bin/sh' 'case $1 in supervise) exit 1 ;; esac' "exec $SHAREDGPU \"\$@\"" >"$DIR/command"
  chmod 755 "$DIR/command"
  SHAREDGPU=$DIR/command run -0 prologue 15.server
  [[ $output == *"job 15.server: "*"no arbiter"*"runs without sharing"* ]]
  [ -z "$(ls -A "$SHAREDGPU_JOBS")" ]
}

@test "OpenPBS: the hook creates the tenant with this node's units, gives it to each task, and ends it" {
  batch_setup
  job=$(name 7)
  hook "{\"type\": \"execjob_begin\", $(job_of "$job")}"
  tenants_are 3 0
  mapfile -t env < <(hook "{\"type\": \"execjob_launch\", \"env\": {\"LD_PRELOAD\": \"libm.so.6\"}, $(job_of "$job")}")
  [[ " ${env[*]} " == *" LD_PRELOAD=libm.so.6:$PRELOAD "* ]]
  as_user env "${env[@]}" "$PROGRAMS/hold" --bytes 40% --seconds 1 >"$DIR/task.out" 2>&1 3>&- &
  PIDS[task]=$!
  until_true 20 tenants_are 3 1
  wait "${PIDS[task]}"
  run -0 hook "{\"type\": \"execjob_end\", $(job_of "$job")}"
  [[ $output == *"job $job held a lease on this node for "* ]]
  until_true 20 nothing_left "$job"
}

@test "TORQUE: the host memory of a job that requests it is limited, from the start of each task to the end of the last" {
  groups_setup SwapPerUnit=128MiB
  job=$(name 16)
  resources=$resources,mem=64mb run prologue "$job"
  groups_or_skip
  [ -z "$output" ]
  [[ $(limit) == $((320 << 20)) ]]  # 64 MiB, and the memory of two units
  run -0 as_user env PBS_JOBID="$job" "$etc/torque/job_starter" cat /proc/self/cgroup
  [[ $output == *":/${DIR##*/}/run_1"* ]]
  run as_user env PBS_JOBID="$job" "$etc/torque/job_starter" python3 -c 'x = bytearray(1 << 30)'
  [[ $status == 137 ]]
  epilogue "$job"
  until_true 20 group_is_gone
  resources=$resources,mem=much run prologue "$job"
  [[ $output == *"'much' is not a size of host memory"* ]]
  epilogue "$job"
  rmdir "$PARENT"
}

@test "TORQUE: a job that requests host memory keeps the memory of the GPU, even without SwapPerUnit" {
  groups_setup
  job=$(name 18)
  resources=gres=sharedgpu:1,mem=40mb,nodes=1 run prologue "$job"
  groups_or_skip
  [[ $(limit) == $((296 << 20)) ]]  # 40 MiB, and the memory of the GPU
  run -0 as_user env PBS_JOBID="$job" "$etc/torque/job_starter" "$PROGRAMS/hold" --bytes 50% --of 256MiB --seconds 1
  epilogue "$job"
  until_true 20 group_is_gone
  rmdir "$PARENT"
}

@test "TORQUE: pmem= counts for each process on the node, and the job has no limit if their number is unknown" {
  groups_setup HostMemoryPerUnit=64MiB SwapPerUnit=64MiB
  local run=0
  # limit_is MIB RESOURCES
  limit_is() {
    run=$((run + 1))
    resources=gres=sharedgpu:1,$2 prologue "$job"
    until_true 20 test -e "$PARENT/run_$run"
    [[ $(limit $run) == $(($1 << 20)) ]] || { echo "$2: $(limit $run)"; return 1; }
    epilogue "$job"
  }
  job=$(name 19)
  resources=gres=sharedgpu:1,nodes=1,mem=32mb run prologue "$job"
  groups_or_skip
  epilogue "$job"
  run=1
  limit_is 192 nodes=1:ppn=4,pmem=32mb
  limit_is 192 nodes=2:ppn=4:gpus=1,pmem=32mb
  limit_is 96 nodes=1,pmem=32mb
  limit_is 128 nodes=1:ppn=4
  limit_is 128 nodes=1:ppn=4,pmem=32mb,mem=64mb
  local without=$(((1 << 30) + 64))  # MiB
  limit_is $without nodes=gpu1:ppn=2+gpu2:ppn=4,pmem=32mb
  limit_is $without procs=8,pmem=32mb
  limit_is $without mem=99999999pb
  until_true 20 rmdir "$PARENT"
}

@test "OpenPBS: the host memory of a job that requests it is limited, from the first use of CUDA on" {
  groups_setup SwapPerUnit=128MiB
  job=$(name 17)
  event="\"job\": {\"id\": \"$job\", \"euser\": \"$user\", \"exec_vnode\": \"(node1[0]:sharedgpu=1:mem=32768kb)+(node1[1]:mem=32768kb)\"}"
  run hook "{\"type\": \"execjob_begin\", $event}"
  groups_or_skip
  [[ $(limit) == $((192 << 20)) ]]
  mapfile -t env < <(hook "{\"type\": \"execjob_launch\", \"env\": {}, $event}")
  as_user env "${env[@]}" "$PROGRAMS/hold" --bytes 10% --seconds 600 >"$DIR/task.out" 2>&1 3>&- &
  PIDS[task]=$!
  until_true 20 tenants_are 1 1
  PIDS[hold]=$(json "s['tenants'][0]['pids'][0]")
  is_in_group "${PIDS[hold]}"
  hook "{\"type\": \"execjob_end\", $event}"
  kill -9 "${PIDS[hold]}"
  until_true 20 group_is_gone
  rmdir "$PARENT"
}

@test "OpenPBS: a job without units is left alone; the tenant of a lost job is ended; no failure of the hook rejects a job" {
  batch_setup
  hook '{"type": "execjob_begin", "job": {"id": "8.server", "euser": "nobody", "exec_vnode": "(node1:ncpus=1)"}}'
  hook '{"type": "execjob_launch", "env": {}, "job": {"id": "8.server"}}'
  tenants_are
  job=$(name 9)
  hook "{\"type\": \"execjob_begin\", $(job_of "$job")}"
  hook "{\"type\": \"exechost_periodic\", \"job_list\": {\"$job\": {}}}"
  tenants_are 3 0
  hook '{"type": "exechost_periodic", "job_list": {}}'
  tenants_are 3 0  # the job is young, so the list may be older than the job
  SHAREDGPU_YOUNG=0 hook '{"type": "exechost_periodic", "job_list": {}}'
  until_true 20 nothing_left "$job"
  run -0 hook '{"type": "execjob_begin", "job": {"id": "../9", "euser": "nobody", "exec_vnode": "(node1:sharedgpu=1)"}}'
  [[ $output == *usage* ]]
  run -0 hook '{"type": "execjob_begin", "job": {}}'
  [[ $output == *AttributeError* ]]
}

@test "Slurm's qsub: the wrapper removes gres= and passes all else on" {
  export QSUB=$DIR/qsub
  printf '%s\n' '#!/bin/bash' 'printf "<%s>" "$SBATCH_GRES" "$SALLOC_GRES" "$@"' >"$QSUB"
  chmod 755 "$QSUB"
  wrapped() { run "$etc/slurm-torque/qsub" "${@:2}"; [ "$output" = "$1" ] || { echo "$output"; return 1; }; }
  wrapped "<sharedgpu:1><><-l><nodes=1:ppn=2><-l><walltime=1><-pe><shm><4><-j><oe><-V><s><a b><-l>" \
    -l nodes=1:ppn=2,gres=sharedgpu:1 -l walltime=1 -pe shm 4 -j oe -V s "a b" -l
  wrapped "<><gpu:1,sharedgpu:2><-I>" -I -l gres=gpu:1+sharedgpu:2
  wrapped "<sharedgpu:7><><-b><y><sleep><3>" -l=gres=sharedgpu:7 -b y sleep 3
  wrapped "<><><--unknown><s>" --unknown s
  SBATCH_GRES=sharedgpu:1 SHAREDGPU_QSUB_GRES=sharedgpu:1 wrapped "<><><s>" s
  SBATCH_GRES=sharedgpu:1 wrapped "<sharedgpu:1><><s>" s
  wrapped "qsub: accelerators cannot stand beside gres=sharedgpu:1; ask for them as gres=gpu:COUNT+sharedgpu:1" \
    -l naccelerators=1,gres=sharedgpu:1 s
}
