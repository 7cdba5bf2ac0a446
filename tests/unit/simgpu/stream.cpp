// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {

TEST_CASE("A stream keeps the order of its work") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  CUstream stream = gpu.stream();
  for (std::uint32_t i = 1; i <= 100; ++i) {
    REQUIRE(cuMemsetD32Async(memory, i, 1, stream) == CUDA_SUCCESS);
    REQUIRE(gpu.add(memory, 1, 1000, stream) == CUDA_SUCCESS);
  }
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 1100);
}

TEST_CASE("Streams are asynchronous and independent of each other") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(2);
  CUstream one = gpu.stream(), two = gpu.stream();
  Barrier barrier(one);
  REQUIRE(gpu.add(memory, 1, 1, one) == CUDA_SUCCESS);
  REQUIRE(gpu.add(memory + 4, 1, 2, two) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(two) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(two) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
  barrier.open();
  REQUIRE(cuStreamSynchronize(one) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 1);
  CHECK(word_at(memory + 4) == 2);
}

TEST_CASE("The legacy stream waits for blocking streams, and blocking streams wait for the legacy stream") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  CUstream blocking = gpu.stream(CU_STREAM_DEFAULT);
  CUstream other = gpu.stream(CU_STREAM_DEFAULT);
  {
    Barrier barrier(blocking);
    REQUIRE(cuMemsetD32Async(memory, 1, 1, blocking) == CUDA_SUCCESS);
    REQUIRE(gpu.add(memory, 1, 10, nullptr) == CUDA_SUCCESS);
    REQUIRE(gpu.add(memory, 1, 100, other) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY);
  }
  REQUIRE(cuStreamSynchronize(other) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 111);
}

TEST_CASE("A non-blocking stream does not wait for the legacy stream") {
  Gpu gpu;
  CUstream free_stream = gpu.stream();
  CUdeviceptr memory = gpu.words(1);
  Barrier barrier(nullptr);
  REQUIRE(gpu.add(memory, 1, 1, free_stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(free_stream) == CUDA_SUCCESS);
}

TEST_CASE("Each thread has a default stream of its own") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  Barrier barrier(CU_STREAM_PER_THREAD);
  CHECK(cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
  std::thread([&] {
    REQUIRE(cuCtxSetCurrent(gpu.context) == CUDA_SUCCESS);
    REQUIRE(gpu.add(memory, 1, 3, CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  }).join();
  barrier.open();
  CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 3);
}

TEST_CASE("Events mark and order work across streams") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  CUstream one = gpu.stream(), two = gpu.stream();
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_SUCCESS);  // the event was never recorded
  {
    Barrier barrier(one);
    REQUIRE(cuMemsetD32Async(memory, 4, 1, one) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(event, one) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(two, event, 0) == CUDA_SUCCESS);
    REQUIRE(gpu.add(memory, 1, 30, two) == CUDA_SUCCESS);
    CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(two) == CUDA_ERROR_NOT_READY);
  }
  REQUIRE(cuEventSynchronize(event) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(two) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 34);
}

TEST_CASE("Waiting for an event alone keeps a stream busy") {
  Gpu gpu;
  CUstream one = gpu.stream(), two = gpu.stream();
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  {
    Barrier barrier(one);
    REQUIRE(cuEventRecord(event, one) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(two, event, 0) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(two) == CUDA_ERROR_NOT_READY);
  }
  CHECK(cuStreamSynchronize(two) == CUDA_SUCCESS);
}

