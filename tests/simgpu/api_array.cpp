// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays. Supports only formats with whole bytes per channel.
#include <algorithm>
#include <bit>

#include "tests/simgpu/api.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

namespace sharedgpu::simgpu {
namespace {

std::size_t channel_size(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

std::size_t Array::pitch() const { return wanted.Width * channel_size(wanted.Format) * wanted.NumChannels; }
std::size_t Array::height() const { return std::max<std::size_t>(wanted.Height, 1); }
std::size_t Array::depth() const { return std::max<std::size_t>(wanted.Depth, 1); }

}  // namespace sharedgpu::simgpu

namespace {

constexpr unsigned kMappedLater = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

std::shared_ptr<Array> describe(const CUDA_ARRAY3D_DESCRIPTOR& wanted) {
  auto array = std::make_shared<Array>();
  array->context = current_context();
  array->wanted = wanted;
  require(wanted.NumChannels == 1 || wanted.NumChannels == 2 || wanted.NumChannels == 4,
          CUDA_ERROR_INVALID_VALUE);
  require(channel_size(wanted.Format) != 0 && wanted.Width > 0, CUDA_ERROR_INVALID_VALUE);
  require(wanted.Height > 0 || wanted.Depth == 0 || (wanted.Flags & CUDA_ARRAY3D_LAYERED) != 0,
          CUDA_ERROR_INVALID_VALUE);
  return array;
}

CUresult create(const char* name, CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& wanted) {
  return call(name, Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto array = describe(wanted);
    count_allocation();
    if ((wanted.Flags & kMappedLater) == 0) array->memory = array->context->heap().allocate(array->size());
    *out = reinterpret_cast<CUarray>(driver().arrays.add(array));
  });
}

// The memory of arrays is freed with their context, but their handles remain.
template <class Object>
void require_context(const Object& object) {
  require(!object.context->destroyed(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

CUresult get_descriptor(const char* name, CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return call(name, Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = driver().arrays.get(handle)->wanted;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  if (wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create("cuArrayCreate", out,
                {wanted->Width, wanted->Height, 0, wanted->Format, wanted->NumChannels, 0});
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  if (wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create("cuArray3DCreate", out, *wanted);
}

CUresult CUDAAPI cuArrayDestroy(CUarray handle) {
  return call("cuArrayDestroy", Needs::init, [&] {
    auto array = driver().arrays.get(handle);
    require_context(*array);
    require(!array->level, CUDA_ERROR_INVALID_HANDLE);
    synchronize(*array->context);
    driver().arrays.remove(handle);
    if (array->memory != 0) array->context->heap().free(array->memory);
  });
}

CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = {};
  CUresult result = get_descriptor("cuArrayGetDescriptor", out == nullptr ? nullptr : &wanted, handle);
  if (result == CUDA_SUCCESS) *out = {wanted.Width, wanted.Height, wanted.Format, wanted.NumChannels};
  return result;
}

CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return get_descriptor("cuArray3DGetDescriptor", out, handle);
}

// The levels of a mipmapped array lie one after the other in memory.
CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted,
                                        unsigned int levels) {
  if (wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return call("cuMipmappedArrayCreate", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto whole = std::make_shared<MipmappedArray>();
    whole->context = current_context();
    const bool layered = (wanted->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    const std::size_t longest = std::max({wanted->Width, wanted->Height, layered ? 0 : wanted->Depth});
    levels = std::clamp(levels, 1u, static_cast<unsigned>(std::bit_width(longest)));
    auto shrunk = [](std::size_t length, unsigned level) {
      return length == 0 ? 0 : std::max<std::size_t>(length >> level, 1);
    };
    Bytes size;
    for (unsigned level = 0; level < levels; ++level) {
      CUDA_ARRAY3D_DESCRIPTOR its = *wanted;
      its.Width = shrunk(its.Width, level);
      its.Height = shrunk(its.Height, level);
      if (!layered) its.Depth = shrunk(its.Depth, level);
      auto array = describe(its);
      array->level = true;
      array->memory = size.count;  // offset of the level; the address of the mipmapped array is added below
      size += array->size();
      whole->levels.push_back(array);
    }
    count_allocation();
    const bool mapped_later = (wanted->Flags & kMappedLater) != 0;
    if (!mapped_later) whole->memory = whole->context->heap().allocate(size);
    for (auto& array : whole->levels) {
      array->memory = mapped_later ? 0 : whole->memory + array->memory;
      driver().arrays.add(array);
    }
    *out = reinterpret_cast<CUmipmappedArray>(driver().mipmaps.add(whole));
  });
}

CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned int level) {
  return call("cuMipmappedArrayGetLevel", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto whole = driver().mipmaps.get(handle);
    require(level < whole->levels.size(), CUDA_ERROR_INVALID_VALUE);
    *out = reinterpret_cast<CUarray>(whole->levels[level].get());
  });
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  return call("cuMipmappedArrayDestroy", Needs::init, [&] {
    auto whole = driver().mipmaps.get(handle);
    require_context(*whole);
    synchronize(*whole->context);
    driver().mipmaps.remove(handle);
    for (const auto& array : whole->levels) driver().arrays.remove(array.get());
    if (whole->memory != 0) whole->context->heap().free(whole->memory);
  });
}

}  // extern "C"
