#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Policy=elastic: tenants have their parts of the GPU's time, though memory suffices for all.
load helpers

lease() { json "$(printf '[t["lease_seconds"] for t in s["tenants"] if abs(t["share_request"] - %s) < 1e-9][0]' "$1")"; }
tenants_are() { json_is 'len(s["tenants"])' "$1"; }
leased() { json_is "sum(t['lease_seconds'] for t in s['tenants']) > $1" True; }

@test "a tenant with three fourths of the time has far more than one with one fourth" {
  start_arbiter Policy=elastic Quantum=auto
  # Their time passes on the GPU: that of a busy host's CPU is not what is shared.
  SHARE=75 tenant large hold --bytes 10% --of 256MiB --kernel-ms 20 --seconds 600 --progress
  SHARE=25 tenant small hold --bytes 10% --of 256MiB --kernel-ms 20 --seconds 600 --progress
  progresses large
  progresses small
  local large small
  large=$(lease 0.75)
  small=$(lease 0.25)
  until_true 60 leased 8
  python3 -c "r = ($(lease 0.75) - $large) / ($(lease 0.25) - $small); assert 1.5 < r < 6, r"
  json_is 'sum(t["evicted_bytes"] for t in s["tenants"])' 0
  json_is 'sum(t["lease"] for t in s["tenants"]) <= 1' True
  kill "${PIDS[large]}"
  until_true 20 tenants_are 1
  progresses small
}

@test "a limit holds for one that is alone; without shares nobody is gated; the site bounds requests" {
  start_arbiter Policy=elastic Quantum=auto MaxRequest=60%
  SHARE=20:50 tenant half hold --bytes 10% --of 256MiB --kernel-ms 20 --seconds 600 --progress
  progresses half
  local before after
  before=$(json '(s["tenants"][0]["lease_seconds"], __import__("time").time())')
  until_true 60 leased 4
  after=$(json '(s["tenants"][0]["lease_seconds"], __import__("time").time())')
  python3 -c "(a, b), (c, d) = $before, $after; r = (c - a) / (d - b); assert 0.1 < r < 0.6, r"
  kill "${PIDS[half]}"
  until_true 20 tenants_are 0
  tenant one hold --bytes 10% --of 256MiB --seconds 600 --progress
  tenant two hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses one
  progresses two
  json_is '[t["lease"] for t in s["tenants"]]' '[True, True]'
  SHARE=61 tenant greedy hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses greedy
  json_is '[t["share_request"] for t in s["tenants"]]' '[0.125, 0.125, 0.6]'
  grep -q 'asks for a share of 61%, and has MaxRequest' "$DIR/arbiter.log"
}
