#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Made from packaging/scripts. dpkg or rpm runs this script. dpkg passes a word as the first argument, and rpm passes a
# number.
set -eu
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/opt/slurm/sbin:/opt/slurm/bin # package managers leave these folders out of
                                                                         # PATH

# say LINE...
say() { printf '@PACKAGE@: %s\n' "$@" >&2; }

# refuse LINE...: ends the script with an error, so that dpkg and rpm change nothing. The administrator can override
# this.
refuse() {
  say "$@"
  if [ "${SHAREDGPU_FORCE-}" = yes ]; then say "SHAREDGPU_FORCE=yes: done nevertheless"; return 0; fi
  say "SHAREDGPU_FORCE=yes in the environment of the package manager overrides this."
  exit 1
}

# Prints the version of the installed Slurm, such as 22.05.8, or nothing if Slurm is not installed.
slurm_version() {
  for program in slurmd slurmctld sinfo; do
    if command -v "$program" >/dev/null; then
      "$program" -V 2>/dev/null | sed -n 's/^slurm[^ ]* \([0-9]*\.[0-9]*\.[0-9]*\).*/\1/p'
      return
    fi
  done
}

# Prints the versions of Slurm's packages. During an upgrade by dpkg, Slurm's programs can fail to start, since some
# packages have the old version and some have the new version.
slurm_package_versions() {
  if command -v dpkg-query >/dev/null; then
    dpkg-query -W -f '${db:Status-Status} ${Version}\n' slurmctld slurmd slurm-client slurm-wlm-basic-plugins 2>/dev/null |
      sed -nE '/^(not-installed|config-files) /d; s/^[^ ]* ([0-9]+:)?([0-9]+\.[0-9]+\.[0-9]+).*/\2/p'
  fi
}

# Prints the versions of Slurm on this host that are not the version for which this package is made.
other_slurm() { { slurm_version; slurm_package_versions; } | sort -u | grep -vxF "@SLURM_VERSION@" || true; }

check_slurm() {
  installed=$(slurm_version)
  if [ -z "$installed" ] || [ "$installed" = "@SLURM_VERSION@" ]; then return 0; fi
  refuse "This package is for Slurm @SLURM_VERSION@, and this host has Slurm $installed, whose daemons would refuse the plugins." \
    "Install the package for Slurm $installed; scripts/package builds it with the headers of that Slurm."
}

# configured PATTERN: prints the matching lines of Slurm's configuration: from the files of this host, and from the
# running controller if it answers.
configured() {
  for folder in ${SLURM_CONF:+"${SLURM_CONF%/*}"} /etc/slurm /etc/slurm-llnl /usr/local/etc /run/slurm/conf \
    /var/spool/slurmd/conf-cache /var/spool/slurm/conf-cache /var/lib/slurm/slurmd/conf-cache; do
    for file in "$folder"/*.conf "$folder"/*.conf.d/*; do
      if [ -f "$file" ]; then grep -iHnE "^[[:space:]]*($1)" "$file" || true; fi
    done
  done
  if command -v scontrol >/dev/null; then
    timeout 5 scontrol show config 2>/dev/null | sed -nE 's/ +/ /g; s/^/scontrol show config: /p' | grep -iE "config: ($1)" || true
  fi
}

# True if apt has called packaging/before-packages before it changed anything, so that the removal is already allowed.
apt_has_asked() {
  [ "${DPKG_FRONTEND_LOCKED-}" ] && [ -x /usr/lib/sharedgpu/before-packages ] && [ -e /etc/apt/apt.conf.d/50sharedgpu ]
}

# keep_if_configured PATTERN CONSEQUENCE: refuses the removal while Slurm's configuration has lines that match PATTERN.
# The removal goes on if Slurm has another release than these plugins, or is being upgraded to another release: Slurm
# then refuses these plugins in any case.
keep_if_configured() {
  lines=$(configured "$1")
  other=$(other_slurm)
  if [ "$lines" ] && [ "$other" ]; then
    say "Slurm $other starts only with the package for its own version, since this configuration names sharedgpu:" "$lines"
    return 0
  fi
  if [ -z "$lines" ]; then return 0; fi
  refuse "$2 This configuration names it:" "$lines" \
    "Remove sharedgpu from these lines, restart slurmctld and all slurmds, and remove the package then."
}

has_systemd() { [ -d /run/systemd/system ]; }

# Prints the pids of `sharedgpu supervise`, which keeps the arbiter running if systemd does not.
supervisors() {
  for process in /proc/[0-9]*; do
    program=$(readlink "$process/exe" 2>/dev/null) || continue
    if [ "${program% (deleted)}" = /usr/bin/sharedgpu ] && [ "$process/root" -ef / ] &&
      tr '\0' '\n' <"$process/cmdline" 2>/dev/null | sed -n 2p | grep -qx supervise; then
      echo "${process#/proc/}"
    fi
  done
}
