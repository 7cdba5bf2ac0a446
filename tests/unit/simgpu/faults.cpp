// SPDX-License-Identifier: Apache-2.0
// Injected faults, and processes that share one device. Each case that needs other settings is a hidden case,
// which runs in a separate process.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {

TEST_CASE("The second allocation finds no memory", "[.oom-at-2]") {
  Gpu gpu;
  CUdeviceptr one = 0, two = 0, three = 0;
  CHECK(cuMemAlloc(&one, kMiB) == CUDA_SUCCESS);
  CHECK(cuMemAlloc(&two, kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&three, kMiB) == CUDA_SUCCESS);
}
TEST_CASE("SIMGPU_OOM_AT makes one allocation fail", "[simulated]") {
  CHECK(passes_alone("[.oom-at-2]", {{"SIMGPU_OOM_AT", "2"}}));
}

TEST_CASE("Named calls fail", "[.named-faults]") {
  Gpu gpu;
  Mapped first(kGranule);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, kGranule, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemCreate(&handle, kGranule, &properties, 0) == CUDA_SUCCESS);
  CUdeviceptr memory = gpu.words(1);
  CHECK(cuMemFree(memory) == CUDA_ERROR_UNKNOWN);
  CHECK(cuMemFree(memory) == CUDA_ERROR_UNKNOWN);
}
TEST_CASE("SIMGPU_FAIL makes named calls fail", "[simulated]") {
  CHECK(passes_alone(
      "[.named-faults]",
      {{"SIMGPU_FAIL", "cuMemCreate:2:CUDA_ERROR_OUT_OF_MEMORY,cuMemFree:1+:CUDA_ERROR_UNKNOWN"}}));
}

