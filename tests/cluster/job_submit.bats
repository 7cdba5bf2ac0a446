#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The job_submit plugin: the host memory that units add to a job's request. Each node has 16 CPUs, 128 GiB and 8 units.
# A unit of type small adds 1 GiB of host memory, and a unit of type large adds 3 GiB.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/own

setup_file() {
  export CLUSTER_GRES1=gpu:2,sharedgpu:small:8 CLUSTER_GRES2=sharedgpu:large:8 CLUSTER_GRES_TYPES=gpu,sharedgpu
  export OWN_GRES_CONF="Name=gpu File=/dev/zero
Name=gpu File=/dev/full"
  export OWN_SLURM_CONF="PrologFlags=Contain
PartitionName=per_node Nodes=ALL DefMemPerNode=500
PartitionName=per_gpu Nodes=ALL DefMemPerGPU=200
PartitionName=whole Nodes=ALL OverSubscribe=EXCLUSIVE
PartitionName=capped Nodes=ALL OverSubscribe=EXCLUSIVE MaxMemPerCPU=1024 DefMemPerCPU=100
PartitionName=bounded Nodes=ALL OverSubscribe=EXCLUSIVE MaxMemPerNode=4096 DefMemPerCPU=100
PartitionName=cores Nodes=ALL SelectTypeParameters=CR_Core"
  own_cluster_up "$SHAREDGPU_CLUSTER_DIR/simgpu" SwapPerUnit=1GiB,large:auto GpuMemory=large:24GiB
}
teardown_file() { own_cluster_down; }

setup() {
  cluster_setup
  grep -q ^JobSubmitPlugins= "$dir/etc/slurm.conf" || plugin on
}
teardown() {
  cluster_teardown
  if [[ ${board-} ]]; then kill "$board"; fi
}

# plugin on|off
plugin() {
  sed -i /^JobSubmitPlugins=/d "$dir/etc/slurm.conf"
  if [[ $1 == on ]]; then echo JobSubmitPlugins=sharedgpu >>"$dir/etc/slurm.conf"; fi
  reconfigure
}
reconfigure() {
  scontrol reconfigure
  wait_until 20 scontrol ping >/dev/null
}

held() { sbatch --parsable --hold "$@" --wrap true 2>"$dir/jobs/said"; }

# is_from RELEASE: succeeds if Slurm has this release or a later release.
is_from() { [[ ! $(sbatch --version | grep -oE '[0-9]+\.[0-9]+' | head -n 1) < $1 ]]; }

# memory JOB: prints the memory of the job as `scontrol show job` shows it.
memory() {
  scontrol show job "$1" | grep -oE 'MinMemory(Node|CPU)=[^ ]*|MemPerTres=[^ ]*' | sed 's/Tres=gres./Tres=/' |
    sort | head -n 1
}
memory_is() {
  local now
  now=$(memory "$1")
  [[ $now == "$2" ]] || { echo "job $1 has $now, not $2"; return 1; }
}

