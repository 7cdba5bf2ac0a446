// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays, as cuda.h describes them. The expected results were not compared with a real
// driver.
#include <numeric>

#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {
namespace {

std::size_t free_bytes() {
  std::size_t free = 0;
  REQUIRE(cuMemGetInfo(&free, nullptr) == CUDA_SUCCESS);
  return free;
}

}  // namespace

TEST_CASE("An array takes device memory until it is destroyed, and no longer than its context",
          "[simulated]") {
  Gpu gpu;
  const std::size_t before = free_bytes();
  const CUDA_ARRAY_DESCRIPTOR wanted = {2048, 1024, CU_AD_FORMAT_UNSIGNED_INT8, 4};  // 8 MiB
  CUarray array = nullptr;
  REQUIRE(cuArrayCreate(&array, &wanted) == CUDA_SUCCESS);
  CHECK(free_bytes() <= before - 8 * kMiB);
  CUDA_ARRAY_DESCRIPTOR told = {};
  CHECK(cuArrayGetDescriptor(&told, array) == CUDA_SUCCESS);
  CHECK((told.Width == 2048 && told.Height == 1024 && told.NumChannels == 4));
  CHECK(cuArrayDestroy(array) == CUDA_SUCCESS);
  CHECK(free_bytes() == before);

  CUcontext other = nullptr;
  REQUIRE(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuArrayCreate(&array, &wanted) == CUDA_SUCCESS);
  REQUIRE(cuCtxDestroy(other) == CUDA_SUCCESS);
  CHECK(free_bytes() == before);
}

TEST_CASE("Data that is copied into a part of an array is in this part, and nowhere else", "[simulated]") {
  Gpu gpu;
  const CUDA_ARRAY3D_DESCRIPTOR wanted = {8, 4, 2, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
  CUarray array = nullptr;
  REQUIRE(cuArray3DCreate(&array, &wanted) == CUDA_SUCCESS);
  std::vector<unsigned char> zero(64);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = zero.data();
  copy.srcPitch = copy.WidthInBytes = 8;
  copy.srcHeight = copy.Height = 4;
  copy.Depth = 2;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  REQUIRE(cuMemcpy3D(&copy) == CUDA_SUCCESS);

  std::vector<unsigned char> part(6);  // three rows of two texels
  std::iota(part.begin(), part.end(), 1);
  copy.srcHost = part.data();
  copy.srcPitch = copy.WidthInBytes = 2;
  copy.srcHeight = copy.Height = 3;
  copy.Depth = 1;
  copy.dstXInBytes = 5;
  copy.dstY = 1;
  copy.dstZ = 1;
  REQUIRE(cuMemcpy3D(&copy) == CUDA_SUCCESS);
  copy.dstXInBytes = 7;
  CHECK(cuMemcpy3D(&copy) == CUDA_ERROR_INVALID_VALUE);  // exceeds the end of the row

  std::vector<unsigned char> seen(64, 0xee);
  std::vector<unsigned char> right(64);
  for (std::size_t i = 0; i < part.size(); ++i) right[32 + (1 + i / 2) * 8 + 5 + i % 2] = part[i];
  CUDA_MEMCPY3D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = seen.data();
  back.dstPitch = back.WidthInBytes = 8;
  back.dstHeight = back.Height = 4;
  back.Depth = 2;
  REQUIRE(cuMemcpy3D(&back) == CUDA_SUCCESS);
  CHECK(seen == right);
  CHECK(cuArrayDestroy(array) == CUDA_SUCCESS);
}

TEST_CASE("The levels of a mipmapped array shrink by half, and live as long as it", "[simulated]") {
  Gpu gpu;
  const CUDA_ARRAY3D_DESCRIPTOR wanted = {16, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray mipmap = nullptr;
  REQUIRE(cuMipmappedArrayCreate(&mipmap, &wanted, 5) == CUDA_SUCCESS);
  const std::size_t widths[] = {16, 8, 4, 2, 1};
  const std::size_t heights[] = {4, 2, 1, 1, 1};
  CUarray level = nullptr;
  for (unsigned i = 0; i < 5; ++i) {
    REQUIRE(cuMipmappedArrayGetLevel(&level, mipmap, i) == CUDA_SUCCESS);
    CUDA_ARRAY3D_DESCRIPTOR told = {};
    REQUIRE(cuArray3DGetDescriptor(&told, level) == CUDA_SUCCESS);
    CHECK((told.Width == widths[i] && told.Height == heights[i] && told.Depth == 0));
  }
  CHECK(cuMipmappedArrayGetLevel(&level, mipmap, 5) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMipmappedArrayDestroy(mipmap) == CUDA_SUCCESS);
}

}  // namespace sharedgpu::simgpu_test
