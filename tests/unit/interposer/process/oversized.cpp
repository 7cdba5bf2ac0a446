// SPDX-License-Identifier: Apache-2.0
// Tests a process larger than the simulated GPU, with an arbiter. Handles enter and leave the window while
// the gate is paused, and the program's results are right wherever its memory is.
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "interposer/gate/gate.h"
#include "interposer/hooks/kernel_arguments.h"
#include "interposer/process/process.h"
#include "tests/programs/kernels_ptx.h"
#include "tests/programs/pattern.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using session::Exchanged;
using test::ScriptedArbiter;

namespace {

constexpr Bytes kBlock = mebibytes(16);  // a single handle
constexpr std::uint64_t kWords = kBlock.count / sizeof(std::uint64_t);
constexpr Bytes kOnGpu{2 * kBlock.count};

template <class Work>
void beside(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; });
  result.get();
}

struct Program {
  CUcontext context = nullptr;
  CUfunction fill = nullptr;
  std::vector<CUdeviceptr> blocks;

  void enter() const { REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS); }
  void begin() {
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    enter();
    CUmodule code = nullptr;
    REQUIRE(cuModuleLoadData(&code, programs::kKernelsPtx) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&fill, code, "pattern_fill") == CUDA_SUCCESS);
    for (unsigned i = 0; i < 4; ++i) {
      blocks.push_back(0);
      REQUIRE(cuMemAlloc_v2(&blocks.back(), kBlock.count) == CUDA_SUCCESS);
      launch(i);
    }
  }
  void launch(unsigned block) const {
    CUdeviceptr data = blocks[block];
    std::uint64_t count = kWords;
    std::uint64_t seed = block + 1;
    std::uint64_t first = 0;
    void* arguments[] = {&data, &count, &seed, &first};
    CHECK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) == CUDA_SUCCESS);
  }
  bool right(unsigned block) const {
    std::vector<std::uint64_t> words(kWords);
    if (cuMemcpyDtoH_v2(words.data(), blocks[block], kBlock.count) != CUDA_SUCCESS) return false;
    for (std::uint64_t i = 0; i < kWords; ++i)
      if (words[i] != pattern::fill(block + 1, i)) return false;
    return true;
  }
  void all_right() const {
    for (unsigned i = 0; i < blocks.size(); ++i) CHECK(right(i));
  }
};

session::DeviceSession& its_session() { return *process::session_of(0); }
AwayMemory& away_memory() { return *its_session().memory()->away_memory(); }
bool is_away(CUdeviceptr block) { return away_memory().operands(block).front().away; }
std::vector<CUdeviceptr> all_in_window() {
  std::vector<CUdeviceptr> found;
  for (const AwayHandle& handle : away_memory().handles())
    if (!handle.away) found.push_back(handle.address);
  return found;
}
unsigned count_away(const Program& program) {
  return static_cast<unsigned>(std::ranges::count_if(program.blocks, is_away));
}

// Exchanges all handles that are away for the handles in the window.
Exchanged swap_places(const Program& program) {
  std::vector<CUdeviceptr> out;
  std::vector<CUdeviceptr> in;
  for (const CUdeviceptr block : program.blocks) (is_away(block) ? in : out).push_back(block);
  return its_session().exchange(out, in).outcome;
}

void finds_the_addresses_in_arguments(const Program& program) {
  const auto kernel = reinterpret_cast<std::uintptr_t>(program.fill);
  CUdeviceptr data = program.blocks[0];
  std::uint64_t small = 4096;
  std::uint64_t negative = ~0ull;
  void* values[] = {&data, &small, &negative, &data};
  const auto found = hooks::kernel_arguments(kernel, reinterpret_cast<std::uintptr_t>(values), 0);
  REQUIRE(found.size() == 2);
  CHECK(found[0].address == data);
  CHECK(found[0].word == 0);
  CHECK(found[1].address == data);
  CHECK(found[1].word == 24);

  CUdeviceptr buffer[4] = {data, small, data + 8, negative};
  std::size_t size = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  const auto extras = hooks::kernel_arguments(kernel, 0, reinterpret_cast<std::uintptr_t>(extra));
  REQUIRE(extras.size() == 2);
  CHECK(extras[1].address == data + 8);
  CHECK(extras[1].word == 16);
  size = 8;
  CHECK(hooks::kernel_arguments(kernel, 0, reinterpret_cast<std::uintptr_t>(extra)).size() == 1);
  size = std::size_t{1} << 40;  // no kernel has an argument buffer of this size
  CHECK(hooks::kernel_arguments(kernel, 0, reinterpret_cast<std::uintptr_t>(extra)).empty());
  void* no_extra[] = {CU_LAUNCH_PARAM_END};
  CHECK(hooks::kernel_arguments(kernel, 0, reinterpret_cast<std::uintptr_t>(no_extra)).empty());
  CHECK(hooks::kernel_arguments(kernel, 0, 0).empty());
}

