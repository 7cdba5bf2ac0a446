// SPDX-License-Identifier: Apache-2.0
// Prints NVML's answers about one GPU's memory and processes. Checks that these answers agree with CUDA and
// with each other.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "interposer/driver/nvml.h"
#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;
using namespace sharedgpu::nvml;

extern "C" {
Result nvmlInit_v2();
Result nvmlShutdown();
Result nvmlDeviceGetHandleByIndex_v2(unsigned int, Device*);
Result nvmlDeviceGetMemoryInfo(Device, Memory*);
Result nvmlDeviceGetMemoryInfo_v2(Device, MemoryV2*);
Result nvmlDeviceGetComputeRunningProcesses(Device, unsigned int*, ProcessV1*);
Result nvmlDeviceGetComputeRunningProcesses_v2(Device, unsigned int*, ProcessV2*);
Result nvmlDeviceGetComputeRunningProcesses_v3(Device, unsigned int*, ProcessV2*);
Result nvmlDeviceGetGraphicsRunningProcesses_v3(Device, unsigned int*, ProcessV2*);
Result nvmlDeviceGetRunningProcessDetailList(Device, ProcessDetailList*);
}

namespace {

constexpr Result kUninitialized = 1;
constexpr Result kInvalidArgument = 2;

void expect(Result result, Result wanted, const char* call) {
  if (result != wanted)
    fail(std::string(call) + " returns " + std::to_string(result) + ", not " + std::to_string(wanted));
}

// NVML's functions: those that the program is linked with, or those that dlsym finds.
template <class Function>
Function* by(void* library, Function* linked, const char* name) {
  if (library == nullptr) return linked;
  auto* found = reinterpret_cast<Function*>(dlsym(library, name));
  if (found == nullptr) fail(std::string(name) + " was not found");
  return found;
}

template <class Process>
std::vector<Process> list(Device device, Result (*call)(Device, unsigned int*, Process*)) {
  unsigned int count = 0;
  Result result = call(device, &count, nullptr);
  if (count == 0) {
    expect(result, kSuccess, "a list of nobody");
    return {};
  }
  expect(result, kInsufficientSize, "a list without room");
  std::vector<Process> found(count);
  count -= 1;
  expect(call(device, &count, found.data()), kInsufficientSize, "a list with too little room");
  expect(call(device, &count, found.data()), kSuccess, "a list");
  if (count != found.size()) fail("the number of processes changes");
  expect(call(device, nullptr, found.data()), kInvalidArgument, "a list without a count");
  expect(call(device, &count, nullptr), kInvalidArgument, "a list without a place");
  return found;
}

void check_details(Result (*call)(Device, ProcessDetailList*), Device device,
                   const std::vector<ProcessV2>& all) {
  constexpr const char* kCall = "nvmlDeviceGetRunningProcessDetailList";
  std::vector<ProcessDetail> found(all.size() + 1);
  ProcessDetailList wanted = {
      .version = kProcessDetailListV1, .mode = kComputeMode, .count = 0, .places = nullptr};
  expect(call(device, &wanted), all.empty() ? kSuccess : kInsufficientSize, kCall);
  if (wanted.count != all.size()) fail("the list with details is of another length");
  wanted.count = static_cast<unsigned>(found.size());
  wanted.places = found.data();
  expect(call(device, &wanted), kSuccess, kCall);
  if (wanted.count != all.size()) fail("the list with details is of another length");
  for (std::size_t i = 0; i < all.size(); ++i)
    if (found[i].pid != all[i].pid || found[i].used != all[i].used) fail("the list with details disagrees");
  wanted.mode = kComputeMode + 1;
  wanted.count = static_cast<unsigned>(found.size());
  expect(call(device, &wanted), kSuccess, kCall);
  if (wanted.count != 0) fail("a compute process is listed as another");
  wanted.version = 1;
  expect(call(device, &wanted), kInvalidArgument, kCall);
  expect(call(device, nullptr), kInvalidArgument, kCall);
}

void look(void* library, unsigned gpu, std::size_t bytes) {
  auto* memory_of = by(library, nvmlDeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo");
  auto* memory_of_v2 = by(library, nvmlDeviceGetMemoryInfo_v2, "nvmlDeviceGetMemoryInfo_v2");
  auto* list_v1 = by(library, nvmlDeviceGetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses");
  auto* list_v2 =
      by(library, nvmlDeviceGetComputeRunningProcesses_v2, "nvmlDeviceGetComputeRunningProcesses_v2");
  auto* list_v3 =
      by(library, nvmlDeviceGetComputeRunningProcesses_v3, "nvmlDeviceGetComputeRunningProcesses_v3");
  auto* graphics =
      by(library, nvmlDeviceGetGraphicsRunningProcesses_v3, "nvmlDeviceGetGraphicsRunningProcesses_v3");

  Device device = nullptr;
  Memory memory = {};
  expect(memory_of(device, &memory), kUninitialized, "nvmlDeviceGetMemoryInfo before nvmlInit");
  expect(nvmlInit_v2(), kSuccess, "nvmlInit");
  expect(nvmlDeviceGetHandleByIndex_v2(gpu, &device), kSuccess, "nvmlDeviceGetHandleByIndex");
  expect(memory_of(nullptr, &memory), kInvalidArgument, "nvmlDeviceGetMemoryInfo of no GPU");
  expect(memory_of(device, nullptr), kInvalidArgument, "nvmlDeviceGetMemoryInfo without a place");
  expect(memory_of(device, &memory), kSuccess, "nvmlDeviceGetMemoryInfo");
  MemoryV2 newer = {};
  if (memory_of_v2(device, &newer) == kSuccess) fail("a struct without a version is taken");
  if (newer.total != 0) fail("a struct without a version is written");
  newer.version = kMemoryV2;
  expect(memory_of_v2(device, &newer), kSuccess, "nvmlDeviceGetMemoryInfo_v2");
  if (newer.version != kMemoryV2) fail("the version is overwritten");
  if (memory.total != memory.free + memory.used) fail("free and used are not the total");
  if (newer.total != newer.free + newer.used + newer.reserved)
    fail("free, used and reserved are not the total");
  if (newer.total != memory.total || newer.free != memory.free) fail("the two versions disagree");
  std::printf("total %llu\nfree %llu\nused %llu\n", memory.total, memory.free, memory.used);

  auto all = list(device, list_v3);
  auto second = list(device, list_v2);
  auto first = list(device, list_v1);
  if (first.size() != all.size() || second.size() != all.size()) fail("the versions list other processes");
  bool listed = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (first[i].pid != all[i].pid || first[i].used != all[i].used || second[i].used != all[i].used)
      fail("the versions disagree about a process");
    if (all[i].gpu_instance != kNoInstance || all[i].compute_instance != kNoInstance)
      fail("a process has an instance");
    listed |= all[i].pid == static_cast<unsigned>(getpid());
    std::printf("pid %u used %llu\n", all[i].pid, all[i].used);
  }
  // Memory is allocated on the first device that CUDA sees.
  bytes = gpu == 0 ? bytes : 0;
  if (listed != (bytes != 0)) fail("this process is listed if and only if it does not use CUDA");
  list(device, graphics);
  check_details(by(library, nvmlDeviceGetRunningProcessDetailList, "nvmlDeviceGetRunningProcessDetailList"),
                device, all);

  if (bytes != 0) {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cuMemGetInfo(&free, &total), "cuMemGetInfo");
    if (total != memory.total || free != memory.free) fail("cuMemGetInfo and NVML tell different numbers");
  }
  expect(nvmlShutdown(), kSuccess, "nvmlShutdown");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Prints what NVML says of one GPU, and checks it against CUDA and against itself.");
  std::string bytes;
  bool lookup = false;
  unsigned gpu = 0;
  app.add_option("--bytes", bytes,
                 "device memory to allocate before: a size; nothing: do not use CUDA at all");
  app.add_option("--gpu", gpu, "the number of the GPU, among all of the host");
  app.add_flag("--dlsym", lookup, "look the functions up instead of being linked with them");
  app.parse(argc, argv);
  std::size_t size = 0;
  if (!bytes.empty()) {
    start();
    CUdeviceptr memory = 0;
    size = parse_size(bytes, 0);
    check(cuMemAlloc(&memory, size), "cuMemAlloc");
  }
  void* library = lookup ? dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (lookup && library == nullptr) fail(dlerror());
  look(library, gpu, size);
  return 0;
}