# Each way to request memory and units. Columns: the options, the memory without the plugin, the memory with the plugin.
requests="
--mem=500 | MinMemoryNode=500M | MinMemoryNode=500M
--mem=500 --gres=gpu:1 | MinMemoryNode=500M | MinMemoryNode=500M
--mem=500 --gres=sharedgpu:small:2 | MinMemoryNode=500M | MinMemoryNode=2548M
--mem=500 --gres=sharedgpu:small | MinMemoryNode=500M | MinMemoryNode=1524M
--mem=500 --gres=sharedgpu:2 | MinMemoryNode=500M | MinMemoryNode=6644M
--mem=500 --gres=sharedgpu:large:2 | MinMemoryNode=500M | MinMemoryNode=6644M
--mem=0 --gres=sharedgpu:small:1 | MinMemoryNode=0 | MinMemoryNode=0
--mem-per-cpu=0 --gres=sharedgpu:small:1 | MinMemoryNode=0 | MinMemoryNode=0
--gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryNode=5G
-c 4 --mem-per-cpu=100 --gres=sharedgpu:small:1 | MinMemoryCPU=100M | MinMemoryNode=1424M
-n 4 -N 2 --gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryNode=13G
-N 2 --ntasks-per-node=2 --gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryNode=9G
--mem-per-gpu=300 --gres=gpu:2,sharedgpu:small:1 | MemPerTres=gpu:300 | MemPerTres=gpu:812
-p per_node --gres=sharedgpu:small:1 | MinMemoryNode=500M | MinMemoryNode=1524M
-p per_gpu --gres=gpu:2,sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryNode=1424M
-p per_node,main --gres=sharedgpu:small:1 | MinMemoryNode=500M | MinMemoryNode=5G
-p whole --gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryNode=65G
--exclusive --gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryNode=65G
--exclusive --mem-per-cpu=8G --gres=sharedgpu:small:8 | MinMemoryCPU=8G | MinMemoryNode=128G
--exclusive --mem=500 --gres=sharedgpu:small:1 | MinMemoryNode=500M | MinMemoryNode=1524M
-p whole,main --mem-per-cpu=500 --gres=sharedgpu:small:4 | MinMemoryCPU=500M | MinMemoryNode=12096M
-n 2 -N 1 --ntasks-per-node=8 --mem-per-cpu=500 --gres=sharedgpu:small:1 | MinMemoryCPU=500M | MinMemoryNode=5024M
-p cores --gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryCPU=4G
--array=1-3 --mem=500 --gres=sharedgpu:small:1 | MinMemoryNode=500M | MinMemoryNode=1524M
"

# requests_have COLUMN: submits all requests, and compares the memory of each job with this column.
requests_have() {
  local line options expected job wrong=0
  while IFS= read -r line; do
    [[ $line ]] || continue
    IFS="|" read -ra columns <<<"$line"
    read -ra options <<<"${columns[0]}"
    read -r expected <<<"${columns[$1]}"
    job=$(held "${options[@]}")
    memory_is "$job" "$expected" || { echo "with ${columns[0]}"; wrong=1; }
  done <<<"$requests"
  return "$wrong"
}

@test "without the plugin jobs have the memory that they request" {
  plugin off
  requests_have 1
}

@test "with the plugin a job's units add memory, however the job requests memory and units" {
  requests_have 2
}

@test "device memory that the job's own memory could never hold is swapped to the memory that its units add" {
  # The simulated GPU's memory is charged to a process outside the jobs, since a real GPU's memory is not host memory.
  export SIMGPU_BOARD=$dir/run/board
  "$SHAREDGPU_FIRST_CLUSTER/simgpu/simgpu-board" "$SIMGPU_BOARD" 3>&- &
  board=$!
  wait_until 20 test -S "$SIMGPU_BOARD"
  # Three jobs on two GPUs. Each job needs most of the memory of a GPU.
  jobs=()
  for _ in 1 2 3; do jobs+=("$(submit --mem=128 --gres=sharedgpu:small:1 -- $hold 192MiB --seconds 2)"); done
  plugin off
  without=$(submit --mem=128 --gres=sharedgpu:small:1 -- bash -c "$hold 192MiB --seconds 2; $hold 192MiB --seconds 2")
  plugin on
  both='(t["units_memory_bytes"] >> 20, t["job_memory_bytes"] >> 20)'
  wait_until 30 figures_are "${jobs[0]}" "$both" "(1024, 1152)"
  for job in "${jobs[@]}"; do
    expect_state "$job" COMPLETED
    output_has "$job" "$verified"
  done
  expect_state "$without" FAILED
  # The message names a limit that suffices for 192 MiB of swap, the margin of 32 MiB and the program's own memory. Only
  # one of the two processes prints the message.
  output_has "$without" "could never hold more than 96 MiB of it while other jobs have the GPU; request --mem="
  [ "$(grep -c "device memory refused" "$dir/jobs/$without")" = 1 ]
}
# figures_are JOB EXPRESSION VALUE: compares the value of an expression over `t`, the job's entry in `sharedgpu status`.
figures_are() {
  local now
  now=$(sharedgpu status --json |
    python3 -c "import json, sys; t = [t for t in json.load(sys.stdin)['tenants'] if t['job'] == $1][0]; print($2)")
  [[ $now == "$3" ]]
}