// While this object exists, the GPU has work that does not end.
class EndlessWork {
 public:
  EndlessWork() {
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    const auto wait = [](void* ended) {
      while (!*static_cast<std::atomic<bool>*>(ended)) std::this_thread::sleep_for(1ms);
    };
    CHECK(cuLaunchHostFunc(stream_, wait, &ended_) == CUDA_SUCCESS);
  }
  ~EndlessWork() {
    ended_ = true;
    cuStreamSynchronize(stream_);
    cuStreamDestroy_v2(stream_);
  }
  EndlessWork(const EndlessWork&) = delete;
  EndlessWork& operator=(const EndlessWork&) = delete;

 private:
  CUstream stream_ = nullptr;
  std::atomic<bool> ended_{false};
};

}  // namespace

TEST_CASE("a process larger than the GPU works with its memory in two places") {
  const std::string socket = "/tmp/sharedgpu-oversized-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  setenv("SIMGPU_MEMORY", "192MiB", 1);
  ScriptedArbiter arbiter(socket);
  arbiter.capacity = mebibytes(128);
  arbiter.allowed = arbiter.device_most = kOnGpu;
  arbiter.away_most = mebibytes(128);
  REQUIRE(arbiter.begin([] { return cuInit(0); }) == CUDA_SUCCESS);
  Program program;
  beside(arbiter, [&] {
    program.begin();
    CHECK(count_away(program) == 2);
    program.all_right();
    finds_the_addresses_in_arguments(program);
  });
  CHECK(arbiter.last_usage->away == Bytes{2 * kBlock.count});
  CHECK(arbiter.last_usage->use.swappable == kOnGpu);

  // Threads launch kernels and make exchanges at the same time.
  beside(arbiter, [&] {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        program.enter();
        for (unsigned round = 0; round < 20; ++round) {
          program.launch(i);
          if (round % 4 == i) CHECK(swap_places(program) != Exchanged::closed);
        }
      });
    for (std::thread& thread : threads) thread.join();
    program.enter();
    program.all_right();
    CHECK(count_away(program) == 2);
  });
  CHECK(arbiter.wants == 0);  // threads that waited only for the end of an exchange request no turn

  // If the GPU's work does not end, the exchange is cancelled and the gate opens.
  beside(arbiter, [&] {
    program.enter();
    std::vector<Exchanged> results(3, Exchanged::complete);
    {
      const EndlessWork endless;
      std::vector<std::thread> threads;
      for (Exchanged& result : results)
        threads.emplace_back([&] {
          program.enter();
          result = swap_places(program);
        });
      for (std::thread& thread : threads) thread.join();
      CHECK(gate::is_open());
      for (const Exchanged result : results) CHECK(result == Exchanged::partial);
    }
    program.all_right();
    CHECK(swap_places(program) == Exchanged::complete);
    program.all_right();
  });

  // The session reports what exchanges have cost. No other bytes have moved.
  const auto reports_all = [&] {
    return arbiter.last_usage->exchanges.moved == its_session().memory()->moved() &&
           arbiter.last_usage->exchanges.waited >= 1s;
  };
  arbiter.serve_until(reports_all);
  const Exchanges& exchanges = arbiter.last_usage->exchanges;
  CHECK(arbiter.last_usage->moved == exchanges.moved);
  CHECK(exchanges.moved.evicted != Bytes{});
  CHECK(exchanges.moved.restored != Bytes{});
  CHECK(exchanges.moving > 0s);
  CHECK(exchanges.moving_at_best() > 0s);
  CHECK(exchanges.moving_at_best() <= exchanges.moving);

  // An arbiter that does not know `exchanges` drops them. The next arbiter gets them.
  const auto replace_by = [&](std::uint16_t version) {
    arbiter.die();
    arbiter.last_usage.reset();
    arbiter.version = version;
    arbiter.listen();
    arbiter.accept();
    arbiter.welcome(true, {1});
    arbiter.serve_until([&] { return arbiter.last_usage.has_value(); });
  };
  const Traffic known_before = its_session().memory()->moved();
  replace_by(Usage::kExchanges - 1);
  beside(arbiter, [&] {
    program.enter();
    CHECK(swap_places(program) == Exchanged::complete);
    CHECK(gate::is_open());
  });
  const Traffic unknown = minus(its_session().memory()->moved(), known_before);
  REQUIRE(unknown != Traffic{});
  arbiter.serve_until([&] { return arbiter.last_usage->moved == unknown; });
  replace_by(kProtocolVersion);
  arbiter.serve_until([&] { return arbiter.last_usage->exchanges != Exchanges{}; });
  CHECK(arbiter.last_usage->exchanges.moved == unknown);
  CHECK(arbiter.last_usage->moved == Traffic{});

  // In the turn of another tenant, no exchange moves memory.
  beside(arbiter, [&] {
    program.enter();
    arbiter.page().set_open(false);
    const std::vector<CUdeviceptr>& blocks = program.blocks;
    const bool away = is_away(blocks[0]);
    CHECK(its_session().exchange({blocks[0]}, {blocks[1]}).outcome == Exchanged::closed);
    CHECK(is_away(blocks[0]) == away);
    arbiter.page().set_open(true);
    CHECK(swap_places(program) == Exchanged::complete);
    program.all_right();
  });

  // Memory that must stay on the GPU enters the window, if necessary in exchange for other memory.
  beside(arbiter, [&] {
    program.enter();
    CUarray array = nullptr;
    const CUDA_ARRAY_DESCRIPTOR wanted = {512, 512, CU_AD_FORMAT_FLOAT, 4};
    CHECK(cuArrayCreate_v2(&array, &wanted) == CUDA_SUCCESS);
    CHECK(its_session().memory()->use().pinned == mebibytes(4));
    CHECK(its_session().memory()->use().footprint() <= kOnGpu);
    CHECK(count_away(program) == 3);
    program.all_right();
    CHECK(cuArrayDestroy(array) == CUDA_SUCCESS);
  });
  CHECK(arbiter.last_usage->away == Bytes{2 * kBlock.count + mebibytes(4).count});

  // Memory that the program makes for export enters the window before it is exported.
  beside(arbiter, [&] {
    program.enter();
    CUmemAllocationProp for_export{};
    for_export.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    for_export.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    for_export.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cuMemCreate(&handle, kBlock.count, &for_export, 0) == CUDA_SUCCESS);
    its_session().exchange(all_in_window(), {});
    int descriptor = -1;
    CHECK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_SUCCESS);
    CHECK(close(descriptor) == 0);
    CHECK(its_session().memory()->use().pinned == kBlock);
    program.all_right();
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  });

  // Host memory that the program itself creates as a handle is away memory, too.
  beside(arbiter, [&] {
    program.enter();
    CUmemAllocationProp on_host{};
    on_host.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    on_host.location.type = static_cast<CUmemLocationType>(3);  // CU_MEM_LOCATION_TYPE_HOST_NUMA
    CUmemGenericAllocationHandle handle = 0;
    const Bytes before = its_session().memory()->reading().beyond;
    REQUIRE(cuMemCreate(&handle, kBlock.count, &on_host, 0) == CUDA_SUCCESS);
    CHECK(its_session().memory()->reading().beyond == before + kBlock);
    CUmemGenericAllocationHandle more = 0;
    CHECK(cuMemCreate(&more, mebibytes(128).count, &on_host, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(its_session().memory()->reading().beyond == before);
    for (const CUdeviceptr block : program.blocks) CHECK(cuMemFree_v2(block) == CUDA_SUCCESS);
    CHECK(its_session().memory()->reading().beyond == Bytes{});
    CHECK(its_session().memory()->use().footprint() == Bytes{});
  });

  // Each new arbiter states whether the process may have away memory.
  CHECK(its_session().may_be_oversized());
  arbiter.away_most = {};
  arbiter.die();
  arbiter.listen();
  arbiter.accept();
  arbiter.welcome(true, {1});
  arbiter.serve_until([] { return !its_session().may_be_oversized(); });
  arbiter.refuse("the test is over");
}
