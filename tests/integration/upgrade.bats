# SPDX-License-Identifier: Apache-2.0
# Another build's arbiter takes over from this one under running jobs, and this one from the other. OTHER_ARBITER names
# that build's sharedgpud; scripts/check-upgrade builds one of an earlier revision.

load helpers

# take_over ARBITER: stops the arbiter and starts this one with its configuration.
take_over() {
  kill -TERM "$ARBITER"
  wait "$ARBITER" || true
  run_arbiter "$1"
}

leased() {
  "$SHAREDGPU" status --json | python3 -c 'import json, sys; print(round(1000 * sum(t["lease_seconds"] for t in json.load(sys.stdin)["tenants"])))'
}

@test "jobs go on taking turns while arbiters of two builds replace each other five times" {
  [[ -n ${OTHER_ARBITER-} ]] || skip "OTHER_ARBITER is not set"
  local next before=0 now
  start_arbiter
  tenant a hold --bytes 75% --of 256MiB --seconds 20 --seed 1 --verify
  tenant b hold --bytes 75% --of 256MiB --seconds 20 --seed 2 --verify
  for next in "$OTHER_ARBITER" "$BUILD/arbiter/sharedgpud" "$OTHER_ARBITER" "$BUILD/arbiter/sharedgpud" "$OTHER_ARBITER"; do
    sleep 3
    take_over "$next"
    now=$(leased)
    ((now > before))  # the account of lease time goes on
    before=$now
  done
  all_succeed a b
  [[ $(grep -ci damaged "$DIR/arbiter.log") == 0 ]]
}
