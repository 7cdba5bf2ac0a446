#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests the .rpm packages. rpm installs them with a new database, in which empty packages stand for the system and for
# Slurm. The folders are the folders of Rocky Linux.
load helpers

# provide NAME VERSION [CAPABILITY...]: installs an empty package.
provide() {
  local name=$1 version=$2 spec=$HOST/$1.spec
  shift 2
  printf '%s\n' "Name: $name" "Version: $version" "Release: 1" "Summary: stands for $name" "License: none" "BuildArch: noarch" \
    "AutoReqProv: no" "${@/#/Provides: }" "%description" "none" "%files" >"$spec"
  rpmbuild -bb --quiet --define "_topdir $HOST/rpmbuild" "$spec" >/dev/null 2>&1
  cp "$HOST/rpmbuild/RPMS/noarch/$name-$version-1.noarch.rpm" "$HOST/shared/$name-$version.rpm"
  host rpm --force-debian -U --oldpackage "/shared/$name-$version.rpm"
}
rpms() { in_host "rpm --force-debian $*"; }
# Prints the packages' dependencies on the system.
needs() { rpm -qp --requires "$HOST"/shared/*/sharedgpu-*.rpm | grep -v '^rpmlib\|^slurm \|^sharedgpu\|^config(' | sort -u; }

@test "the .rpm packages are installed, upgraded, downgraded and removed, or refuse it, as the .deb packages do" {
  # The same build, configured for the folder in which Rocky Linux has Slurm's plugins.
  cmake -S "$SOURCES" -B "$HOST/build" -G Ninja -DSHAREDGPU_SLURM_FOLDER=lib64/slurm >/dev/null
  for target in arbiter/sharedgpud arbiter/sharedgpu interposer/libsharedgpu.so spank/spank_sharedgpu.so gres/gres_sharedgpu.so \
    job_submit/job_submit_sharedgpu.so accounting/acct_gather_interconnect_sharedgpu.so comment/sharedgpu-comment exporter/sharedgpu-exporter; do
    cp "$BUILD/$target" "$HOST/build/$target"
  done
  for release in 1 2; do
    "$SOURCES/scripts/package" --build "$HOST/build" --no-build --release "$release" rpm | xargs mv -t "$HOST/shared/$release"
  done
  in_host "command -v rpm >/dev/null || $apt install rpm"
  host rm -f /usr/bin/deb-systemd-helper
  service_manager
  version=$(slurmctld -V | sed 's/.* //')
  mapfile -t needed < <(needs)
  provide system 1 "${needed[@]}"

  run rpms "-i /shared/1/*.rpm"
  [ "$status" -ne 0 ]
  has "slurm >= $version is needed by sharedgpu-slurm"
  provide slurm "${version%.*}.99"
  run rpms "-i /shared/1/*.rpm"
  has "slurm < ${version%.*}.$((${version##*.} + 1)) is needed by sharedgpu-slurm"
  [ "$status" -ne 0 ]
  provide slurm "$version"
  stand_in /usr/sbin/slurmd "echo 'slurm 24.11.5'" # this slurmd is not from the package
  run rpms "-i /shared/1/*.rpm"
  [ "$status" -ne 0 ]
  has "this host has Slurm 24.11.5, whose daemons would refuse the plugins"
  host rm /usr/sbin/slurmd
  rpms "-e \$(rpm -qa 'sharedgpu-*' | tr '\n' ' ')"

  rpms "-i /shared/1/*.rpm"
  in_host 'ls /usr/lib64/slurm/{gres,spank,job_submit}_sharedgpu.so /usr/lib64/slurm/acct_gather_interconnect_sharedgpu.so'
  in_host "rpm -V --nodeps \$(rpm -qa 'sharedgpu-*')"
  in_host "echo Quantum=3s >>/etc/sharedgpu/sharedgpu.conf; mkdir -p /var/lib/sharedgpu; echo x >/var/lib/sharedgpu/ledger"
  rm -f "$HOST/shared/services"
  rpms "-U /shared/2/*.rpm"
  services | grep -qx "try-restart sharedgpud.service"
  rpms "-U --oldpackage /shared/1/*.rpm"
  services | grep -qx "try-restart slurmd.service slurmctld.service"
  host grep -qx Quantum=3s /etc/sharedgpu/sharedgpu.conf

  in_host "echo AcctGatherInterconnectType=acct_gather_interconnect/sharedgpu >/etc/slurm/slurm.conf"
  run rpms "-e \$(rpm -qa 'sharedgpu-slurm*-accounting')"
  [ "$status" -ne 0 ]
  has "Without this package slurmctld and slurmd do not start."
  in_host 'ls /usr/lib64/slurm/acct_gather_interconnect_sharedgpu.so && rm /etc/slurm/slurm.conf'
  run rpms "-e \$(rpm -qa 'sharedgpu-*' | tr '\n' ' ')"
  [ "$status" -eq 0 ]
  has "The ledger of lease times stays in /var/lib/sharedgpu."
  services | grep -qx "stop sharedgpud.service"
  [ "$(host cat /var/lib/sharedgpu/ledger)" == x ]
  run in_host 'ls -d /usr/lib64/slurm/*sharedgpu* /usr/sbin/sharedgpud /usr/bin/sharedgpu /usr/lib/sharedgpu'
  [ -z "$(grep -v 'No such file' <<<"$output")" ]
}
