#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests upgrades from an earlier revision to this build, and downgrades, of all packages on a node where jobs share a
# GPU.
load helpers

# The first revision that has packages. SHAREDGPU_OLD_REVISION names another revision, such as the tag of the last
# release.
OLD_REVISION=${SHAREDGPU_OLD_REVISION:-6a58151dbe}

@test "upgrades from an earlier revision, and a downgrade to it, under four jobs that verify their memory lose nothing, and all records state the same lease times" {
  git -C "$SOURCES" cat-file -e "$OLD_REVISION^{commit}" 2>/dev/null ||
    skip "this clone lacks the revision $OLD_REVISION, from which the test upgrades: git fetch --unshallow"
  "$BATS_TEST_DIRNAME/of-revision" "$OLD_REVISION" "$BUILD/revisions/$OLD_REVISION"
  mkdir "$HOST/shared/old"
  cp "$BUILD/revisions/$OLD_REVISION"/*.deb "$HOST/shared/old/"
  "$SOURCES/scripts/install-for-cluster" "$BUILD" "$HOST/shared/cluster" "$HOST/unused"
  in_host "$apt install /shared/old/*.deb slurmctld slurmd slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core jq procps hostname python3"
  host "$SOURCES/tests/packages/under_jobs" "$SOURCES" /shared/cluster >"$HOST/output" 2>&1 || { tail -n 10 "$HOST"/shared/cluster/log/*; cat "$HOST/output"; return 1; }
  sed "s/^/# /" "$HOST/output" >&3
}
