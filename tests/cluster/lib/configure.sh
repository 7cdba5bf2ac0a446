# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Writes the configuration of the cluster in $dir.

load_settings() {
  # shellcheck disable=SC1091
  if [[ -e $dir/settings ]]; then source "$dir/settings"; fi
  CLUSTER_NODES=${CLUSTER_NODES:-2} CLUSTER_HOSTS=${CLUSTER_HOSTS:-no}
}

save_settings() {
  CLUSTER_PREFIX=${CLUSTER_PREFIX-} CLUSTER_SIMGPU=${CLUSTER_SIMGPU-} CLUSTER_NAME=${CLUSTER_NAME:-sgpu}
  CLUSTER_GPU_MEMORY=${CLUSTER_GPU_MEMORY:-1GiB} CLUSTER_GPUS=${CLUSTER_GPUS:-1}
  CLUSTER_GRES_TYPES=${CLUSTER_GRES_TYPES:-sharedgpu} CLUSTER_CONSTRAIN_DEVICES=${CLUSTER_CONSTRAIN_DEVICES:-no}
  CLUSTER_PORT=$(free_ports) CLUSTER_PEER_PORT=$(free_peer_port)
  local name names=(CLUSTER_PREFIX CLUSTER_SIMGPU CLUSTER_NAME CLUSTER_GPU_MEMORY CLUSTER_GPUS CLUSTER_NODES CLUSTER_HOSTS
    CLUSTER_PORT CLUSTER_PEER_PORT CLUSTER_GRES_TYPES CLUSTER_CONSTRAIN_DEVICES)
  for name in $(each_node CLUSTER_GRES); do
    printf -v "$name" %s "${!name:-sharedgpu:$((8 * CLUSTER_GPUS))}"
    names+=("$name")
  done
  for name in "${names[@]}"; do printf '%s=%q\n' "$name" "${!name}"; done >"$dir/settings"
}

# each_node WORD: prints the word once for each node, followed by the node's number.
each_node() {
  local i
  for ((i = 1; i <= CLUSTER_NODES; ++i)); do echo "$1$i"; done
}

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Prints the first of several consecutive free ports: one for each node, and two more. The ports are below 32768, since
# Linux itself assigns ports from 32768 on.
free_ports() {
  local base offset taken count=$((2 + CLUSTER_NODES))
  for _ in {1..100}; do
    base=$((20000 + RANDOM % (12000 / count) * count)) taken=""
    for ((offset = 0; offset < count; ++offset)); do
      if port_answers $((base + offset)); then taken=yes; fi
    done
    [[ $taken ]] || { echo "$base"; return; }
  done
  return 1
}

# Prints a free UDP port that only root can open.
free_peer_port() {
  local port
  for _ in {1..100}; do
    port=$((300 + RANDOM % 300))
    grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04x $port) " /proc/net/udp || { echo "$port"; return; }
  done
  return 1
}

node() { echo "$CLUSTER_NAME$1"; }
has_hosts() { [[ $CLUSTER_HOSTS == yes ]]; }
address() { if has_hosts; then echo "127.0.0.$((10 + $1))"; else echo 127.0.0.1; fi; }

# The file of the simulated GPU. If each node is a host, each host has its own copy of the folder with this file;
# otherwise all nodes share one file.
gpu_folder() { echo "/dev/shm/sharedgpu-$CLUSTER_PORT${1:+-$1}"; }
gpu_state() { if has_hosts; then echo "$(gpu_folder)/gpu"; else gpu_folder; fi; }

# The environment of this cluster's users and daemons. All processes of a host share its simulated GPUs.
gpu_environment() {
  [[ $CLUSTER_SIMGPU ]] || return 0
  # The contexts on the small GPU are small, in the same proportion as on a real GPU.
  printf 'export LD_LIBRARY_PATH=%q SIMGPU_MEMORY=%q SIMGPU_DEVICES=%q SIMGPU_CONTEXT=4MiB SIMGPU_STATE=%q\n' \
    "$CLUSTER_SIMGPU" "$CLUSTER_GPU_MEMORY" "$CLUSTER_GPUS" "$(gpu_state)"
}

# Prints the plugins' folder in the prefix; prints nothing if packages have installed the plugins in Slurm's own folder.
own_plugins() { if [[ $CLUSTER_PREFIX && -d $CLUSTER_PREFIX/lib/slurm ]]; then echo "$CLUSTER_PREFIX/lib/slurm"; fi; }

configure() {
  if [[ -e $dir/settings ]]; then load_settings; else save_settings; fi
  mkdir -p "$dir"/{etc,run,log,ctld,spool,mysql,sharedgpu}
  chmod 755 "$dir" "$dir"/{etc,run}
  [[ -e $dir/etc/munge.key ]] || head -c 1024 /dev/urandom >"$dir/etc/munge.key"
  chmod 600 "$dir/etc/munge.key"
  write_slurm_conf >"$dir/etc/slurm.conf"
  write_slurmdbd_conf >"$dir/etc/slurmdbd.conf"
  chmod 600 "$dir/etc/slurmdbd.conf"
  write_cgroup_conf >"$dir/etc/cgroup.conf"
  echo "# no profiling" >"$dir/etc/acct_gather.conf"
  if [[ $CLUSTER_PREFIX ]]; then
    local own
    own=$(own_plugins)
    [[ -e $dir/etc/gres.conf ]] || : >"$dir/etc/gres.conf"
    [[ -e $dir/etc/plugstack.conf ]] ||
      echo "optional ${own:+$own/}spank_sharedgpu.so config=$dir/etc/sharedgpu.conf" >"$dir/etc/plugstack.conf"
    [[ -e $dir/etc/sharedgpu.conf ]] || write_sharedgpu_conf >"$dir/etc/sharedgpu.conf"
    if has_hosts; then make_hosts; fi
  else
    : >"$dir/etc/plugstack.conf"
  fi
  write_env >"$dir/env"
}

