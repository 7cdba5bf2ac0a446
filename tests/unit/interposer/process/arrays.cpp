// SPDX-License-Identifier: Apache-2.0
// Tests arrays on the simulated GPU, with an arbiter. Each array is counted as long as it exists, and no
// array is created if the arbiter refuses its memory.
#include <cuda.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "interposer/process/process.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::ScriptedArbiter;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

template <class Work>
void beside(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; });
  result.get();
}

Bytes pinned() { return process::memory_of(0)->use().pinned; }

CUDA_ARRAY3D_DESCRIPTOR floats(std::size_t width, std::size_t height, std::size_t depth, unsigned flags = 0) {
  return {width, height, depth, CU_AD_FORMAT_FLOAT, 4, flags};
}

// Functions that create and destroy an array, and the size that must be counted while the array exists.
struct Kind {
  std::string name;
  std::size_t bytes;
  std::function<CUresult(void**)> create;
  std::function<CUresult(void*)> destroy;
};

Kind flat(std::size_t width, std::size_t height, std::size_t bytes) {
  return {"cuArrayCreate", bytes,
          [=](void** made) {
            const CUDA_ARRAY_DESCRIPTOR wanted = {width, height, CU_AD_FORMAT_FLOAT, 4};
            return cuArrayCreate_v2(reinterpret_cast<CUarray*>(made), &wanted);
          },
          [](void* made) { return cuArrayDestroy(static_cast<CUarray>(made)); }};
}

Kind solid(const CUDA_ARRAY3D_DESCRIPTOR& wanted, std::size_t bytes) {
  return {"cuArray3DCreate", bytes,
          [=](void** made) { return cuArray3DCreate_v2(reinterpret_cast<CUarray*>(made), &wanted); },
          [](void* made) { return cuArrayDestroy(static_cast<CUarray>(made)); }};
}

Kind mipmapped(const CUDA_ARRAY3D_DESCRIPTOR& wanted, unsigned levels, std::size_t bytes) {
  return {"cuMipmappedArrayCreate", bytes,
          [=](void** made) {
            return cuMipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(made), &wanted, levels);
          },
          [](void* made) { return cuMipmappedArrayDestroy(static_cast<CUmipmappedArray>(made)); }};
}

// 16 bytes a texel.
const std::vector<Kind> kKinds = {
    flat(1 << 16, 0, kMiB),
    flat(512, 512, 4 * kMiB),
    solid(floats(64, 64, 64), 4 * kMiB),
    solid(floats(256, 256, 4, CUDA_ARRAY3D_LAYERED), 4 * kMiB),
    solid(floats(1 << 14, 0, 4, CUDA_ARRAY3D_LAYERED), kMiB),  // layers of rows
    solid(floats(1 << 14, 1 << 14, 0, CUDA_ARRAY3D_SPARSE), 0),
    mipmapped(floats(512, 512, 0), 1, 4 * kMiB),
    mipmapped(floats(512, 512, 0), 2, 5 * kMiB),
    mipmapped(floats(1 << 16, 0, 0), 3, kMiB + kMiB / 2 + kMiB / 4),
    mipmapped(floats(1 << 16, 0, 0), 100, 16 * ((1 << 17) - 1)),  // 100 levels are requested, 17 are possible
    mipmapped(floats(64, 64, 64), 2, 4 * kMiB + kMiB / 2),
    mipmapped(floats(256, 256, 4, CUDA_ARRAY3D_LAYERED), 2, 5 * kMiB),
    mipmapped(floats(256, 16, 0), 9, 16 * (4096 + 1024 + 256 + 64 + 16 + 8 + 4 + 2 + 1)),
};

void counts_each() {
  for (const Kind& kind : kKinds) {
    INFO(kind.name << " of " << kind.bytes);
    void* made = nullptr;
    CHECK(kind.create(&made) == CUDA_SUCCESS);
    CHECK(pinned() == Bytes{kind.bytes});
    CHECK(kind.destroy(made) == CUDA_SUCCESS);
    CHECK(pinned() == Bytes{});
    CHECK(kind.destroy(made) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(pinned() == Bytes{});
  }
}

void counts_nothing_that_fails() {
  void* made = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR wrong = {64, 64, 0, CU_AD_FORMAT_FLOAT, 3, 0};  // invalid: three channels
  CHECK(solid(wrong, 0).create(&made) == CUDA_ERROR_INVALID_VALUE);
  CHECK(mipmapped(wrong, 2, 0).create(&made) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuArrayCreate_v2(nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMipmappedArrayCreate(nullptr, nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(pinned() == Bytes{});
}

Bytes make_all() {
  Bytes sum;
  for (const Kind& kind : kKinds) {
    void* made = nullptr;
    REQUIRE(kind.create(&made) == CUDA_SUCCESS);
    sum += Bytes{kind.bytes};
  }
  return sum;
}

// Each context frees its own arrays.
void counts_until_the_context_goes() {
  CUcontext primary = nullptr;
  CUcontext other = nullptr;
  const Bytes sum = make_all();
  REQUIRE(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
  make_all();
  CHECK(pinned() == sum + sum);
  CHECK(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
  CHECK(pinned() == sum);
  CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
  CHECK(cuCtxDestroy_v2(other) == CUDA_SUCCESS);
  CHECK(pinned() == Bytes{});
  REQUIRE(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
  REQUIRE(cuCtxSetCurrent(primary) == CUDA_SUCCESS);
  make_all();
  CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
  CHECK(pinned() == Bytes{});
}

}  // namespace

TEST_CASE("arrays count as pinned memory as long as they exist") {
  const std::string socket = "/tmp/sharedgpu-arrays-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  setenv("SIMGPU_MEMORY", "192MiB", 1);
  ScriptedArbiter arbiter(socket);
  arbiter.capacity = arbiter.allowed = mebibytes(128);
  REQUIRE(arbiter.begin([] { return cuInit(0); }) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  beside(arbiter, [&] {
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    counts_each();
    counts_nothing_that_fails();
    counts_until_the_context_goes();
  });

  // The driver has room for all arrays, but the arbiter refuses growth.
  arbiter.grant = false;
  beside(arbiter, [&] {
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    for (const Kind& kind : kKinds) {
      if (kind.bytes == 0) continue;
      INFO(kind.name << " of " << kind.bytes);
      void* made = nullptr;
      CHECK(kind.create(&made) == CUDA_ERROR_OUT_OF_MEMORY);
      CHECK(made == nullptr);
      CHECK(pinned() == Bytes{});
    }
  });
  arbiter.refuse("the test is over");
}