@test "a line at submission spells out the sum" {
  held --mem=500 --gres=sharedgpu:small:2 >/dev/null
  grep -qF "sharedgpu: host memory 2548M per node: 500M (--mem) + 2048M for 2 units" said
  held -c 2 --gres=sharedgpu:small:1 >/dev/null
  grep -qF "9216M per node: 8192M (DefMemPerCPU=4096M x 2 CPUs) + 1024M for 1 unit" said
  held --mem=500 >/dev/null
  [[ ! -s said ]]
}

@test "a request that fits no node is refused with the sum" {
  held --mem=127G --gres=sharedgpu:small:1 >/dev/null
  run ! held --mem=127G --gres=sharedgpu:large:1
  grep -qF "no node has the host memory: 133120M per node: 130048M (--mem) + 3072M for 1 unit; the largest node with" said
  run ! held --mem-per-cpu=8G -n 16 --gres=sharedgpu:small:1
  run ! held --exclusive --mem-per-cpu=9G --gres=sharedgpu:small:1
}

# A script that prints the memory limit of its step in MiB.
limit='
  group=$(sed -n "s/^[0-9]*:\(\(.*,\)\?memory\(,.*\)\?\)\?:\(.*\)/\4/p" /proc/self/cgroup | head -n 1)
  group=${group%/task_*} hierarchy=/sys/fs/cgroup
  [[ ! -e $hierarchy/cgroup.controllers ]] || group=${group%/user}
  [[ -e $hierarchy/cgroup.controllers ]] || hierarchy+=/memory
  bytes=$(cat $hierarchy$group/memory.limit_in_bytes 2>/dev/null || cat $hierarchy$group/memory.max)
  echo "limit $((bytes >> 20))"'

@test "the sum is what the cgroup allows to the job and its steps, and what sacct shows" {
  echo "$limit" >limit
  job=$(submit --mem=200 --gres=sharedgpu:small:1 -- bash -c "bash limit; srun bash limit")
  per_cpu=$(SLURM_MEM_PER_CPU=77 submit --mem-per-cpu=100 -c 2 --gres=sharedgpu:small:1 -- bash -c "bash limit; srun bash limit")
  per_gpu=$(submit --mem-per-gpu=200 --gres=gpu:1,sharedgpu:small:1 -- bash -c "bash limit; srun bash limit")
  run -0 --separate-stderr srun --mem=200 --gres=sharedgpu:small:1 bash limit
  [ "$output" = "limit 1224" ]
  [[ $stderr == *"srun: sharedgpu: host memory 1224M per node"* ]]
  run -0 --separate-stderr salloc --mem-per-cpu=200 --gres=sharedgpu:small:1 srun bash limit
  [ "$output" = "limit 1224" ]
  # salloc sets SLURM_MEM_PER_GPU to the value of its own option, but srun uses the job's value. A step that states a
  # value keeps this value.
  run -0 --separate-stderr salloc --mem-per-gpu=200 --gres=gpu:1,sharedgpu:small:1 \
    bash -c 'echo "$SLURM_MEM_PER_GPU"; srun bash limit; srun --mem-per-gpu=300 bash limit'
  [ "$output" = $'200\nlimit 1224\nlimit 300' ]
  run -0 --separate-stderr salloc --mem-per-gpu=200 --gres=gpu:1 srun bash limit
  [ "$output" = "limit 200" ]
  for each in "$job" "$per_cpu" "$per_gpu"; do
    expect_state "$each" COMPLETED
    [ "$(grep -c "^limit 1224$" "$dir/jobs/$each")" = 2 ]
    wait_until 20 accounted "$each"
  done
}
# sacct shows the memory in ReqMem and in AllocTRES.
accounted() { [[ $(sacct -n -P -X -j "$1" -o ReqMem,AllocTRES) =~ ^1224M.*mem=1224M ]]; }