TEST_CASE("A stream waits for a word that another stream writes") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  CUstream one = gpu.stream(), two = gpu.stream();
  void* host = nullptr;
  CUdeviceptr word = 0;
  REQUIRE(cuMemHostAlloc(&host, 8, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS);
  *static_cast<std::uint64_t*>(host) = 0;
  REQUIRE(cuMemHostGetDevicePointer(&word, host, 0) == CUDA_SUCCESS);
  CHECK(cuStreamWaitValue32(one, word + 2, 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuStreamWaitValue32(one, word, 2, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  REQUIRE(gpu.add(memory, 1, 3, one) == CUDA_SUCCESS);
  REQUIRE(cuStreamWriteValue32(two, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(two) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
  REQUIRE(cuStreamWriteValue32(two, word, 3, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(one) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 3);
  // The CPU may write the word, and the word may be in device memory.
  REQUIRE(cuStreamWaitValue32(one, word, 8, CU_STREAM_WAIT_VALUE_AND) == CUDA_SUCCESS);
  REQUIRE(cuStreamWriteValue32(one, memory, 7, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitValue32(two, memory, 7, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(two) == CUDA_ERROR_NOT_READY);
  std::atomic_ref(*static_cast<std::uint32_t*>(host)).store(12);
  REQUIRE(cuStreamSynchronize(two) == CUDA_SUCCESS);
  CHECK(cuMemFreeHost(host) == CUDA_SUCCESS);
}

TEST_CASE("Events measure the time between them") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  CUevent start = nullptr, end = nullptr, untimed = nullptr;
  REQUIRE(cuEventCreate(&start, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  float milliseconds = -1;
  CHECK(cuEventElapsedTime(&milliseconds, start, end) == CUDA_ERROR_INVALID_HANDLE);  // `end` was not
                                                                                      // recorded
  REQUIRE(cuEventRecord(start, stream) == CUDA_SUCCESS);
  REQUIRE(gpu.spin(20, stream) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(end, stream) == CUDA_SUCCESS);
  REQUIRE(cuEventSynchronize(end) == CUDA_SUCCESS);
  REQUIRE(cuEventElapsedTime(&milliseconds, start, end) == CUDA_SUCCESS);
  CHECK(milliseconds >= 19.9f);  // the kernel spins for at least 20 ms
  CHECK(cuEventElapsedTime(&milliseconds, untimed, end) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("Host functions run in stream order") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  CUstream stream = gpu.stream();
  void* pinned = nullptr;
  REQUIRE(cuMemHostAlloc(&pinned, 8, 0) == CUDA_SUCCESS);
  auto* seen = static_cast<std::uint32_t*>(pinned);
  seen[0] = seen[1] = 0;
  REQUIRE(cuMemsetD32Async(memory, 8, 1, stream) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoHAsync(pinned, memory, 4, stream) == CUDA_SUCCESS);
  REQUIRE(cuLaunchHostFunc(
              stream,
              [](void* data) {
                auto* words = static_cast<std::uint32_t*>(data);
                words[1] = words[0] * 2;
              },
              pinned) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(seen[1] == 16);
}

TEST_CASE("A destroyed stream finishes its work") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  CUstream stream = gpu.stream();
  REQUIRE(gpu.spin(5, stream) == CUDA_SUCCESS);
  REQUIRE(gpu.add(memory, 1, 6, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamDestroy(stream) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(word_at(memory) == 6);
}

TEST_CASE("A kernel traps", "[.trap]") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  REQUIRE(gpu.launch("trap", stream, {}) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("A kernel that traps fails its process") { CHECK(passes_alone("[.trap]", {})); }

TEST_CASE("Launches with impossible grids are refused") {
  Gpu gpu;
  CUfunction empty = gpu.kernel("empty");
  CHECK(cuLaunchKernel(empty, 0, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuLaunchKernel(empty, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("Arguments come packed in a buffer too, and functions tell their parameters") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(4);
  struct {
    CUdeviceptr data;
    std::uint64_t count;
    std::uint32_t value;
  } packed{memory, 4, 12};
  std::size_t size = 20;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CUfunction add = gpu.kernel("add_value");
  REQUIRE(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(word_at(memory + 12) == 12);

#if CUDA_VERSION >= 12040
  std::size_t offset = 0, bytes = 0;
  REQUIRE(cuFuncGetParamInfo(add, 2, &offset, &bytes) == CUDA_SUCCESS);
  CHECK(offset == 16);
  CHECK(bytes == 4);
  CHECK(cuFuncGetParamInfo(add, 3, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);
#endif
}

#if CUDA_VERSION >= 12040
TEST_CASE("A kernel of a library tells its parameters, and is launched with or without a function") {
  Gpu gpu;
  CUlibrary library = nullptr;
  CUkernel add = nullptr;
  CUkernel none = nullptr;
  REQUIRE(cuLibraryLoadData(&library, programs::kKernelsPtx, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  REQUIRE(cuLibraryGetKernel(&add, library, "add_value") == CUDA_SUCCESS);
  CHECK(cuLibraryGetKernel(&none, library, "no_such_kernel") == CUDA_ERROR_NOT_FOUND);
  const char* name = nullptr;
  REQUIRE(cuKernelGetName(&name, add) == CUDA_SUCCESS);
  CHECK(std::string(name) == "add_value");
  std::size_t offset = 0, bytes = 0;
  REQUIRE(cuKernelGetParamInfo(add, 2, &offset, &bytes) == CUDA_SUCCESS);
  CHECK(offset == 16);
  CHECK(bytes == 4);
  CHECK(cuKernelGetParamInfo(add, 3, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);

  CUfunction function = nullptr;
  REQUIRE(cuKernelGetFunction(&function, add) == CUDA_SUCCESS);
  CUdeviceptr memory = gpu.words(4);
  std::uint64_t count = 4;
  std::uint32_t value = 3;
  void* parameters[] = {&memory, &count, &value};
  for (CUfunction each : {function, reinterpret_cast<CUfunction>(add)})
    REQUIRE(cuLaunchKernel(each, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(word_at(memory + 12) == 6);
  CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
}
#endif

TEST_CASE("A stream waits for an external semaphore and signals it, in its order", "[simulated]") {
  Gpu gpu;
  const int file = memfd_create("timeline", MFD_CLOEXEC);
  REQUIRE(ftruncate(file, sizeof(std::uint64_t)) == 0);
  auto* value = static_cast<std::uint64_t*>(
      mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC wanted = {};
  wanted.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  wanted.handle.fd = file;
  CUexternalSemaphore semaphore = nullptr;
  REQUIRE(cuImportExternalSemaphore(&semaphore, &wanted) == CUDA_SUCCESS);
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS until = {};
  until.params.fence.value = 5;
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS to = {};
  to.params.fence.value = 7;
  const CUstream stream = gpu.stream();
  const CUdeviceptr memory = gpu.words(1);
  REQUIRE(cuWaitExternalSemaphoresAsync(&semaphore, &until, 1, stream) == CUDA_SUCCESS);
  REQUIRE(gpu.add(memory, 1, 3, stream) == CUDA_SUCCESS);
  REQUIRE(cuSignalExternalSemaphoresAsync(&semaphore, &to, 1, stream) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  std::uint32_t word = 9;
  REQUIRE(cuMemcpyDtoH(&word, memory, 4) == CUDA_SUCCESS);
  CHECK(word == 0);
  std::atomic_ref(*value).store(6);  // a value beyond the awaited value suffices, too
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 3);
  CHECK(std::atomic_ref(*value).load() == 7);
  CHECK(cuDestroyExternalSemaphore(semaphore) == CUDA_SUCCESS);
  CHECK(cuSignalExternalSemaphoresAsync(&semaphore, &to, 1, stream) == CUDA_ERROR_INVALID_HANDLE);
  munmap(value, sizeof *value);
}

TEST_CASE("Modules hold the functions of their PTX") {
  Gpu gpu;
  CUfunction function = nullptr;
  CHECK(cuModuleGetFunction(&function, gpu.module, "no_such_kernel") == CUDA_ERROR_NOT_FOUND);
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, "this is no PTX") != CUDA_SUCCESS);
}

TEST_CASE("A kernel follows pointers that lie in device memory") {
  Gpu gpu;
  CUdeviceptr one = 0, two = 0, table = 0, sum = 0;
  REQUIRE(cuMemAlloc(&one, 80) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&two, 80) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&table, 16) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&sum, 8) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD8(sum, 0, 8) == CUDA_SUCCESS);
  std::vector<std::uint64_t> ones(10, 1), twos(10, 2);
  CUdeviceptr pointers[] = {one, two};
  REQUIRE(cuMemcpyHtoD(one, ones.data(), 80) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyHtoD(two, twos.data(), 80) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyHtoD(table, pointers, 16) == CUDA_SUCCESS);
  std::uint64_t count = 2, words = 10;
  REQUIRE(gpu.launch("gather_sum", nullptr, {&table, &count, &words, &sum}) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(word_at(sum) == 30);
}

}  // namespace sharedgpu::simgpu_test
