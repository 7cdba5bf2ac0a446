#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The documentation shows the real outputs of the programs. tests/cluster/options.bats checks the output of srun.
load helpers

@test "README shows what sharedgpu --help prints" {
  diff -B <("$SHAREDGPU" --help) <("$BATS_TEST_DIRNAME/../../scripts/documented" "$BATS_TEST_DIRNAME/../../README.md" '`sharedgpu --help`:')
}

@test "scripts/documented fails on a page without the output" {
  run -1 "$BATS_TEST_DIRNAME/../../scripts/documented" "$BATS_TEST_DIRNAME/../../README.md" 'no such text'
}
