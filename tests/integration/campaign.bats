#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Runs the campaigns chaos, load and flood of tests/campaign for a few seconds: the campaigns must run and find no
# fault. Times are not checked.
bats_require_minimum_version 1.5.0

setup() {
  [[ $(id -u) == 0 ]] || skip "needs root, for namespaces of its own"
  CAMPAIGN=$BATS_TEST_DIRNAME/../campaign
}

# rows_are_clean LEAST: succeeds if there are at least LEAST rows, and each row has three fields, of which the last says
# that nothing was found.
rows_are_clean() {
  ((${#lines[@]} >= $1))
  local row
  for row in "${lines[@]}"; do
    [[ $row == *$'\t'*$'\t'nothing ]] || { printf '%s\n' "${lines[@]}"; return 1; }
  done
}

@test "chaos: tenants and arbiters that are killed" {
  run -0 --separate-stderr "$CAMPAIGN/chaos" --kills 8 --seed 1
  rows_are_clean 10
  [[ ${lines[0]} == "kills of tenants"$'\t8\t'* && ${lines[1]} == "kills of the arbiter"$'\t8\t'* ]]
}

@test "load: a thousand sessions" {
  run -0 --separate-stderr "$CAMPAIGN/load" --minutes 0.02 --no-bounds
  rows_are_clean 8
}

@test "flood: each kind, beside an honest user" {
  run -0 --separate-stderr "$CAMPAIGN/flood" --seconds 0.5 --rounds 1 --no-bounds
  rows_are_clean 60
}