@test "steps of one job run side by side, each with all memory of the job" {
  echo "$limit" >limit
  # together UNITS: runs four steps, each of which waits for the other three.
  cat >together <<'SCRIPT'
    step='touch begun.$1.$2
      for each in 1 2 3 4; do until [[ -e begun.$1.$each ]]; do sleep 0.1; done; done
      bash limit; echo "per node $SLURM_MEM_PER_NODE"'
    for each in 1 2 3 4; do srun -n 1 -c 1 --exact --gres="$1" bash -c "$step" step "$1" "$each" & done
    wait
SCRIPT
  job=$(submit -t 1 -n 4 -N 1 --gres=sharedgpu:small:4 -- bash -c "bash together sharedgpu:small:1; bash together none")
  expect_state "$job" COMPLETED
  run -0 timeout 60 salloc -n 4 -N 1 --mem=500 --gres=sharedgpu:small:4 bash together sharedgpu:small:1
  [ "$(grep -c "^limit 4596$" <<<"$output")" = 4 ]
  [ "$(grep -c "^limit 20480$" "$dir/jobs/$job")" = 8 ]
  [ "$(grep -c "^per node 20480$" "$dir/jobs/$job")" = 8 ]
  # If a step states its memory, it gets the stated memory.
  job=$(submit -n 2 -N 1 --gres=sharedgpu:small:1 -- \
    bash -c "srun --mem=700 -n 1 bash limit; SLURM_MEM_PER_CPU=300 srun -n 1 -c 1 bash limit")
  expect_state "$job" COMPLETED
  output_has "$job" "limit 700"
  output_has "$job" "limit 300"
}

@test "after a change of a pending job's memory or units, its memory has the part of the units once" {
  job=$(held -n 2 -N 1 --mem=500 --gres=sharedgpu:small:1)
  # change KEY=VALUE... MEMORY
  change() {
    scontrol update jobid="$job" "${@:1:$#-1}"
    memory_is "$job" "${!#}"
  }
  change MinMemoryNode=600 MinMemoryNode=1624M
  change MinMemoryNode=600 MinMemoryNode=1624M
  change MinMemoryCPU=50 MinMemoryNode=1124M
  change Gres=sharedgpu:small:3 MinMemoryNode=3172M
  change Gres=sharedgpu:small:3 MinMemoryNode=3172M
  change Gres=sharedgpu:large:1 MinMemoryNode=3172M
  change Gres=gpu:1 MinMemoryNode=100M
  change Gres=sharedgpu:small:2 MinMemoryNode=700 MinMemoryNode=2748M
  change MinMemoryNode=0 MinMemoryNode=0
  change MinMemoryNode=300 MinMemoryNode=2348M
  change Name=other MinMemoryNode=2348M
  change OverSubscribe=NO MinMemoryCPU=50 MinMemoryNode=2148M
  change MinMemoryNode=300 MinMemoryNode=2348M
  run ! scontrol update jobid="$job" MinMemoryNode=130000
  memory_is "$job" MinMemoryNode=2348M
}

@test "a job with whole nodes has memory for all CPUs and its units, within Slurm's limits, and so has each step" {
  echo "$limit" >limit
  for partition in capped=5696 bounded=4096; do
    job=$(submit -p "${partition%=*}" --gres=sharedgpu:small:4 -- srun -n 1 -c 1 --exact bash limit)
    expect_state "$job" COMPLETED
    output_has "$job" "limit ${partition#*=}"
  done
  job=$(held -p whole --gres=sharedgpu:small:1)
  scontrol update jobid="$job" Partition=main
  memory_is "$job" MinMemoryNode=5G
  scontrol update jobid="$job" Partition=capped
  memory_is "$job" MinMemoryNode=2624M
}

@test "a pending job with memory per GPU can be changed" {
  job=$(held --mem-per-gpu=300 --gres=gpu:1,sharedgpu:small:1)
  by_job=$(held --gpus=1 --mem-per-gpu=300 --gres=sharedgpu:small:1)
  scontrol update jobid="$by_job" Gres=sharedgpu:small:2
  memory_is "$by_job" MemPerTres=gpu:2348
  for change in NumCPUs=2 NumTasks=2 Partition=per_gpu; do
    scontrol update jobid="$job" "$change"
    memory_is "$job" MemPerTres=gpu:1324
  done
  scontrol update jobid="$job" Gres=gpu:1,sharedgpu:small:2
  memory_is "$job" MemPerTres=gpu:2348
  array=$(held --array=1-2 --mem-per-gpu=300 --gres=gpu:1,sharedgpu:small:1)
  scontrol update jobid="${array}_2" Gres=gpu:1,sharedgpu:small:2
  scontrol update jobid="$array" NumCPUs=2
  memory_is "${array}_1" MemPerTres=gpu:1324
  memory_is "${array}_2" MemPerTres=gpu:2348
}

