#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests tenants that together need more memory than the GPU has, and tenants that fit together.
load helpers

@test "two tenants of 75% each run at once and verify every byte" {
  start_arbiter
  tenant one hold --bytes 75% --of 256MiB --seconds 3 --seed 1 --verify
  tenant two hold --bytes 75% --of 256MiB --seconds 3 --seed 2 --verify
  all_succeed one two
  (($(gpu peak) <= 256 << 20))
  (($(gpu copied_in) > 0))
  used_is 0
}

@test "without sharedgpu the same pair fails with out of memory" {
  plain one hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses one
  plain two hold --bytes 75% --of 256MiB --verify
  finish two
  ((status == 2))
  grep -q 'CUDA_ERROR_OUT_OF_MEMORY: out of memory' "$DIR/two.err"
}

@test "three tenants in many blocks each take turns and verify" {
  start_arbiter
  for seed in 100 200 300; do
    tenant "$seed" hold --bytes 60% --of 256MiB --blocks 40 --iterations 12 --seed "$seed" --verify
  done
  all_succeed 100 200 300
  (($(gpu peak) <= 256 << 20))
}

@test "a pair that fits together is never gated and nothing moves" {
  start_arbiter
  tenant one hold --bytes 40% --of 256MiB --seconds 600 --progress
  tenant two hold --bytes 40% --of 256MiB --seconds 600 --progress
  progresses one
  progresses two
  json_is '[g["contended"] for g in s["gpus"]]' '[False]'
  json_is '[t["lease"] for t in s["tenants"]]' '[True, True]'
  json_is '[g["handoff_seconds"] for g in s["gpus"]]' '[0.0]'
  (($(gpu copied_in) == 0 && $(gpu copied_out) == 0))
}

@test "a tenant that leaves the GPU idle gives its turn to the other" {
  start_arbiter Quantum=10m IdleRelease=50ms
  tenant idle hold --bytes 75% --of 256MiB --iterations 4 --gap-ms 1000 --verify
  tenant busy hold --bytes 75% --of 256MiB --iterations 20 --verify
  all_succeed idle busy
}

@test "a tenant with work on a per-thread stream does not count as idle" {
  start_arbiter Quantum=60s
  SHAREDGPU_DEBUG=1 tenant busy hog --bytes 75% --of 256MiB --piece-ms 700 --pieces 4 --stream own --progress
  progresses busy
  tenant rival hold --bytes 75% --of 256MiB --iterations 2 --verify
  all_succeed busy rival
  ! grep drained "$DIR/busy.err"
}

@test "DeviceMemoryLimit lowers what tenants see and what is resident at once" {
  start_arbiter DeviceMemoryLimit=128MiB
  tenant one hold --bytes 75% --seconds 2 --verify
  tenant two hold --bytes 75% --seconds 2 --verify
  all_succeed one two
  grep -q 'over 100663296 bytes' "$DIR/one.out" # 75% of 128 MiB
  (($(gpu peak) <= (128 + 2 * 4) << 20))
}

@test "an allocation that can never fit fails at once" {
  start_arbiter
  tenant greedy hold --bytes 300MiB
  finish greedy
  ((status == 2))
  grep -q 'CUDA_ERROR_OUT_OF_MEMORY: out of memory' "$DIR/greedy.err"
}

@test "the lease times of a pair in the ledger agree with the wall clock" {
  start_arbiter
  local begin=$EPOCHREALTIME
  tenant one hold --bytes 75% --of 256MiB --seconds 600 --progress
  tenant two hold --bytes 75% --of 256MiB --seconds 600 --progress
  progresses one
  progresses two
  local leases
  leases=$(json 'sum(t["lease_seconds"] for t in s["tenants"])')
  python3 -c "import sys; sys.exit(not 0 < $leases <= $EPOCHREALTIME - $begin)"
  json_is 'sum(t["lease"] for t in s["tenants"]) <= 1' True
}

@test "contexts of new tenants find room on a GPU that others fill" {
  start_arbiter
  tenant one hold --bytes 150MiB --seconds 600 --progress
  tenant two hold --bytes 90MiB --seconds 600 --progress
  progresses one
  progresses two
  for small in 1 2 3 4; do
    tenant "$small" hold --bytes 1MiB --seconds 600 --progress
    progresses "$small"
  done
  : >"$DIR/one.out"
  : >"$DIR/two.out"
  progresses one
  progresses two
}
