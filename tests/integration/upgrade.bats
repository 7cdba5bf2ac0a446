# SPDX-License-Identifier: Apache-2.0
# While jobs run, the arbiter of another build replaces this build's arbiter, and then this build's arbiter replaces the
# other. The arbiter of each build serves the libraries of both builds. OTHER_BUILD names the other build's folder;
# scripts/check-upgrade builds an earlier revision.

load helpers

# take_over ARBITER: stops the running arbiter, and starts ARBITER with the same configuration.
take_over() {
  kill -TERM "$ARBITER"
  wait "$ARBITER" || true
  run_arbiter "$1"
}

leased() {
  "$SHAREDGPU" status --json | python3 -c 'import json, sys; print(round(1000 * sum(t["lease_seconds"] for t in json.load(sys.stdin)["tenants"])))'
}

@test "jobs go on taking turns while arbiters of two builds replace each other five times" {
  [[ -n ${OTHER_BUILD-} ]] || skip "OTHER_BUILD is not set"
  local next before=0 now other=$OTHER_BUILD/arbiter/sharedgpud
  start_arbiter
  tenant a hold --bytes 75% --of 256MiB --seconds 20 --seed 1 --verify
  tenant b hold --bytes 75% --of 256MiB --seconds 20 --seed 2 --verify
  for next in "$other" "$BUILD/arbiter/sharedgpud" "$other" "$BUILD/arbiter/sharedgpud" "$other"; do
    sleep 3
    take_over "$next"
    now=$(leased)
    ((now > before))  # lease time continues to grow
    before=$now
  done
  all_succeed a b
  [[ $(grep -ci damaged "$DIR/arbiter.log") == 0 ]]
}

# mixed ARBITER: tenants with the libraries of both builds take turns under this arbiter. The arbiter refuses an
# allocation that exceeds the host memory of a tenant's units, and the tenant continues.
mixed() {
  local other=$OTHER_BUILD/arbiter/sharedgpu
  start_arbiter SwapPerUnit=200MiB
  take_over "$1"
  tenant new hold --bytes 75% --of 256MiB --seconds 4 --seed 1 --verify
  SHAREDGPU=$other tenant old hold --bytes 75% --of 256MiB --seconds 4 --seed 2 --verify
  all_succeed new old
  tenant new ram --refused 220MiB --bytes 64MiB
  SHAREDGPU=$other tenant old ram --refused 220MiB --bytes 64MiB
  all_succeed new old
}

@test "this build's arbiter serves the libraries of both builds" {
  [[ -n ${OTHER_BUILD-} ]] || skip "OTHER_BUILD is not set"
  mixed "$BUILD/arbiter/sharedgpud"
}

@test "the other build's arbiter serves the libraries of both builds" {
  [[ -n ${OTHER_BUILD-} ]] || skip "OTHER_BUILD is not set"
  mixed "$OTHER_BUILD/arbiter/sharedgpud"
}
