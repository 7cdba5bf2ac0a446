// SPDX-License-Identifier: Apache-2.0
// Actions of other threads during a call to the driver, on the simulated GPU with an arbiter: the counted
// memory is correct at every moment.
#include <cuda.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "interposer/backlog/streams.h"
#include "interposer/driver/call.h"
#include "interposer/hooks/graph_memory.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/pools.h"
#include "interposer/process/process.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::ScriptedArbiter;

namespace {

template <class Work>
void beside(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; });
  result.get();
}

// Replaces a driver function as long as the object exists.
template <driver::Function kName, class Type>
class Instead;
template <driver::Function kName, class... Arguments>
class Instead<kName, CUresult(Arguments...)> {
 public:
  template <class Action>
  explicit Instead(Action action) {
    action_ = action;
    real_ = driver::replace(kName, reinterpret_cast<void*>(&act));
  }
  ~Instead() { driver::replace(kName, real_); }
  Instead(const Instead&) = delete;
  Instead& operator=(const Instead&) = delete;

  static CUresult real(Arguments... arguments) {
    return reinterpret_cast<CUresult (*)(Arguments...)>(real_)(arguments...);
  }

 private:
  static CUresult act(Arguments... arguments) { return action_(arguments...); }
  static inline std::function<CUresult(Arguments...)> action_;
  static inline void* real_ = nullptr;
};
#define INSTEAD(name) Instead<driver::Function::name, decltype(::name)>

// Waits until the other thread has finished, but at most for 50 ms, since something may block this thread.
void give_time(std::future<CUresult>& other) { other.wait_for(50ms); }

constexpr Bytes kBlock = mebibytes(16);

Bytes pinned() { return process::memory_of(0)->use().pinned; }

CUmemoryPool new_pool() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CHECK(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
  return pool;
}

// Memory of a shareable pool is counted before it exists.
void claims_for_pools() {
  const CUmemoryPool pool = new_pool();
  auto allocate = [=](auto meanwhile) {
    CUdeviceptr address = 0;
    CHECK(hooks::pools().allocate_pinned(&address, mebibytes(8), pool, [&] {
      meanwhile();
      return SHAREDGPU_REAL(cuMemAllocFromPoolAsync, &address, mebibytes(8).count, pool, nullptr);
    }) == CUDA_SUCCESS);
    return address;
  };
  CUdeviceptr second = 0;
  const CUdeviceptr first = allocate([&] {
    hooks::pools().tend();
    CHECK(pinned() == mebibytes(8));
    second = allocate([] { CHECK(pinned() == mebibytes(16)); });
    CHECK(pinned() == mebibytes(16));
  });
  CHECK(pinned() == mebibytes(16));
  CHECK(cuMemFree_v2(first) == CUDA_SUCCESS);
  CHECK(pinned() == mebibytes(8));
  CHECK(cuMemFree_v2(second) == CUDA_SUCCESS);
  CHECK(pinned() == Bytes{});
  CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
}

// The driver gives the address of a block to another thread while the block is being freed.
void blocks_of_pools() {
  const CUmemoryPool pool = new_pool();
  CUdeviceptr address = 0;
  const auto allocate = [&](auto call) {
    CHECK(hooks::pools().allocate_pinned(&address, mebibytes(8), pool, call) == CUDA_SUCCESS);
    return CUDA_SUCCESS;
  };
  allocate(
      [&] { return SHAREDGPU_REAL(cuMemAllocFromPoolAsync, &address, mebibytes(8).count, pool, nullptr); });
  CHECK(hooks::pools().free_pinned(address, [&] { return allocate([] { return CUDA_SUCCESS; }); }) ==
        CUDA_SUCCESS);
  CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
  CHECK(pinned() == mebibytes(8));          // blocks of the pool that are in use are counted
  hooks::pools().free_pinned(address, [] {  // the block counts until the driver has freed it
    hooks::pools().tend();
    CHECK(pinned() == mebibytes(8));
    return CUDA_ERROR_NOT_READY;
  });
  CHECK(hooks::pools().free_pinned(address, [] { return CUDA_ERROR_INVALID_VALUE; }) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(pinned() == mebibytes(8));
  CHECK(cuMemFree_v2(address) == CUDA_SUCCESS);
  CHECK(pinned() == Bytes{});
}

std::uint64_t used(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes) == CUDA_SUCCESS);
  return bytes;
}

