#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Host memory for evictions is allocated before it is needed, and freed afterwards.
load helpers

# host_is NAME MIB: succeeds if the interposer of a tenant has logged that it holds this much host memory now.
host_is() { [[ $(grep 'of host memory held' "$DIR/$1.err" | tail -n 1) == *" $2 MiB of host memory held" ]]; }

@test "host memory is allocated before the first eviction, and freed when memory suffices again" {
  start_arbiter Quantum=10m IdleRelease=10s  # the program may pause for long on a busy machine
  export SHAREDGPU_DEBUG=1
  tenant one hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses one
  run ! grep -q 'host memory held' "$DIR/one.err"
  tenant two hold --bytes 75% --of 256MiB --seconds 600
  # Each tenant allocates host memory for the memory that the GPU lacks for both tenants, and 64 MiB more for growth,
  # rounded up to whole slabs of its pool. In this test that is enough for all its evictable memory.
  until_true 60 host_is one 192
  until_true 60 json_is '[t["host_bytes"] >> 20 for t in s["tenants"]]' '[192, 192]'
  (($(gpu copied_out) == 0))

  kill -9 "${PIDS[two]}"
  until_true 60 json_is 'len(s["tenants"])' 1
  until_true 60 host_is one 0
}

@test "consecutive evictions hold no more host memory than they need" {
  start_arbiter Quantum=300ms
  tenant one hold --bytes 75% --of 256MiB --seconds 4 --verify
  tenant two hold --bytes 75% --of 256MiB --seconds 4 --verify
  local most=0 now
  while kill -0 "${PIDS[one]}" 2>/dev/null && kill -0 "${PIDS[two]}" 2>/dev/null; do
    now=$(json 'max([t["host_bytes"] for t in s["tenants"]] or [0])')
    ((now > most)) && most=$now
    sleep 0.1
  done
  all_succeed one two
  ((most > 0 && most <= (192 + 256) << 20))
}
