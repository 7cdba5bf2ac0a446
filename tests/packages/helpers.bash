# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Gives each test a host of its own (see the script `root`), with the packages in /shared/1 and /shared/2.

bats_require_minimum_version 1.5.0

setup() {
  HOST=$(mktemp -d /tmp/sgpu-root.XXXXXX)
  mkdir -p "$HOST/shared"
  cp -r "$PACKAGES"/{1,2,driver} "$HOST/shared/"
  "$BATS_TEST_DIRNAME/root" up "$HOST" "${SHAREDGPU_PACKAGES_ROOT:-/}"
}

teardown() {
  "$BATS_TEST_DIRNAME/root" down "$HOST"
  rm -rf "$HOST"
}

host() { "$BATS_TEST_DIRNAME/root" run "$HOST" "$@"; }
in_host() { host bash -euo pipefail -c "$1"; }

apt='apt-get -qq -y --no-install-recommends --no-upgrade -o Dpkg::Use-Pty=0'
has() { [[ $output == *"$1"* ]] || { echo "lacks: $1"; echo "$output"; return 1; }; }
is_installed() { [[ $(host dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# stand_in PATH LINE...: makes a shell script of these lines in the host. The script replaces the program PATH.
stand_in() {
  local path=$1
  shift
  printf '%s\n' '#!/bin/sh' "$@" | host sh -c "mkdir -p \$(dirname $path) && cat >$path && chmod +x $path"
}

# The services that the packages' scripts start, stop and restart are listed in /shared/services.
service_manager() {
  host mkdir -p /run/systemd/system
  stand_in /usr/bin/systemctl 'echo "$*" >>/shared/services'
  stand_in /usr/bin/deb-systemd-invoke 'echo "$*" >>/shared/services'
}
services() { grep -v 'daemon-reload\|^--' "$HOST/shared/services"; rm -f "$HOST/shared/services"; }