// The driver refuses to destroy a default pool. Threads that use the pool meanwhile find it unchanged.
void destruction_that_is_refused() {
  CUmemoryPool pool = nullptr;
  CUmemoryPool found = nullptr;
  CUdeviceptr blocks[2] = {};
  REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemAllocAsync(&blocks[0], mebibytes(4).count, nullptr) == CUDA_SUCCESS);
  const INSTEAD(cuMemPoolDestroy) instead([&](CUmemoryPool doomed) {
    CHECK(used(pool) == mebibytes(4).count);
    CHECK(cuMemAllocAsync(&blocks[1], mebibytes(4).count, nullptr) == CUDA_SUCCESS);
    CHECK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, blocks[0]) == CUDA_SUCCESS);
    CHECK(found == pool);
    return INSTEAD(cuMemPoolDestroy)::real(doomed);
  });
  CHECK(cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
  CHECK(used(pool) == mebibytes(8).count);
  for (CUdeviceptr block : blocks) CHECK(cuMemFreeAsync(block, nullptr) == CUDA_SUCCESS);
  CHECK(used(pool) == 0);
}

// Another thread's new pool gets the handle of a pool that is being destroyed, while a third thread maintains
// the pools.
void handle_of_a_pool() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  REQUIRE(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
  const INSTEAD(cuMemPoolDestroy) instead([&](CUmemoryPool doomed) {
    const CUresult result = INSTEAD(cuMemPoolDestroy)::real(doomed);
    const INSTEAD(cuMemPoolGetAttribute) ask([&](CUmemoryPool asked, CUmemPool_attribute name, void* value) {
      CHECK(asked != doomed);
      return INSTEAD(cuMemPoolGetAttribute)::real(asked, name, value);
    });
    hooks::pools().tend();
    hooks::pools().created(doomed, properties);
    return result;
  });
  CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
  CHECK(hooks::pools().kind(pool, 0) == hooks::Pools::Kind::swapped);
  CHECK(hooks::pools().destroy(pool, [] { return CUDA_SUCCESS; }) == CUDA_SUCCESS);
}

// A release of the primary context is not the last release if another thread has just retained the context.
void releases_of_a_primary_context(CUdeviceptr block) {
  std::future<CUresult> release;
  const INSTEAD(cuDevicePrimaryCtxRetain) instead([&](CUcontext* context, CUdevice device) {
    const CUresult result = INSTEAD(cuDevicePrimaryCtxRetain)::real(context, device);
    release = std::async(std::launch::async, [] { return cuDevicePrimaryCtxRelease_v2(0); });
    give_time(release);
    return result;
  });
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  CHECK(release.get() == CUDA_SUCCESS);
  CHECK(Process::get()->contexts().primary(0) == context);
  CHECK(process::find(block));
}

