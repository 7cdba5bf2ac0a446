# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The control groups that Slurm needs and leaves behind, for both versions of cgroups.

readonly cgroup_root=/sys/fs/cgroup

# Prints the version of cgroups that Slurm uses on this host: "v1" or "v2".
cgroup_version() { if [[ -e $cgroup_root/cgroup.controllers ]]; then echo v2; else echo v1; fi; }

# With cgroup v2 and no systemd, Slurm needs a cgroup system.slice with enabled controllers.
prepare_cgroups() {
  [[ $(cgroup_version) == v2 ]] || return 0
  mkdir -p "$cgroup_root/system.slice"
  local group
  for group in "$cgroup_root" "$cgroup_root/system.slice"; do
    # Enables one controller at a time: if the Linux kernel lacks one of them, a single write for all controllers would
    # enable none.
    for controller in cpuset cpu memory pids io; do
      echo "+$controller" >"$group/cgroup.subtree_control" 2>/dev/null || true
    done
  done
}

# Prints the top folders of one node's control groups. Their names contain the node's name, since Debian builds Slurm
# for several slurmds per host.
cgroups_of_node() {
  local node=$1 folder
  for folder in "$cgroup_root"/*/"slurm_$node" "$cgroup_root"/system.slice/"${node}_slurmstepd.scope"; do
    if [[ -d $folder ]]; then echo "$folder"; fi
  done
}

processes_in_cgroups_of_node() {
  local folder
  for folder in $(cgroups_of_node "$1"); do find "$folder" -name cgroup.procs -exec cat {} + 2>/dev/null || true; done | sort -nu
}

remove_cgroups_of_node() {
  local folder
  for folder in $(cgroups_of_node "$1"); do
    find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
}
