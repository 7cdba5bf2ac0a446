#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The packages on a host whose first process is systemd: it starts, watches, reloads and restarts the arbiter.
load helpers

setup() {
  HOST=$(mktemp -d /tmp/sgpu-root.XXXXXX)
  mkdir -p "$HOST/shared"
  [[ -x /lib/systemd/systemd ]] || skip "systemd is not installed"
  cp -r "$PACKAGES"/{1,2} "$HOST/shared/"
  ROOT_INIT=systemd "$BATS_TEST_DIRNAME/root" up "$HOST" /
  until_true 30 host systemctl is-active basic.target || skip "systemd does not start in a container on this host"
}

until_true() { local i; for ((i = 0; i < 10 * $1; ++i)); do "${@:2}" >/dev/null 2>&1 && return; sleep 0.1; done; echo "in vain: ${*:2}"; return 1; }
# show PROPERTY [UNIT]
show() { host systemctl show "${2:-sharedgpud}" -P "$1"; }
is() { [[ $(show "$1") == "$2" ]]; }
serves() { is ActiveState active && host sharedgpu status; }
is_another() { serves && ! is MainPID "$1"; }

@test "systemd starts the arbiter at its installation, restarts it as often as it fails or hangs, and at an upgrade" {
  in_host "$apt install /shared/1/sharedgpu-{common,node}*.deb"
  until_true 10 serves
  [[ $(show StatusText) == *" tenants" ]]
  [ "$(show NRestarts)" = 0 ]

  in_host "echo Quantum=3s >>/etc/sharedgpu/sharedgpu.conf; systemctl reload sharedgpud"
  [[ $(host sharedgpu status --json) == *'"quantum_seconds": 3.0'* ]]
  in_host "echo Quantumm=3s >>/etc/sharedgpu/sharedgpu.conf"
  run host systemctl reload sharedgpud
  [ "$status" -ne 0 ]
  is ActiveState active

  # If the arbiter cannot start, systemd tries again and again until the cause is removed.
  host systemctl kill -s KILL --kill-whom=main sharedgpud
  until_true 30 eval '(($(show NRestarts) > 6))'
  host sed -i /Quantumm/d /etc/sharedgpu/sharedgpu.conf
  until_true 10 serves

  old=$(show MainPID)
  host systemctl kill -s STOP --kill-whom=main sharedgpud
  until_true 30 is_another "$old"
  old=$(show MainPID)
  in_host "dpkg -i /shared/2/sharedgpu-{common,node}*.deb"
  until_true 10 is_another "$old"
  run host journalctl -u sharedgpud -p warning -o cat
  has "unknown key 'Quantumm'"
}

@test "the service is stopped at the removal of its package, starts with the next installation, and stays disabled if it was" {
  in_host "$apt install /shared/1/sharedgpu-{common,node}*.deb"
  until_true 10 serves
  in_host "dpkg -r sharedgpu-node"
  is ActiveState inactive
  in_host "dpkg -i /shared/1/sharedgpu-node*.deb"
  until_true 10 serves
  [ "$(host systemctl is-enabled sharedgpud)" = enabled ]
  host systemctl disable --now sharedgpud
  in_host "dpkg -i /shared/2/sharedgpu-node*.deb"
  is ActiveState inactive
  [ "$(host systemctl is-enabled sharedgpud)" = disabled ]
  in_host "dpkg -P sharedgpu-node"
  run host find /etc/systemd /var/lib/systemd -name 'sharedgpud*'
  [ -z "$output" ]
}

@test "a prefix's unit is enabled as the documentation says" {
  DESTDIR=$HOST/shared cmake --install "$BUILD" --prefix /opt/sharedgpu >/dev/null
  host ln -s /shared/opt/sharedgpu /opt/sharedgpu
  "$SOURCES/scripts/documented" "$SOURCES/docs/install.md" "keeps it running, and stores its log" >"$HOST/shared/commands"
  [ "$(wc -l <"$HOST/shared/commands")" -eq 3 ]
  host bash -euo pipefail /shared/commands
  until_true 10 eval 'is ActiveState active && host /opt/sharedgpu/bin/sharedgpu status'
}

@test "the exporter's services run with the few rights that their units leave them, and are restarted at an upgrade" {
  compgen -G "$PACKAGES/1/sharedgpu-exporter*.deb" || skip "the build has no exporter"
  in_host "$apt install /shared/1/sharedgpu-{common,node,exporter}*.deb"
  [ "$(show ActiveState sharedgpu-exporter)" = inactive ]
  host systemctl enable --now sharedgpu-exporter sharedgpu-exporter-textfile
  metrics() { in_host 'exec 3<>/dev/tcp/127.0.0.1/9835; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3'; }
  shows() { metrics | tr -d '\r' | grep '^sharedgpu_up.* 1$'; }
  until_true 20 shows || { metrics; host systemctl status sharedgpu-exporter; return 1; }
  until_true 20 host grep '^sharedgpu_up.* 1$' /run/sharedgpu-exporter/sharedgpu.prom
  old=$(show MainPID sharedgpu-exporter)
  [ "$(host stat -c %u "/proc/$old")" != 0 ]
  in_host "dpkg -i /shared/2/sharedgpu-{common,node,exporter}*.deb"
  [ "$(show MainPID sharedgpu-exporter)" != "$old" ]
  until_true 20 shows
}
