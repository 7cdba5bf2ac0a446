#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The job_submit plugin: the host memory that units bring. Each node has 16 CPUs, 128 GiB and 8 units; a unit of type
# small stands for 1 GiB of host memory, one of type large for 3 GiB.

bats_require_minimum_version 1.5.0
load lib/jobs
load lib/own

setup_file() {
  export CLUSTER_GRES1=gpu:2,sharedgpu:small:8 CLUSTER_GRES2=sharedgpu:large:8 CLUSTER_GRES_TYPES=gpu,sharedgpu
  OWN_GRES_CONF="Name=gpu File=/dev/zero
Name=gpu File=/dev/full"
  OWN_SLURM_CONF="PartitionName=per_node Nodes=ALL DefMemPerNode=500
PartitionName=per_gpu Nodes=ALL DefMemPerGPU=200
PartitionName=whole Nodes=ALL OverSubscribe=EXCLUSIVE
PartitionName=cores Nodes=ALL SelectTypeParameters=CR_Core"
  own_cluster_up "$SHAREDGPU_CLUSTER_DIR/simgpu" SwapPerUnit=1GiB,large:auto GpuMemory=large:24GiB
}
teardown_file() { own_cluster_down; }

setup() { cluster_setup; }
teardown() { cluster_teardown; }

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

# memory JOB: what `scontrol show job` says of its memory.
memory() {
  scontrol show job "$1" | grep -oE 'MinMemory(Node|CPU)=[^ ]*|MemPerTRES=[^ ]*' | sed 's/MemPerTRES=gres./MemPerTRES=/' | sort | tail -n 1
}
memory_is() {
  local now
  now=$(memory "$1")
  [[ $now == "$2" ]] || { echo "job $1 has $now, not $2"; return 1; }
}

# Each way to request memory, and units: the options, the memory without the plugin and with it.
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
--mem-per-gpu=300 --gres=gpu:2,sharedgpu:small:1 | MemPerTRES=gpu:300 | MemPerTRES=gpu:812
-p per_node --gres=sharedgpu:small:1 | MinMemoryNode=500M | MinMemoryNode=1524M
-p per_gpu --gres=gpu:2,sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryNode=1424M
-p per_node,main --gres=sharedgpu:small:1 | MinMemoryNode=500M | MinMemoryNode=5G
-p whole --gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryCPU=4160M
--exclusive --gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryCPU=4160M
-p cores --gres=sharedgpu:small:1 | MinMemoryCPU=4G | MinMemoryCPU=4G
--array=1-3 --mem=500 --gres=sharedgpu:small:1 | MinMemoryNode=500M | MinMemoryNode=1524M
"

# requests_have COLUMN: all of them, in one queue.
requests_have() {
  local line options expected job wrong=0 jobs=()
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
  requests_have 1
}

@test "with the plugin their units bring memory, however they request theirs" {
  plugin on
  requests_have 2
}