TEST_CASE("A launch fails on the device", "[.launch-fails]") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  REQUIRE(gpu.add(memory, 1, 1, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(word_at(memory) == 1);
  REQUIRE(gpu.add(memory, 1, 1, nullptr) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuMemFree(memory) == CUDA_ERROR_LAUNCH_FAILED);
}
TEST_CASE("SIMGPU_LAUNCH_FAIL_AT makes one launch fail", "[simulated]") {
  CHECK(passes_alone("[.launch-fails]", {{"SIMGPU_LAUNCH_FAIL_AT", "4"}}));
}

enum class Target { different, same, mapped_twice };

// Returns the result of two streams that add to different words, to the same words, or to the same words at
// two addresses.
CUresult added_at_once(Target target) {
  Gpu gpu;
  const std::size_t count = kGranule / 4;
  const Mapped one(kGranule);
  Mapped two(kGranule);
  if (target == Target::mapped_twice) {
    two.empty();
    REQUIRE(cuMemMap(two.address, two.size, 0, one.handle, 0) == CUDA_SUCCESS);
    REQUIRE(two.open() == CUDA_SUCCESS);
  }
  const CUdeviceptr memory[] = {one.address, target == Target::same ? one.address : two.address};
  const CUstream streams[] = {gpu.stream(), gpu.stream()};
  const CUfunction add = gpu.kernel("add_value");
  const std::uint32_t value = 1;
  // After a conflict, further launches fail.
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2; ++i) {
      const void* parameters[] = {&memory[i], &count, &value};
      cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, streams[i], const_cast<void**>(parameters), nullptr);
    }
  }
  return cuCtxSynchronize();
}
TEST_CASE("Two streams write the same memory", "[.conflict]") {
  CHECK(added_at_once(Target::same) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
TEST_CASE("Two streams write the same memory at two addresses", "[.alias-conflict]") {
  CHECK(added_at_once(Target::mapped_twice) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
TEST_CASE("Two streams do not meet", "[.no-conflict]") {
  CHECK(added_at_once(Target::different) == CUDA_SUCCESS);
}
TEST_CASE("SIMGPU_FORBID_CONFLICTS makes work fail that uses what other work writes", "[simulated]") {
  const std::vector<std::pair<std::string, std::string>> forbidden = {{"SIMGPU_FORBID_CONFLICTS", "1"},
                                                                      {"SIMGPU_BANDWIDTH", "1"}};
  CHECK(passes_alone("[.conflict]", forbidden));
  CHECK(passes_alone("[.alias-conflict]", forbidden));
  CHECK(passes_alone("[.no-conflict]", forbidden));
}

// Returns the result of work that waits in its stream while its memory is unmapped and mapped again.
CUresult unmapped_in_queue(bool in_graph) {
  Gpu gpu;
  const Mapped first(kGranule);
  Mapped memory(kGranule);
  const CUstream stream = gpu.stream();
  CUgraphExec exec = nullptr;
  if (in_graph) {
    CUgraph graph = nullptr;
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(gpu.add(first.address, 16, 1, stream) == CUDA_SUCCESS);
    REQUIRE(gpu.add(memory.address, 16, 1, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  }
  {
    Barrier barrier(stream);
    REQUIRE((in_graph ? cuGraphLaunch(exec, stream) : gpu.add(memory.address, 16, 1, stream)) ==
            CUDA_SUCCESS);
    memory.empty();
    REQUIRE(memory.fill() == CUDA_SUCCESS);
  }
  return cuStreamSynchronize(stream);
}
TEST_CASE("The memory of a queued kernel is unmapped", "[.queued-kernel]") {
  CHECK(unmapped_in_queue(false) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
TEST_CASE("The memory of a queued graph is unmapped", "[.queued-graph]") {
  CHECK(unmapped_in_queue(true) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
TEST_CASE("The memory of queued work goes and comes back", "[.queued-forgiven]") {
  CHECK(unmapped_in_queue(false) == CUDA_SUCCESS);
}
TEST_CASE("SIMGPU_FORBID_CONFLICTS makes queued work fail whose memory is unmapped", "[simulated]") {
  CHECK(passes_alone("[.queued-kernel]", {{"SIMGPU_FORBID_CONFLICTS", "1"}}));
  CHECK(passes_alone("[.queued-graph]", {{"SIMGPU_FORBID_CONFLICTS", "1"}}));
  CHECK(passes_alone("[.queued-forgiven]", {{"SIMGPU_FORBID_CONFLICTS", "0"}}));
}

TEST_CASE("A table leads to memory that is gone", "[.hidden]") {
  Gpu gpu;
  const Mapped memory(kGranule);
  const CUdeviceptr table = gpu.words(2);
  const std::uint64_t one = 1;
  REQUIRE(cuMemcpyHtoD(table, &memory.address, sizeof memory.address) == CUDA_SUCCESS);
  memory.empty();
  REQUIRE(gpu.launch("pattern_hidden", nullptr, {&table, &one, &one, &one}) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}
TEST_CASE("A kernel faults at memory that only a table of pointers names") {
  CHECK(passes_alone("[.hidden]", {}));
}

TEST_CASE("The device is lost", "[.lost]") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  REQUIRE(gpu.spin(1, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CUfunction empty = gpu.kernel("empty");
  int file = open(std::getenv("SIMGPU_LOST_FILE"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(file >= 0);
  close(file);
  CHECK(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == CUDA_ERROR_UNKNOWN);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_UNKNOWN);
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 8) == CUDA_ERROR_UNKNOWN);
  unlink(std::getenv("SIMGPU_LOST_FILE"));
  CHECK(cuMemAlloc(&memory, 8) == CUDA_ERROR_UNKNOWN);  // the device stays lost
}
TEST_CASE("Touching SIMGPU_LOST_FILE loses the device", "[simulated]") {
  CHECK(passes_alone("[.lost]", {{"SIMGPU_LOST_FILE", state_path() + "-lost"}}));
}

TEST_CASE("The device is lost after some calls", "[.lost-after]") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  CUresult result = cuCtxCreate_v2(&context, 0, 0);
  for (int i = 0; i < 50 && result == CUDA_SUCCESS; ++i) result = cuCtxSynchronize();
  CHECK(result == CUDA_ERROR_UNKNOWN);
}
TEST_CASE("SIMGPU_LOST_AFTER loses the device", "[simulated]") {
  CHECK(passes_alone("[.lost-after]", {{"SIMGPU_LOST_AFTER", "20"}}));
}

TEST_CASE("Settings are bad", "[.bad-settings]") { CHECK(cuInit(0) == CUDA_ERROR_INVALID_VALUE); }
TEST_CASE("Bad settings are errors of cuInit", "[simulated]") {
  CHECK(passes_alone("[.bad-settings]", {{"SIMGPU_MEMORY", "lots"}}));
  CHECK(passes_alone("[.bad-settings]", {{"SIMGPU_FAIL", "cuMemAlloc:1:CUDA_ERROR_WHAT"}}));
  CHECK(passes_alone("[.bad-settings]", {{"SIMGPU_PCIE", "fast"}}));
}

TEST_CASE("A child of fork after cuInit", "[.fork]") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  pid_t child = fork();
  if (child == 0) {
    CUdeviceptr more = 0;
    bool refused =
        cuMemAlloc(&more, 8) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(word_at(memory) == 0);
}
TEST_CASE("A child of fork cannot use the parent's driver, nor harm it") {
  CHECK(passes_alone("[.fork]", {}));
}

TEST_CASE("Takes most of the memory, tells so, and hangs", "[.hog]") {
  Gpu gpu;
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAlloc(&memory, 192 * kMiB) == CUDA_SUCCESS);
  REQUIRE(gpu.spin(3600 * 1000, nullptr) == CUDA_SUCCESS);
  REQUIRE(write(4, "x", 1) == 1);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("Processes share the device's memory and engines, and a killed one gives both back",
          "[simulated]") {
  Gpu gpu;
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ready[1], 4);
  std::string program = "/proc/self/exe", test = "[.hog]";
  char* arguments[] = {program.data(), test.data(), nullptr};
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, program.c_str(), &files, nullptr, arguments, environ) == 0);
  posix_spawn_file_actions_destroy(&files);
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 128 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(kill(child, SIGKILL) == 0);
  // The process has exited and nobody has reaped it yet, but its memory is free.
  siginfo_t info;
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(cuMemAlloc(&memory, 128 * kMiB) == CUDA_SUCCESS);
  CHECK(gpu.launch("empty", nullptr, {}) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);  // returns at once, not after an hour
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace sharedgpu::simgpu_test