@test "units that a job gets, and loses, after its submission" {
  job=$(held --gres=gpu:1)
  memory_is "$job" MinMemoryCPU=4G
  scontrol update jobid="$job" Gres=sharedgpu:small:1
  memory_is "$job" MinMemoryNode=5G
  scontrol update jobid="$job" Gres=gpu:1
  memory_is "$job" MinMemoryNode=4G
}

@test "a change of a pending job's partition, CPUs or tasks computes its memory again" {
  job=$(held -p per_node --gres=sharedgpu:small:1)
  memory_is "$job" MinMemoryNode=1524M
  scontrol update jobid="$job" Partition=main
  memory_is "$job" MinMemoryNode=5G
  scontrol update jobid="$job" NumCPUs=8
  memory_is "$job" MinMemoryNode=33G
  scontrol update jobid="$job" NumCPUs=2 NumTasks=2
  memory_is "$job" MinMemoryNode=9G
  scontrol update jobid="$job" Partition=per_node
  memory_is "$job" MinMemoryNode=1524M
  # In the partition `cores`, memory is not a consumable resource.
  job=$(held -p cores --gres=sharedgpu:small:4)
  memory_is "$job" MinMemoryCPU=4G
  scontrol update jobid="$job" Partition=main
  memory_is "$job" MinMemoryNode=8G
  # The job's own request stays unchanged.
  job=$(held --mem=600 --gres=sharedgpu:small:1)
  scontrol update jobid="$job" NumCPUs=2
  memory_is "$job" MinMemoryNode=1624M
  scontrol update jobid="$job" Partition=per_node
  memory_is "$job" MinMemoryNode=1624M
  # The plugin does not act on changes of running jobs.
  job=$(submit -N 2 --gres=sharedgpu:1 -- sleep 100)
  wait_until 20 has_state "$job" RUNNING
  now=$(memory "$job")
  scontrol update jobid="$job" NumNodes=1
  memory_is "$job" "$now"
}

@test "units per task and per job" {
  # Sets the request for units by scontrol, since no release of Slurm has options for both: units per task and units per
  # job.
  for units in Task=2548M Job=1524M; do
    job=$(held -n 2 -N 1 --mem=500)
    scontrol update jobid="$job" "TresPer${units%=*}=gres${separator:=$(separator)}sharedgpu:small:1"
    memory_is "$job" "MinMemoryNode=${units#*=}"
  done
  if is_from 23.11; then
    memory_is "$(held -n 2 -N 1 --mem=500 --tres-per-task=gres/sharedgpu:small:1)" MinMemoryNode=2548M
    memory_is "$(held -n 2 -N 2 --mem=500 --tres-per-task=gres/sharedgpu:small:1)" MinMemoryNode=1524M
  fi
}
# Slurm 22.05 writes gres:NAME, and 24.11 writes gres/NAME.
separator() {
  local job
  job=$(held --gres=sharedgpu:small:1)
  scontrol show job "$job" | sed -n 's/.*TresPerNode=gres\(.\).*/\1/p'
}

@test "the elements of an array and the components of a heterogeneous job have each their own part" {
  array=$(held --array=1-3 --mem=500 --gres=sharedgpu:small:1)
  scontrol update jobid="${array}_2" Gres=sharedgpu:small:2 # an element for which slurmctld has a separate job record
  scontrol update jobid="$array" MinMemoryNode=600
  memory_is "${array}_1" MinMemoryNode=1624M
  memory_is "${array}_2" MinMemoryNode=2648M
  parts=$(sbatch --parsable --hold --mem=500 --gres=sharedgpu:small:1 : --mem=500 --gres=sharedgpu:small:2 : --mem=500 \
    --wrap true 2>said)
  [ "$(grep -c "sharedgpu: host memory" said)" = 2 ]
  for each in 0=1524M 1=2548M 2=500M; do memory_is "$parts+${each%=*}" "MinMemoryNode=${each#*=}"; done
  scontrol update jobid="$parts" MinMemoryNode=900
  for each in 0=1924M 1=2948M 2=900M; do memory_is "$parts+${each%=*}" "MinMemoryNode=${each#*=}"; done
}

