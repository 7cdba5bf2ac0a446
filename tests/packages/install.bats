#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The .deb packages on a host: installing, upgrading, removing, and the cases that they refuse.
load helpers

# Prints the names of files without their folders: the folders of a prefix differ from those of packages.
names() { sed 's/.*\///; s/\.gz$//' | sort -u; }

@test "every file of the installed tree is in exactly one package" {
  cmake --install "$BUILD" --prefix "$HOST/prefix" >/dev/null
  diff <(find "$HOST/prefix" -type f | names) \
    <(for each in "$PACKAGES"/1/*.deb; do dpkg-deb --fsys-tarfile "$each" | tar -t | grep -v '/$'; done |
      grep -v '/share/doc/\|/bash-completion/\|/apt.conf.d/\|/before-packages$' | names)
  for each in "$PACKAGES"/1/*.deb; do dpkg-deb --fsys-tarfile "$each" | tar -t | grep -v '/$'; done | sort | uniq -d >"$HOST/twice"
  [ ! -s "$HOST/twice" ]
}

@test "the packages of one release of Slurm name it, and depend on it" {
  for each in "$PACKAGES"/1/sharedgpu-slurm*.deb; do
    version=$(slurmctld -V | sed 's/.* //')
    [[ $each == *"slurm${version%.*}-"*"+slurm${version}_"* ]]
    [[ $(dpkg-deb -f "$each" Pre-Depends) == *"slurm-wlm-basic-plugins (>= $version), slurm-wlm-basic-plugins (<< ${version%.*}.$((${version##*.} + 1))~)"* ]]
  done
}

@test "an administrator's settings stay, the service is restarted at an upgrade, and the ledger outlives a purge" {
  service_manager
  in_host "$apt install /shared/1/*.deb"
  services | grep -qx "start sharedgpud.service"
  in_host "echo Quantum=3s >>/etc/sharedgpu/sharedgpu.conf; mkdir -p /var/lib/sharedgpu; echo x >/var/lib/sharedgpu/ledger"
  in_host "dpkg -i /shared/2/*.deb"
  [ "$(services | sort)" == "$(printf '%s\n' "try-restart sharedgpud.service" "try-restart sharedgpu-exporter.service sharedgpu-exporter-textfile.service" "try-restart slurmd.service slurmctld.service"{,} | sort)" ]
  in_host "dpkg -i /shared/1/*.deb"
  services
  host grep -qx Quantum=3s /etc/sharedgpu/sharedgpu.conf
  run in_host "dpkg -P \$(for each in /shared/1/*.deb; do dpkg-deb -f \$each Package; done)"
  [ "$status" -eq 0 ]
  has "The ledger of lease times stays in /var/lib/sharedgpu."
  services | grep -qx "stop sharedgpud.service"
  [ "$(host cat /var/lib/sharedgpu/ledger)" == x ]
  run host find /etc /usr /run -name '*sharedgpu*'
  echo "$output"
  [ -z "$output" ]
}

@test "completion works without Slurm; plugins for another (patch) release of Slurm are refused before they are unpacked" {
  in_host "$apt install /shared/1/sharedgpu-common*.deb slurmd libslurm-dev"
  # The shell completes the words that the command's help lists.
  complete() { in_host "source /usr/share/bash-completion/completions/sharedgpu; COMP_WORDS=($1) COMP_CWORD=$2; _sharedgpu sharedgpu; echo \"\${COMPREPLY[*]}\""; }
  [ "$(complete "sharedgpu un" 1)" == undrain ]
  [[ $(complete "sharedgpu ''" 1) == *" report "* ]]
  [[ $(complete "sharedgpu report --" 2) == *" --since "* ]]

  for version in 22.05.9 24.11.5; do
    stand_in /usr/local/sbin/slurmd "echo 'slurm-wlm $version'"
    for package in plugins accounting; do
      run in_host "dpkg -i /shared/1/sharedgpu-slurm*-$package*.deb"
      [ "$status" -ne 0 ]
      has "this host has Slurm $version, whose daemons would refuse the plugins"
      has "Install the package for Slurm $version"
    done
  done
  run host sh -c 'ls /usr/lib/*/slurm-wlm/*sharedgpu*'
  [ "$status" -ne 0 ]
  run in_host "SHAREDGPU_FORCE=yes dpkg -i /shared/1/sharedgpu-slurm*.deb"
  has "SHAREDGPU_FORCE=yes: done nevertheless"
  [ "$status" -eq 0 ]
}

@test "a package that a daemon of Slurm needs cannot be removed before Slurm's configuration no longer names its plugin" {
  in_host "$apt install /shared/1/*.deb slurmd"
  accounting=$(host sh -c "dpkg-query -W -f '\${Package}' 'sharedgpu-slurm[0-9]*-accounting'")
  plugins=${accounting%accounting}plugins
  in_host "printf '%s\n' 'AccountingStorageTRES=gres/sharedgpu_lease' 'acctGatherInterconnectType = acct_gather_interconnect/sysfs,acct_gather_interconnect/sharedgpu' >>/etc/slurm/slurm.conf"
  run in_host "dpkg -r $accounting"
  [ "$status" -ne 0 ]
  has "Without this package slurmctld and slurmd do not start. This configuration names it:"
  has "/etc/slurm/slurm.conf:2:acctGather"
  is_installed "$accounting"
  in_host "echo '#AcctGatherInterconnectType=acct_gather_interconnect/sharedgpu' >/etc/slurm/slurm.conf; dpkg -r $accounting"

  # The packages' scripts check slurm.conf, and also the configuration of the running daemons.
  stand_in /usr/local/bin/scontrol 'echo "JobSubmitPlugins        = sharedgpu"'
  run in_host "dpkg -r sharedgpu-controller sharedgpu-login $plugins"
  [ "$status" -ne 0 ]
  has "Without this package slurmctld does not start."
  has "scontrol show config: JobSubmitPlugins = sharedgpu"
  host rm /usr/local/bin/scontrol
  in_host "echo 'required spank_sharedgpu.so' >>/etc/slurm/plugstack.conf"
  run in_host "dpkg -r $plugins"
  [ "$status" -ne 0 ]
  has "Without this package no job starts."
  in_host "sed -i /required/d /etc/slurm/plugstack.conf; echo GresTypes=gpu,sharedgpu >/etc/slurm/slurm.conf"
  run in_host "dpkg -r $plugins"
  [ "$status" -eq 0 ]
  has "Jobs with units of sharedgpu now use the GPUs of this host without sharing:"
}

# slurm_of VERSION: makes packages in /shared/slurm-VERSION that depend on each other as Debian's packages of Slurm do.
# Their programs only print their version.
slurm_of() {
  local name folder version=$1
  mkdir -p "$HOST/shared/slurm-$version"
  for name in slurm-wlm-basic-plugins slurmctld slurmd slurm-client; do
    folder=$HOST/$name-$version
    mkdir -p "$folder/DEBIAN" "$folder/usr/sbin"
    printf '%s\n' "Package: $name" "Version: $version-4" "Architecture: amd64" "Maintainer: none" "Description: stands for $name" >"$folder/DEBIAN/control"
    if [[ $name != slurm-wlm-basic-plugins ]]; then
      echo "Depends: slurm-wlm-basic-plugins (= $version-4)" >>"$folder/DEBIAN/control"
      printf '%s\n' '#!/bin/sh' "echo 'slurm-wlm $version'" >"$folder/usr/sbin/${name/slurm-client/sinfo}"
      chmod +x "$folder"/usr/sbin/*
    fi
    dpkg-deb -b "$folder" "$HOST/shared/slurm-$version/$name.deb" >/dev/null
  done
}

# ours_for VERSION: copies this build's packages for Slurm to /shared/ours-VERSION, and renames them to packages for
# that version of Slurm.
ours_for() {
  local deb from to=$1 folder=$HOST/ours
  mkdir -p "$HOST/shared/ours-$to"
  for deb in "$PACKAGES"/1/sharedgpu-slurm*.deb; do
    from=${deb##*+slurm} from=${from%%_*}
    rm -rf "$folder"
    dpkg-deb -R "$deb" "$folder"
    sed -i "s/${from//./\\.}/$to/g; s/slurm${from%.*}-/slurm${to%.*}-/g; s/<< ${from%.*}\.[0-9]*~/<< ${to%.*}.$((${to##*.} + 1))~/; s/^Depends:.*/Depends: libc6/" "$folder"/DEBIAN/*
    mv "$folder/usr/share/doc/sharedgpu-slurm${from%.*}-"* "$folder/usr/share/doc/$(sed -n 's/^Package: //p' "$folder/DEBIAN/control")"
    (cd "$folder" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb -b "$folder" "$HOST/shared/ours-$to/" >/dev/null
  done
}

@test "Slurm and the packages for it are upgraded to another release in one step, while slurm.conf names the plugins" {
  service_manager
  slurm_of 20.11.7
  slurm_of 24.11.5
  ours_for 20.11.7
  ours_for 24.11.5
  host sh -c 'dpkg -r --force-depends $(dpkg-query -W -f "\${Package} \${db:Status-Status}\n" "*slurm*" | sed -n "s/ installed$//p") >/dev/null 2>&1 || true'

  # Packages for another release are refused before they are unpacked.
  in_host "dpkg -i /shared/slurm-20.11.7/*.deb"
  run in_host "dpkg -i /shared/ours-24.11.5/*.deb"
  [ "$status" -ne 0 ]
  has "pre-dependency problem"
  run host sh -c 'ls /usr/lib/*/slurm-wlm/*sharedgpu*'
  [ "$status" -ne 0 ]

  in_host "$apt install /shared/1/sharedgpu-{common,controller,login}*.deb /shared/ours-20.11.7/*.deb"
  in_host "printf '%s\n' JobSubmitPlugins=sharedgpu GresTypes=gpu,sharedgpu AcctGatherInterconnectType=acct_gather_interconnect/sharedgpu >/etc/slurm/slurm.conf"
  # Without packages for the new release, apt changes nothing.
  for action in "remove sharedgpu-slurm20.11-accounting" "install /shared/slurm-24.11.5/*.deb"; do
    run in_host "${apt/--no-upgrade/} $action"
    [ "$status" -ne 0 ]
    has "sharedgpu-slurm20.11-accounting: Without this package slurmctld and slurmd do not start."
    [ -z "$(host dpkg --audit)" ]
    [ "$(host slurmd -V)" == "slurm-wlm 20.11.7" ]
  done
  in_host "echo Mine=1 >>/etc/slurm/plugstack.conf.d/sharedgpu.conf"
  in_host "${apt/--no-upgrade/} install /shared/slurm-24.11.5/*.deb /shared/ours-24.11.5/*.deb"
  is_installed sharedgpu-slurm24.11-plugins
  is_installed sharedgpu-slurm24.11-accounting
  is_installed sharedgpu-controller
  [ -z "$(host dpkg --audit)" ]
  # Purging the rest of an old package does not remove the settings of the new package.
  in_host "dpkg -P sharedgpu-slurm20.11-plugins"
  host grep -qx Mine=1 /etc/slurm/plugstack.conf.d/sharedgpu.conf
  host sh -c 'ls /usr/lib/*/slurm-wlm/spank_sharedgpu.so'
}

# Runs the quick start of docs/install.md line by line. The simulated GPU replaces a driver.
@test "ten commands lead from packages to two jobs that share a GPU, and to their lease times" {
  host sh -c 'cp -P /shared/driver/* "$(dirname "$(ldconfig -p | sed -n "s/.*libc.so.6 .*=> //p" | head -n 1)")" && ldconfig'
  cp "$BUILD/tests/programs/hold" "$HOST/shared/train"
  mapfile -t commands < <("$SOURCES/scripts/documented" "$SOURCES/docs/install.md" "ten commands")
  ((${#commands[@]} == 10))
  in_host 'cp /shared/train /usr/local/bin/'
  for command in "${commands[@]:0:9}"; do
    echo "\$ $command"
    in_host "cd /shared/1 && $command" >"$HOST/output" 2>&1 || { cat "$HOST/output"; return 1; }
  done
  host sh -c 'for i in $(seq 600); do [ "$(grep -l verified /shared/1/slurm-*.out | wc -l)" = 2 ] && exit; sleep 0.1; done; squeue; tail -n 30 /var/log/slurm/*.log; exit 1'
  [ "$(grep -l 'every byte verified' "$HOST"/shared/1/slurm-*.out | wc -l)" -eq 2 ]
  grep -q 'Simulated GPU' "$HOST/output" || { cat "$HOST/output"; return 1; }
  run in_host "${commands[9]}"
  has "job 1"
  has "job 2"
  in_host "sharedgpu doctor config arbiter permissions slurm plugins slurm.conf units gres.conf plugstack munge"
  # Each job had its first lease before the other job's last lease ended.
  in_host "sharedgpu ledger --format json" >"$HOST/ledger"
  jq -e 'length == 2 and all(.lease_seconds > 0) and .[0].first < .[1].last and .[1].first < .[0].last' "$HOST/ledger" || { cat "$HOST/ledger"; return 1; }
  # Jobs use the node, so the arbiter must keep running.
  in_host "cd /shared/1 && sbatch --gres=sharedgpu:1 --wrap 'train --bytes 10% --seconds 60'"
  host sh -c 'for i in $(seq 300); do sharedgpu status --json | tr -d " \n" | grep -q "\"pids\":\[[0-9]" && exit; sleep 0.1; done; exit 1'
  run in_host "dpkg -r sharedgpu-node"
  [ "$status" -ne 0 ]
  has "1 jobs or programs share this node's GPUs now"
  in_host "scancel 3; for i in \$(seq 300); do sharedgpu status --json | tr -d ' \n' | grep -q '\"pids\":\[[0-9]' || break; sleep 0.1; done; dpkg -r sharedgpu-node"
  run host pidof sharedgpud sharedgpu
  [ -z "$output" ]
}