write_env() {
  printf 'export SLURM_CONF=%q\n' "$dir/etc/slurm.conf"
  if [[ $CLUSTER_PREFIX ]]; then
    printf 'export SHAREDGPU_SOCKET=%q\n' "$dir/run/sharedgpud.sock"
    printf 'export PATH=%q:$PATH\n' "$CLUSTER_PREFIX/bin"
  fi
  gpu_environment
}

write_sharedgpu_conf() {
  cat <<CONF
Socket=$dir/run/sharedgpud.sock
StateDir=$dir/sharedgpu
LogFile=$dir/log/sharedgpud
LogLevel=debug
PeerPort=0
CONF
}

# Creates the files that each host needs for itself. as-host mounts them at their places.
make_hosts() {
  local i
  for ((i = 1; i <= CLUSTER_NODES; ++i)); do
    mkdir -p "$dir/host$i" "$(gpu_folder "$i")"
    write_host_conf "$i" >"$dir/host$i/sharedgpu.conf"
  done
  mkdir -p "$(gpu_folder)"
  chmod 1777 "$(gpu_folder)"*
}

write_host_conf() {
  sed -E '/^(Socket|StateDir|LogFile|LogLevel|PeerPort)=/d' "$dir/etc/sharedgpu.conf"
  cat <<CONF
Socket=$dir/host$1/sharedgpud.sock
StateDir=$dir/host$1/sharedgpu
LogFile=$dir/log/sharedgpud-$1
LogLevel=debug
PeerAddress=$(address "$1")
PeerPort=$CLUSTER_PEER_PORT
MungeSocket=$dir/run/munge.sock
CONF
}

write_slurm_conf() {
  local host own plugins=/usr/lib/x86_64-linux-gnu/slurm-wlm
  own=$(own_plugins)
  host=$(hostname -s)
  [[ -d $plugins ]] || plugins=$(dirname "$(ldconfig -p | awk '/libslurm\.so/{print $NF; exit}')")/slurm-wlm
  cat <<CONF
ClusterName=$CLUSTER_NAME
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.sock
SlurmctldPort=$((CLUSTER_PORT))
StateSaveLocation=$dir/ctld
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld-self.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd-%n
SlurmctldDebug=verbose
SlurmdDebug=verbose
LogTimeFormat=iso8601_ms
PluginDir=$plugins${own:+:$own}
PlugStackConfig=$dir/etc/plugstack.conf
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((CLUSTER_PORT + 1))
AccountingStoragePass=$dir/run/munge.sock
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
DefMemPerCPU=4096
ReturnToService=2
MpiDefault=none
PropagateResourceLimits=NONE
KillWait=5
InactiveLimit=0
MinJobAge=600
CONF
  if [[ $CLUSTER_PREFIX ]]; then
    cat <<CONF
GresTypes=$CLUSTER_GRES_TYPES
AccountingStorageTRES=gres/sharedgpu,gres/sharedgpu_lease,gres/sharedgpu_swap
AcctGatherInterconnectType=acct_gather_interconnect/sharedgpu
AcctGatherNodeFreq=0
CONF
  fi
  # In slurm.conf, the nodes together have more processors and memory than this host. The host's real size does not
  # matter for the tests.
  local i gres
  for ((i = 1; i <= CLUSTER_NODES; ++i)); do
    gres=CLUSTER_GRES$i
    if has_hosts; then host=$(node "$i"); fi
    cat <<CONF
NodeName=$(node "$i") NodeHostname=$host NodeAddr=$(address "$i") Port=$((CLUSTER_PORT + 1 + i)) CPUs=$((8 * CLUSTER_GPUS)) RealMemory=$((65536 * CLUSTER_GPUS))${CLUSTER_PREFIX:+ Gres=${!gres}}
CONF
  done
  echo "PartitionName=main Nodes=ALL Default=YES State=UP"
  if [[ -e $dir/slurm.conf.extra ]]; then cat "$dir/slurm.conf.extra"; fi
}

write_slurmdbd_conf() {
  cat <<CONF
DbdHost=localhost
DbdPort=$((CLUSTER_PORT + 1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.sock
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
LogFile=$dir/log/slurmdbd
PidFile=$dir/run/slurmdbd-self.pid
CONF
}

write_cgroup_conf() {
  cat <<CONF
CgroupPlugin=cgroup/$(cgroup_version)
CgroupMountpoint=$cgroup_root
CgroupAutomount=no
ConstrainRAMSpace=yes
ConstrainDevices=$CLUSTER_CONSTRAIN_DEVICES
ConstrainCores=no
CONF
  if [[ $(cgroup_version) == v2 ]]; then echo "IgnoreSystemd=yes"; fi
}