@test "--mem-update does not take the memory of units" {
  is_from 26.05 || skip "this release has no such option"
  job=$(held --mem=500 --mem-update=10@1 --gres=sharedgpu:small:1)
  grep -qF "sharedgpu: --mem-update has no effect on a job with units" said
  memory_is "$job" MinMemoryNode=1524M
  run -1 grep MemUpdate <<<"$(scontrol show job "$job")"
  scontrol show job "$(held --mem=500 --mem-update=10@1)" | grep -qF "MemUpdate=10%@1min"
}

@test "a running job's memory, where Slurm can lower it, keeps the part of the units" {
  echo "$limit" >limit
  job=$(submit --mem=1000 --gres=sharedgpu:small:1 -- bash -c "echo begun; until [[ -e $dir/jobs/go ]]; do sleep 0.1; done; bash limit")
  wait_until 20 output_has "$job" begun
  if is_from 26.05; then
    scontrol update jobid="$job" MinMemoryNode=500
    wait_until 10 memory_is "$job" MinMemoryNode=1524M
    run ! scontrol update jobid="$job" MinMemoryNode=600 # refused, since it would raise the memory
  else
    run ! scontrol update jobid="$job" MinMemoryNode=500
  fi
  now=$(memory "$job")
  run ! scontrol update jobid="$job" Gres=sharedgpu:small:2
  memory_is "$job" "$now"
  touch go
  expect_state "$job" COMPLETED
}

log_has() { tail -n "+$earlier" "$dir/log/slurmctld" | grep -qF "$1"; }

@test "a configuration that says nothing, too little or something wrong leaves memory alone, and the log says so" {
  cp "$dir/etc/sharedgpu.conf" right
  configured() { # SAYS MEMORY LINE...
    sleep 1 # Slurm stores the time at which it last read its configuration in whole seconds
    earlier=$(wc -l <"$dir/log/slurmctld")
    { grep -v -e SwapPerUnit -e GpuMemory right && printf '%s\n' "${@:3}"; } >"$dir/etc/sharedgpu.conf"
    reconfigure
    memory_is "$(held --mem=500 --gres=sharedgpu:small:1)" "MinMemoryNode=$2"
    wait_until 5 log_has "$1"
  }
  configured "does not state SwapPerUnit" 500M
  configured "SwapPerUnit=auto needs the memory of the GPUs: add GpuMemory=SIZE" 500M SwapPerUnit=auto
  configured "unknown key 'SwapPerUnits'" 500M SwapPerUnits=1GiB
  sleep 1
  cp right "$dir/etc/sharedgpu.conf"
  reconfigure
  memory_is "$(held --mem=500 --gres=sharedgpu:small:1)" MinMemoryNode=1524M
}

@test "on nodes with two threads per core, memory per CPU is for whole cores" {
  cp "$dir/etc/slurm.conf" right
  restarted() { # EXPRESSION...: edits slurm.conf with sed, and restarts slurmctld
    cp right "$dir/etc/slurm.conf"
    for expression; do sed -i "$expression" "$dir/etc/slurm.conf"; done
    "$CLUSTER" stop "$dir" slurmctld
    "$CLUSTER" start "$dir" slurmctld
  }
  brings() { memory_is "$(held --gres=sharedgpu:small:1 "${@:2}")" "MinMemoryNode=$1"; }
  threads="/^NodeName=/s/CPUs=16/CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2/"
  restarted "$threads"
  brings 17G -n 4 -N 1
  brings 33G -n 4 -N 1 --ntasks-per-core=1
  brings 13G -n 1 -c 3 --threads-per-core=1
  brings 9G -O -n 16 -N 1
  is_from 26.05 || brings 17G -O -n 16 -N 1 -c 3 # for such a job, Slurm 26.05 states a larger number of CPUs
  restarted "$threads" "/^SelectTypeParameters=/s/$/,CR_ONE_TASK_PER_CORE/"
  brings 33G -n 4 -N 1
  brings 17G -n 4 -N 1 --ntasks-per-core=2
  restarted
  brings 17G -n 4 -N 1
}
