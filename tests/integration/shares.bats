#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests Policy=elastic: tenants get their parts of the GPU's time, even while memory suffices for all.
load helpers

lease() { json "$(printf '[t["lease_seconds"] for t in s["tenants"] if abs(t["share_request"] - %s) < 1e-9][0]' "$1")"; }
tenants_are() { json_is 'len(s["tenants"])' "$1"; }
leased() { json_is "sum(t['lease_seconds'] for t in s['tenants']) > $1" True; }

# three_times_as_much BEFORE: succeeds if, since the small tenant started, the large tenant has had about three times
# the lease time of the small tenant. A tenant that starts gets some GPU time in advance, and repays it later. So the
# function fails until the small tenant has had 3 s of lease time. BEFORE is the lease time of the large tenant when the
# small tenant started.
three_times_as_much() {
  python3 -c "large, small = $(lease 0.75) - $1, $(lease 0.25); assert small > 3 and 2.2 < large / small < 4, (large, small)"
}

@test "a tenant with three fourths of the time has three times as much as one with one fourth" {
  start_arbiter Policy=elastic Quantum=auto
  # The tenants compute on the GPU only, since sharedgpu does not share the CPUs of a busy host.
  SHARE=75 tenant large hold --bytes 10% --of 256MiB --changes 1 --kernel-ms 20 --seconds 600 --progress
  progresses large
  local before
  before=$(lease 0.75)
  SHARE=25 tenant small hold --bytes 10% --of 256MiB --changes 1 --kernel-ms 20 --seconds 600 --progress
  progresses small
  until_true 120 three_times_as_much "$before"
  json_is 'sum(t["evicted_bytes"] for t in s["tenants"])' 0
  json_is 'sum(t["lease"] for t in s["tenants"]) <= 1' True
  kill "${PIDS[large]}"
  until_true 20 tenants_are 1
  progresses small
}

@test "a limit holds for a tenant that is alone; without shares no tenant is gated; the site bounds requests" {
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
  grep -q 'asks for a share of 61%, but gets only MaxRequest' "$DIR/arbiter.log"
}

gave_back() { (($(grep -c 'turn [0-9]* yielded' "$DIR/$1.err") > $2)); }

@test "a tenant yields its turn if its next kernel would outlast the turn, and still gets its share" {
  start_arbiter Policy=elastic Quantum=auto
  SHAREDGPU_DEBUG=1 SHARE=75 tenant large hold --bytes 10% --of 256MiB --kernel-ms 40 --seconds 600 --progress
  progresses large
  local before
  before=$(lease 0.75)
  run ! gave_back large 0  # a tenant does not yield its turn while no tenant waits
  SHAREDGPU_DEBUG=1 SHARE=25 tenant small hold --bytes 10% --of 256MiB --kernel-ms 2 --seconds 600 --progress
  progresses small
  until_true 120 three_times_as_much "$before"
  until_true 60 gave_back large 5
  progresses large
}
