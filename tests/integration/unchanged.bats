#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests that memory which has not changed since its last eviction is not copied again.
load helpers

# left NAME WHAT: finds the log line of an eviction of NAME that copied nothing and in which at least 100 MiB were WHAT.
left() { grep -E "evicted .*in MiB: 0 copied, .*\b[1-9][0-9]{2} $2" "$DIR/$1.err"; }

@test "memory that a program only reads is evicted without copies, and restored complete" {
  start_arbiter Quantum=200ms
  SHAREDGPU_DEBUG=1 tenant reader hold --bytes 75% --of 256MiB --seconds 15 --changes 1 --verify
  tenant rival hold --bytes 75% --of 256MiB --seconds 600 --progress
  until_true 60 left reader unchanged
  succeeds reader
}

@test "memory filled with one repeated word is never copied" {
  start_arbiter Quantum=200ms
  SHAREDGPU_DEBUG=1 tenant one hold --bytes 4MiB --uniform 180MiB --seconds 8 --changes 1 --verify
  tenant rival hold --bytes 75% --of 256MiB --seconds 600 --progress
  until_true 60 left one uniform
  succeeds one
}

@test "a restore whose memset fails is tried again" {
  start_arbiter Quantum=200ms
  SIMGPU_FAIL=cuMemsetD32Async:1:CUDA_ERROR_UNKNOWN,cuMemsetD32Async:3:CUDA_ERROR_OUT_OF_MEMORY SIMGPU_VERBOSE=1 \
    tenant one hold --bytes 4MiB --uniform 180MiB --seconds 4 --changes 1 --verify
  tenant rival hold --bytes 75% --of 256MiB --seconds 600 --progress
  succeeds one
  grep -q cuMemsetD32Async "$DIR/one.err"
}

@test "with a driver that compiles no kernel all memory is copied" {
  start_arbiter Quantum=200ms
  SIMGPU_FAIL=cuModuleLoadData:2+:CUDA_ERROR_NO_BINARY_FOR_GPU SHAREDGPU_DEBUG=1 \
    tenant reader hold --bytes 75% --of 256MiB --seconds 4 --changes 1 --verify
  tenant rival hold --bytes 75% --of 256MiB --seconds 600 --progress
  succeeds reader
  grep -qE 'evicted .*in MiB: [1-9][0-9]* copied' "$DIR/reader.err"
  ! grep -qE 'evicted .*in MiB: .* [1-9][0-9]* (unchanged|uniform)' "$DIR/reader.err"
}
