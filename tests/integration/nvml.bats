#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# NVML and CUDA report the same to a tenant. Similar systems had these bugs: nvidia-smi shows 17 TB (HAMi 1181), memory
# use differs inside and outside of the container (HAMi 1196), and process ids belong to other PID namespaces (HAMi-core
# 112).
load helpers

MIB=$((1 << 20))

# Only the tenants use NVML here; the arbiter queries the driver, which works with and without NVML.
with_nvml() { export LD_LIBRARY_PATH=$BUILD/tests/simgpu:$BUILD/tests/simgpu/nvml; }

rival() {
  tenant rival hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
}

# says NAME FIELD: prints a field of the program's output.
says() { awk -v field="$2" '$1 == field { print $2 }' "$DIR/$1.out"; }

@test "a tenant with a session sees cuMemGetInfo's numbers and itself, linked or through dlsym" {
  start_arbiter DeviceMemoryLimit=128MiB
  with_nvml
  local door
  for door in "" --dlsym; do
    tenant "own$door" nvml --bytes 32MiB $door
    succeeds "own$door"
    (($(says "own$door" total) == 128 * MIB))
    (($(says "own$door" used) == 32 * MIB))
    grep -qE "^pid [0-9]+ used $((32 * MIB))$" "$DIR/own$door.out"
  done
}

@test "two tenants do not see each other" {
  start_arbiter
  rival
  with_nvml
  tenant own nvml --bytes 32MiB
  succeeds own
  (($(grep -c ^pid "$DIR/own.out") == 1))
  (($(says own used) == 32 * MIB))
}

@test "a process without a session sees the memory that it could allocate" {
  start_arbiter DeviceMemoryLimit=128MiB
  tenant other hold --bytes 32MiB --seconds 600 --progress
  progresses other
  with_nvml
  local door
  for door in "" --dlsym; do
    tenant "look$door" nvml $door
    succeeds "look$door"
    (($(says "look$door" total) == 128 * MIB && $(says "look$door" used) == 0))
    run ! grep -q ^pid "$DIR/look$door.out"
  done
  # Queries by NVML create no tenant.
  json_is 'len([t for t in s["tenants"] if t["footprint_bytes"]])' 1
  json_is 'sum(len(t["pids"]) for t in s["tenants"])' 1
}

@test "each of two GPUs reports its own numbers" {
  export SIMGPU_DEVICES=2
  start_arbiter DeviceMemoryLimit=128MiB
  with_nvml
  tenant first nvml --bytes 32MiB --gpu 0
  succeeds first
  (($(says first used) == 32 * MIB))
  tenant second nvml --bytes 32MiB --gpu 1
  succeeds second
  (($(says second total) == 128 * MIB && $(says second used) == 0))
}

@test "a process sees the other processes of its tenant, as nvidia-smi in a job does" {
  start_arbiter
  rival
  with_nvml
  # shellcheck disable=SC2016
  "$SHAREDGPU" run -- bash -c '"$0/hold" --bytes 32MiB --seconds 600 --progress >"$1/inner.out" & holder=$!
    until [[ -s $1/inner.out ]]; do sleep 0.05; done
    "$0/nvml" >"$1/look.out"; status=$?
    echo "holder $holder" >>"$1/look.out"
    kill $holder; exit $status' "$PROGRAMS" "$DIR" 2>"$DIR/run.err"
  (($(says look used) == 32 * MIB))
  grep -qx "pid $(says look holder) used $((32 * MIB))" "$DIR/look.out"
  (($(grep -c ^pid "$DIR/look.out") == 1))
}

@test "pynvml, which uses ctypes and dlsym, sees the same" {
  start_arbiter DeviceMemoryLimit=128MiB
  with_nvml
  LD_PRELOAD=$PRELOAD python3 - <<'END'
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]
device, memory, count = ctypes.c_void_p(), Memory(), ctypes.c_uint(0)
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
assert memory.total == 128 << 20 and memory.used == 0, (memory.total, memory.used)
assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None) == 0
assert count.value == 0
END
}

@test "without an arbiter, or for a GPU unknown to it, NVML's own answer is returned" {
  with_nvml
  LD_PRELOAD=$PRELOAD "$PROGRAMS/nvml" >"$DIR/alone.out" 2>"$DIR/alone.err"
  (($(says alone total) == 256 * MIB))
  [[ ! -s $DIR/alone.err ]]
  start_arbiter DeviceMemoryLimit=128MiB
  SIMGPU_STATE=$DIR/another tenant unknown nvml
  succeeds unknown
  (($(says unknown total) == 256 * MIB))
}

@test "NVML calls do not wait for a killed arbiter" {
  start_arbiter DeviceMemoryLimit=128MiB
  kill -9 "$ARBITER"
  wait "$ARBITER" 2>/dev/null || true
  with_nvml
  LD_PRELOAD=$PRELOAD "$PROGRAMS/nvml" >"$DIR/alone.out"
  (($(says alone total) == 256 * MIB))
}
