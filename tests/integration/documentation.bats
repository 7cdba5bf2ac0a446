#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Outputs that the documentation shows are those of the programs. tests/cluster/options.bats has that of srun.
load helpers

@test "README shows what sharedgpu --help prints" {
  diff -B <("$SHAREDGPU" --help) <("$BATS_TEST_DIRNAME/../../scripts/documented" "$BATS_TEST_DIRNAME/../../README.md" '`sharedgpu --help`:')
}

@test "scripts/documented fails on a page without the output" {
  run -1 "$BATS_TEST_DIRNAME/../../scripts/documented" "$BATS_TEST_DIRNAME/../../README.md" 'no such text'
}