// If the driver refuses to destroy a context, none of its memory is lost.
void context_that_stays() {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr address = 0;
  unsigned char byte = 0;
  REQUIRE(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc_v2(&address, mebibytes(4).count) == CUDA_SUCCESS);
  CHECK(cuMemsetD8Async(address, 7, mebibytes(4).count, stream) == CUDA_SUCCESS);
  const StreamId id = backlog::locate(stream)->id;
  {
    const INSTEAD(cuCtxDestroy_v2) instead([](CUcontext) { return CUDA_ERROR_UNKNOWN; });
    CHECK(cuCtxDestroy_v2(context) == CUDA_ERROR_UNKNOWN);
  }
  CHECK(process::find(address));
  CHECK(cuMemcpyDtoH_v2(&byte, address + 99, 1) == CUDA_SUCCESS);
  CHECK(byte == 7);
  CHECK(backlog::locate(stream)->id == id);
  // After the refused destruction, the streams of the context are still queried for work.
  CHECK(cuMemsetD8Async(address, 8, mebibytes(4).count, stream) == CUDA_SUCCESS);
  CHECK_FALSE(Process::get()->contexts().idle());
  CHECK(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
  CHECK_FALSE(process::find(address));
}

// No drain waits for a context that is being destroyed, so the context must be idle before its destruction
// begins.
void work_of_a_context(CUdeviceptr block) {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  REQUIRE(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  // No drain waits for a context in which a capture is in progress, either.
  CUstream captured = nullptr;
  REQUIRE(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(cuMemsetD8Async(block, 1, kBlock.count, stream) == CUDA_SUCCESS);
  const INSTEAD(cuCtxDestroy_v2) instead([&](CUcontext doomed) {
    CHECK(SHAREDGPU_REAL(cuStreamQuery, stream) == CUDA_SUCCESS);
    return INSTEAD(cuCtxDestroy_v2)::real(doomed);
  });
  CHECK(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
}

// A new context has the same handle as the context that is still being destroyed.
void memory_of_a_context() {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  Memory* memory = process::memory_of(0);
  REQUIRE(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
  CHECK(cuMemAllocManaged(&address, mebibytes(4).count, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
  CHECK(pinned() == mebibytes(4));
  {
    const INSTEAD(cuCtxDestroy_v2) instead([](CUcontext) { return CUDA_ERROR_UNKNOWN; });
    CHECK(cuCtxDestroy_v2(context) == CUDA_ERROR_UNKNOWN);
    CHECK(pinned() == mebibytes(4));
  }
  const INSTEAD(cuCtxDestroy_v2) instead([&](CUcontext doomed) {
    const CUresult result = INSTEAD(cuCtxDestroy_v2)::real(doomed);
    CHECK(memory->pin(mebibytes(8)) == CUDA_SUCCESS);
    hooks::pinned().add(hooks::Pinned::Kind::array, 1, {mebibytes(8), doomed, memory});
    return result;
  });
  CHECK(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
  CHECK(pinned() == mebibytes(8));
  CHECK(hooks::pinned().take(hooks::Pinned::Kind::array, 1));
  memory->unpin(mebibytes(8));
}

// Two threads query the memory of graphs at the same time. The older answer must not replace the newer
// answer.
void memory_of_graphs() {
  Bytes kept = mebibytes(8);
  std::future<CUresult> trim;
  const INSTEAD(cuDeviceGetGraphMemAttribute) instead([&](CUdevice, CUgraphMem_attribute, void* value) {
    *static_cast<cuuint64_t*>(value) = kept.count;
    if (std::exchange(kept, {}) == Bytes{}) return CUDA_SUCCESS;
    trim = std::async(std::launch::async, [] {
      hooks::graph_memory::count();
      return CUDA_SUCCESS;
    });
    give_time(trim);
    return CUDA_SUCCESS;
  });
  hooks::graph_memory::note_node(mebibytes(8));
  hooks::graph_memory::count();
  CHECK(trim.get() == CUDA_SUCCESS);
  hooks::graph_memory::count();
  CHECK(pinned() == Bytes{});
}

// If several threads find the same uncounted memory, the library requests growth for it only once.
void memory_of_graphs_for_several() {
  Bytes kept = mebibytes(8);
  const INSTEAD(cuDeviceGetGraphMemAttribute) instead([&](CUdevice, CUgraphMem_attribute, void* value) {
    *static_cast<cuuint64_t*>(value) = kept.count;
    return CUDA_SUCCESS;
  });
  std::vector<std::future<void>> all;
  for (int i = 0; i < 4; ++i) all.push_back(std::async(std::launch::async, hooks::graph_memory::count));
  for (std::future<void>& each : all) each.get();
  CHECK(pinned() == mebibytes(8));
  kept = {};
  hooks::graph_memory::count();
  CHECK(pinned() == Bytes{});
}

// Imports of memory, with events that happen while the exporter answers.
shared_memory::LockFile lender;
CUmemGenericAllocationHandle lent = 0;
std::function<void()> before_a_piece;

struct Exporters final : shared_memory::Imports::Exporters {
  shared_memory::Imports::Answer ask(LoanName /*name*/, std::uint32_t piece) override {
    if (piece == kLien) return {LoanOutcome::given, 0, {}, lender.for_importer()};
    if (auto action = std::exchange(before_a_piece, nullptr)) action();
    int descriptor = -1;
    CHECK(SHAREDGPU_REAL(cuMemExportToShareableHandle, &descriptor, lent,
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    return {LoanOutcome::given, 1, mebibytes(2), UniqueFd(descriptor)};
  }
} lenders;

// Threads open and close two exports of one process at the same time. Each export is held as long as a thread
// uses it.
void loans() {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  REQUIRE(SHAREDGPU_REAL(cuMemCreate, &lent, mebibytes(2).count, &kind, 0) == CUDA_SUCCESS);
  REQUIRE(lender.create());
  shared_memory::Imports imports(lenders, Process::get()->contexts());
  const auto open = [&](std::uint64_t loan) {
    CUdeviceptr address = 0;
    shared_memory::IpcTicket ticket;
    ticket.name = {.lender = 1, .loan = loan};
    ticket.mapped = ticket.size = mebibytes(2);
    CHECK(imports.open(ticket, &address) == CUDA_SUCCESS);
    return address;
  };

  const CUdeviceptr five = open(5);
  CHECK(lender.is_held(5));
  before_a_piece = [&] { CHECK(imports.close(five) == CUDA_SUCCESS); };
  const CUdeviceptr six = open(6);
  CHECK(!lender.is_held(5));
  CHECK(lender.is_held(6));

  CUdeviceptr again = 0;
  {
    const INSTEAD(cuMemUnmap) instead([&](CUdeviceptr address, std::size_t size) {
      if (again == 0) again = open(6);
      return INSTEAD(cuMemUnmap)::real(address, size);
    });
    CHECK(imports.close(six) == CUDA_SUCCESS);
  }
  CHECK(!imports.find(six));
  CHECK(imports.find(again));
  CHECK(lender.is_held(6));

  // If a capture begins while the memory is being closed, the memory stays open, since waiting for the GPU
  // would invalidate the capture.
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(SHAREDGPU_REAL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(imports.close(again) == CUDA_SUCCESS);
  CHECK(imports.find(again));
  CHECK(lender.is_held(6));
  SHAREDGPU_REAL(cuStreamEndCapture, stream, &graph);
  CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
  imports.run(*process::memory_of(0));
  CHECK(!imports.find(again));
  CHECK(!lender.is_held(6));
  CHECK(SHAREDGPU_REAL(cuMemRelease, lent) == CUDA_SUCCESS);
}

}  // namespace

TEST_CASE("the counts of memory stay right while threads are in the middle of driver calls") {
  const std::string socket = "/tmp/sharedgpu-meanwhile-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  setenv("SIMGPU_MEMORY", "96MiB", 1);
  setenv("SIMGPU_BANDWIDTH", "1", 1);
  ScriptedArbiter arbiter(socket);
  arbiter.capacity = arbiter.allowed = mebibytes(48);
  REQUIRE(arbiter.begin([] { return cuInit(0); }) == CUDA_SUCCESS);
  beside(arbiter, [] {
    CUcontext context = nullptr;
    CUdeviceptr block = 0;
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    REQUIRE(cuMemAlloc_v2(&block, kBlock.count) == CUDA_SUCCESS);
    claims_for_pools();
    blocks_of_pools();
    destruction_that_is_refused();
    handle_of_a_pool();
    context_that_stays();
    releases_of_a_primary_context(block);
    work_of_a_context(block);
    memory_of_a_context();
    memory_of_graphs();
    memory_of_graphs_for_several();
    loans();
  });
  arbiter.refuse("the test is over");
}
