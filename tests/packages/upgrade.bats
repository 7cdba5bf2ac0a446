#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Upgrade and downgrade of all packages on a node where jobs share a GPU.
load helpers

@test "an upgrade and a downgrade under four jobs that verify their memory lose nothing, and sacct shows the ledger's times" {
  "$SOURCES/scripts/install-for-cluster" "$BUILD" "$HOST/shared/cluster" "$HOST/unused"
  in_host "$apt install /shared/1/*.deb slurmctld slurmd slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core jq procps hostname python3"
  host "$SOURCES/tests/packages/under_jobs" "$SOURCES" /shared/cluster >"$HOST/output" 2>&1 || { tail -n 10 "$HOST"/shared/cluster/log/*; cat "$HOST/output"; return 1; }
  sed "s/^/# /" "$HOST/output" >&3
}
