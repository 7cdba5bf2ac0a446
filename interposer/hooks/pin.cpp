// SPDX-License-Identifier: Apache-2.0
// Arrays. The driver allocates arrays, and they count as pinned.
#include <algorithm>

#include "interposer/hooks/export.h"
#include "interposer/hooks/native.h"

using namespace sharedgpu;
using hooks::Pinned;

namespace {

std::uint64_t bytes_per_channel(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 1;
  }
}

// An estimate of an array's size. The size that the driver allocates is slightly larger because of padding,
// and the driver reports this size only for arrays without memory. The estimate is close enough for planning.
// Compressed and planar formats take less memory than the estimate. A size that would overflow is more than
// any device has.
Bytes array_size(std::size_t width, std::size_t height, std::size_t depth, CUarray_format format,
                 unsigned channels) {
  std::uint64_t size = width;
  for (std::uint64_t factor :
       {std::uint64_t{std::max<std::size_t>(height, 1)}, std::uint64_t{std::max<std::size_t>(depth, 1)},
        bytes_per_channel(format), std::uint64_t{channels}})
    if (__builtin_mul_overflow(size, factor, &size)) return kLargestAllocation + kLargestAllocation;
  return {size};
}

// The size of an array without levels, layers or faces.
template <class Descriptor>
Bytes plain_size(const Descriptor* wanted) {
  if (wanted == nullptr) return {};
  std::size_t depth = 1;
  if constexpr (requires { wanted->Depth; }) depth = wanted->Depth;
  return array_size(wanted->Width, wanted->Height, depth, wanted->Format, wanted->NumChannels);
}

// The size of `levels` levels. Each level has half the width, height and depth of the level before. The
// number of layers and faces is the same on all levels, so only width, height and depth are halved.
Bytes array_size(const CUDA_ARRAY3D_DESCRIPTOR* wanted, unsigned levels = 1) {
  // Sparse and deferred arrays get their memory later: the program maps it itself.
  constexpr unsigned kMappedLater = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
  if (wanted == nullptr || (wanted->Flags & kMappedLater) != 0) return {};
  const bool layered = (wanted->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  std::size_t width = wanted->Width;
  std::size_t height = wanted->Height;
  std::size_t depth = wanted->Depth;
  Bytes sum;
  do {
    sum += array_size(width, height, depth, wanted->Format, wanted->NumChannels);
    if (sum > kLargestAllocation || (width <= 1 && height <= 1 && (layered || depth <= 1))) break;
    width = std::max<std::size_t>(width / 2, 1);
    height /= 2;
    if (!layered) depth /= 2;
  } while (levels-- > 1);
  return sum;
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* wanted) {
  return hooks::allocate_native(Pinned::Kind::array, array, plain_size(wanted),
                                [=] { return SHAREDGPU_REAL(cuArrayCreate, array, wanted); });
}

SHAREDGPU_EXPORT CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* wanted) {
  return hooks::allocate_native(Pinned::Kind::array, array, plain_size(wanted),
                                [=] { return SHAREDGPU_REAL(cuArray3DCreate, array, wanted); });
}

SHAREDGPU_EXPORT CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  return hooks::allocate_native(Pinned::Kind::array, array, plain_size(wanted),
                                [=] { return SHAREDGPU_REAL(cuArrayCreate_v2, array, wanted); });
}

SHAREDGPU_EXPORT CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  return hooks::allocate_native(Pinned::Kind::array, array, array_size(wanted),
                                [=] { return SHAREDGPU_REAL(cuArray3DCreate_v2, array, wanted); });
}

SHAREDGPU_EXPORT CUresult cuArrayDestroy(CUarray array) {
  return hooks::free_native(Pinned::Kind::array, array,
                            [=] { return SHAREDGPU_REAL(cuArrayDestroy, array); });
}

SHAREDGPU_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* array,
                                                 const CUDA_ARRAY3D_DESCRIPTOR* wanted, unsigned int levels) {
  return hooks::allocate_native(Pinned::Kind::mipmap, array, array_size(wanted, levels), [=] {
    return SHAREDGPU_REAL(cuMipmappedArrayCreate, array, wanted, levels);
  });
}

SHAREDGPU_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return hooks::free_native(Pinned::Kind::mipmap, array,
                            [=] { return SHAREDGPU_REAL(cuMipmappedArrayDestroy, array); });
}
