// SPDX-License-Identifier: Apache-2.0
// Copies and memsets.
#include <cstring>

#include "tests/simgpu/api.h"
#include "tests/simgpu/graph_node.h"
#include "tests/simgpu/work.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

namespace {

// The memory in which the source or the target of a copy must be.
enum class Side { device, host, either };
enum class Wait { no, yes };

// Returns true for ranges that the device can access, and for graph memory, whose addresses exist before the
// memory is allocated.
bool known_to_device(const Range& range) {
  return driver().space->accessible(range) || driver().graph_memory->covers(range);
}
bool in_reservation(Address at) { return driver().space->reservation_at(at).has_value(); }

void check_side(Side side, const Range& range) {
  bool device = side == Side::device || (side == Side::either && in_reservation(range.begin));
  require(!device || known_to_device(range), CUDA_ERROR_INVALID_VALUE);
}

// Returns true for pageable host memory, which the driver copies through its own buffers.
bool pageable(Address at) { return !in_reservation(at) && !driver().space->host_at(at).has_value(); }

void copy_between(const StreamPtr& stream, CopyPlan plan, Side target, Side source, Wait wait_mode) {
  if (plan.width == 0 || plan.height == 0) return;
  if (wait_mode == Wait::yes) forbid_capture(*stream);
  check_side(target, plan.target_range());
  check_side(source, plan.source_range());
  bool must_wait = wait_mode == Wait::yes;
  if (!must_wait && !capturing(*stream)) {
    if (pageable(plan.source) && !pageable(plan.target)) {
      // The program may change the source as soon as the call returns.
      auto begin = pointer<const char>(plan.source);
      plan.staging = std::make_shared<std::vector<char>>(begin, begin + plan.source_range().size.count);
      plan.source = reinterpret_cast<Address>(plan.staging->data());
    }
    must_wait = pageable(plan.target);
  }
  Work work = copy_work(plan);
  work.parameters = std::make_shared<const NodeParameters>(NodeParameters{copy_parameters(plan)});
  TaskPtr task = submit(stream, std::move(work));
  if (!must_wait || !task) return;
  CUresult result = wait(task);
  require(result == CUDA_SUCCESS, result);
}

// The access rights of the current context's device apply; the stream's device does not matter (measured on
// two H200).
void copy(const StreamPtr& stream, CopyPlan plan, Side target, Side source, Wait wait_mode) {
  plan.target_device = plan.source_device = current_context()->device();
  copy_between(stream, std::move(plan), target, source, wait_mode);
}

int device_of(CUcontext context) {
  return driver().contexts.get(context, CUDA_ERROR_INVALID_CONTEXT)->device();
}

CUresult copy_line(const char* name, DefaultStream zero, CUstream handle, Address target, Side target_side,
                   Address source, Side source_side, std::size_t size, Wait wait_mode) {
  return call(name, Needs::context, [&] {
    CopyPlan plan;
    plan.target = target;
    plan.source = source;
    plan.width = plan.target_pitch = plan.source_pitch = size;
    copy(find_stream(zero, handle), plan, target_side, source_side, wait_mode);
  });
}

CUresult copy_peer(const char* name, DefaultStream zero, CUstream handle, Address target,
                   CUcontext target_context, Address source, CUcontext source_context, std::size_t size,
                   Wait wait_mode) {
  return call(name, Needs::context, [&] {
    CopyPlan plan;
    plan.target = target;
    plan.source = source;
    plan.width = plan.target_pitch = plan.source_pitch = size;
    plan.target_device = device_of(target_context);
    plan.source_device = device_of(source_context);
    copy_between(find_stream(zero, handle), plan, Side::device, Side::device, wait_mode);
  });
}

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

CUresult any(DefaultStream zero, CUdeviceptr target, CUdeviceptr source, std::size_t size) {
  return copy_line("cuMemcpy", zero, nullptr, target, Side::either, source, Side::either, size, Wait::yes);
}
CUresult any_async(DefaultStream zero, CUdeviceptr target, CUdeviceptr source, std::size_t size, CUstream s) {
  return copy_line("cuMemcpyAsync", zero, s, target, Side::either, source, Side::either, size, Wait::no);
}
CUresult in(DefaultStream zero, CUdeviceptr target, const void* source, std::size_t size) {
  return copy_line("cuMemcpyHtoD", zero, nullptr, target, Side::device, address_of(source), Side::host, size,
                   Wait::yes);
}
CUresult in_async(DefaultStream zero, CUdeviceptr target, const void* source, std::size_t size, CUstream s) {
  return copy_line("cuMemcpyHtoDAsync", zero, s, target, Side::device, address_of(source), Side::host, size,
                   Wait::no);
}
CUresult out(DefaultStream zero, void* target, CUdeviceptr source, std::size_t size) {
  return copy_line("cuMemcpyDtoH", zero, nullptr, address_of(target), Side::host, source, Side::device, size,
                   Wait::yes);
}
CUresult out_async(DefaultStream zero, void* target, CUdeviceptr source, std::size_t size, CUstream s) {
  return copy_line("cuMemcpyDtoHAsync", zero, s, address_of(target), Side::host, source, Side::device, size,
                   Wait::no);
}
CUresult within(DefaultStream zero, CUdeviceptr target, CUdeviceptr source, std::size_t size) {
  return copy_line("cuMemcpyDtoD", zero, nullptr, target, Side::device, source, Side::device, size, Wait::no);
}
CUresult within_async(DefaultStream zero, CUdeviceptr target, CUdeviceptr source, std::size_t size,
                      CUstream s) {
  return copy_line("cuMemcpyDtoDAsync", zero, s, target, Side::device, source, Side::device, size, Wait::no);
}

CUresult peer(DefaultStream zero, CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
              CUcontext source_context, std::size_t size) {
  return copy_peer("cuMemcpyPeer", zero, nullptr, target, target_context, source, source_context, size,
                   Wait::no);
}
CUresult peer_async(DefaultStream zero, CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                    CUcontext source_context, std::size_t size, CUstream s) {
  return copy_peer("cuMemcpyPeerAsync", zero, s, target, target_context, source, source_context, size,
                   Wait::no);
}

// One side of a copy: the address of the copied box's corner, and the pitches of the memory that contains the
// box.
struct Place {
  Address at = 0;
  Side side = Side::either;
  std::size_t pitch = 0;  // bytes of a row
  std::size_t plane = 0;  // bytes of a plane
};
struct Box {
  std::size_t x = 0;  // bytes
  std::size_t y = 0;
  std::size_t z = 0;
};

Place place_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array, std::size_t pitch,
               std::size_t height, const Box& corner, const Box& size) {
  Place place;
  place.pitch = pitch == 0 ? size.x : pitch;
  place.plane = place.pitch * (height == 0 ? size.y : height);
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      place.at = address_of(host);
      place.side = Side::host;
      break;
    case CU_MEMORYTYPE_DEVICE:
      place.at = device;
      place.side = Side::device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      place.at = device;
      break;
    default: {
      auto found = driver().arrays.get(array);
      require(!found->context->destroyed(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
      require(found->memory != 0 && corner.x + size.x <= found->pitch() &&
                  corner.y + size.y <= found->height() && corner.z + size.z <= found->depth(),
              CUDA_ERROR_INVALID_VALUE);
      place = {found->memory, Side::device, found->pitch(), found->pitch() * found->height()};
    }
  }
  require(place.pitch >= size.x && place.plane >= place.pitch * size.y, CUDA_ERROR_INVALID_VALUE);
  place.at += corner.z * place.plane + corner.y * place.pitch + corner.x;
  return place;
}

CopyPlan plan_plane(const Place& target, const Place& source, const Box& size, std::size_t z) {
  CopyPlan plan;
  plan.target = target.at + z * target.plane;
  plan.source = source.at + z * source.plane;
  plan.width = size.x;
  plan.height = size.y;
  plan.target_pitch = target.pitch;
  plan.source_pitch = source.pitch;
  return plan;
}

// Copies a box, plane by plane.
void copy_box(const StreamPtr& stream, Place target, Place source, const Box& size, Wait wait_mode) {
  for (std::size_t z = 0; z < size.z; ++z) {
    copy(stream, plan_plane(target, source, size, z), target.side, source.side, wait_mode);
  }
}

CUresult copy_rows(const char* name, DefaultStream zero, CUstream handle, const CUDA_MEMCPY2D* request,
                   Wait wait_mode) {
  return call(name, Needs::context, [&] {
    require(request != nullptr, CUDA_ERROR_INVALID_VALUE);
    const CUDA_MEMCPY2D& r = *request;
    const Box size{r.WidthInBytes, r.Height, 1};
    const Place target = place_of(r.dstMemoryType, r.dstHost, r.dstDevice, r.dstArray, r.dstPitch, 0,
                                  {r.dstXInBytes, r.dstY, 0}, size);
    const Place source = place_of(r.srcMemoryType, r.srcHost, r.srcDevice, r.srcArray, r.srcPitch, 0,
                                  {r.srcXInBytes, r.srcY, 0}, size);
    copy_box(find_stream(zero, handle), target, source, size, wait_mode);
  });
}

struct Sides {
  Place target;
  Place source;
  Box size;
};
Sides sides_of(const CUDA_MEMCPY3D& r) {
  const Box size{r.WidthInBytes, r.Height, r.Depth};
  return {place_of(r.dstMemoryType, r.dstHost, r.dstDevice, r.dstArray, r.dstPitch, r.dstHeight,
                   {r.dstXInBytes, r.dstY, r.dstZ}, size),
          place_of(r.srcMemoryType, r.srcHost, r.srcDevice, r.srcArray, r.srcPitch, r.srcHeight,
                   {r.srcXInBytes, r.srcY, r.srcZ}, size),
          size};
}

CUresult copy_planes(const char* name, DefaultStream zero, CUstream handle, const CUDA_MEMCPY3D* request,
                     Wait wait_mode) {
  return call(name, Needs::context, [&] {
    require(request != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto [target, source, size] = sides_of(*request);
    copy_box(find_stream(zero, handle), target, source, size, wait_mode);
  });
}

CUresult planes(DefaultStream zero, const CUDA_MEMCPY3D* r) {
  return copy_planes("cuMemcpy3D", zero, nullptr, r, Wait::yes);
}
CUresult planes_async(DefaultStream zero, const CUDA_MEMCPY3D* r, CUstream s) {
  return copy_planes("cuMemcpy3DAsync", zero, s, r, Wait::no);
}

// Copies one row of an array.
CUresult into_array(DefaultStream zero, CUarray array, std::size_t offset, const void* host,
                    std::size_t size) {
  return call("cuMemcpyHtoA", Needs::context, [&] {
    const Box box{size, 1, 1};
    copy_box(find_stream(zero, nullptr),
             place_of(CU_MEMORYTYPE_ARRAY, nullptr, 0, array, 0, 0, {offset, 0, 0}, box),
             place_of(CU_MEMORYTYPE_HOST, host, 0, nullptr, 0, 0, {}, box), box, Wait::yes);
  });
}
CUresult out_of_array(DefaultStream zero, void* host, CUarray array, std::size_t offset, std::size_t size) {
  return call("cuMemcpyAtoH", Needs::context, [&] {
    const Box box{size, 1, 1};
    copy_box(find_stream(zero, nullptr), place_of(CU_MEMORYTYPE_HOST, host, 0, nullptr, 0, 0, {}, box),
             place_of(CU_MEMORYTYPE_ARRAY, nullptr, 0, array, 0, 0, {offset, 0, 0}, box), box, Wait::yes);
  });
}

CUresult rows(DefaultStream zero, const CUDA_MEMCPY2D* r) {
  return copy_rows("cuMemcpy2D", zero, nullptr, r, Wait::yes);
}
CUresult rows_unaligned(DefaultStream zero, const CUDA_MEMCPY2D* r) {
  return copy_rows("cuMemcpy2DUnaligned", zero, nullptr, r, Wait::yes);
}
CUresult rows_async(DefaultStream zero, const CUDA_MEMCPY2D* r, CUstream s) {
  return copy_rows("cuMemcpy2DAsync", zero, s, r, Wait::no);
}

CUresult set(const char* name, DefaultStream zero, CUstream handle, const SetPlan& plan) {
  return call(name, Needs::context, [&] {
    require(plan.target % plan.element == 0, CUDA_ERROR_INVALID_VALUE);
    StreamPtr stream = find_stream(zero, handle);
    if (plan.width == 0 || plan.height == 0) return;
    Range range = plan.range();
    range.device = stream->context->device();
    require(known_to_device(range), CUDA_ERROR_INVALID_VALUE);
    Work work = set_work(plan);
    work.parameters = std::make_shared<const NodeParameters>(NodeParameters{set_parameters(plan)});
    submit(stream, std::move(work));
  });
}

template <std::size_t kElement, class T>
CUresult set_line(DefaultStream zero, CUdeviceptr at, T value, std::size_t count) {
  return set(kElement == 1   ? "cuMemsetD8"
             : kElement == 2 ? "cuMemsetD16"
                             : "cuMemsetD32",
             zero, nullptr, {at, value, kElement, count, 1, count * kElement});
}
template <std::size_t kElement, class T>
CUresult set_line_async(DefaultStream zero, CUdeviceptr at, T value, std::size_t count, CUstream s) {
  return set(kElement == 1   ? "cuMemsetD8Async"
             : kElement == 2 ? "cuMemsetD16Async"
                             : "cuMemsetD32Async",
             zero, s, {at, value, kElement, count, 1, count * kElement});
}
template <std::size_t kElement, class T>
CUresult set_rows(DefaultStream zero, CUdeviceptr at, std::size_t pitch, T value, std::size_t width,
                  std::size_t height) {
  return set(kElement == 1   ? "cuMemsetD2D8"
             : kElement == 2 ? "cuMemsetD2D16"
                             : "cuMemsetD2D32",
             zero, nullptr, {at, value, kElement, width, height, pitch});
}
template <std::size_t kElement, class T>
CUresult set_rows_async(DefaultStream zero, CUdeviceptr at, std::size_t pitch, T value, std::size_t width,
                        std::size_t height, CUstream s) {
  return set(kElement == 1   ? "cuMemsetD2D8Async"
             : kElement == 2 ? "cuMemsetD2D16Async"
                             : "cuMemsetD2D32Async",
             zero, s, {at, value, kElement, width, height, pitch});
}

using Ptr = CUdeviceptr;
using Size = std::size_t;
using Stream_ = CUstream;
using U8 = unsigned char;
using U16 = unsigned short;
using U32 = unsigned int;

}  // namespace

Work sharedgpu::simgpu::copy_node_work(const CUDA_MEMCPY3D& copy) {
  const auto [target, source, size] = sides_of(copy);
  std::vector<Work> planes;
  for (std::size_t z = 0; z < size.z; ++z) {
    CopyPlan plan = plan_plane(target, source, size, z);
    plan.target_device = plan.source_device = current_context()->device();
    check_side(target.side, plan.target_range());
    check_side(source.side, plan.source_range());
    planes.push_back(copy_work(plan));
  }
  Work work = graph_work(std::move(planes));
  work.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  return work;
}

#undef cuMemcpy
#undef cuMemcpyAsync
#undef cuMemcpyPeer
#undef cuMemcpyPeerAsync
#undef cuMemsetD8Async
#undef cuMemsetD16Async
#undef cuMemsetD32Async
#undef cuMemsetD2D8Async
#undef cuMemsetD2D16Async
#undef cuMemsetD2D32Async

extern "C" {

SIMGPU_BOTH(cuMemcpy, _ptds, any, (Ptr t, Ptr s, Size n), t, s, n)
SIMGPU_BOTH(cuMemcpyAsync, _ptsz, any_async, (Ptr t, Ptr s, Size n, Stream_ q), t, s, n, q)
SIMGPU_BOTH(cuMemcpyHtoD_v2, _ptds, in, (Ptr t, const void* s, Size n), t, s, n)
SIMGPU_BOTH(cuMemcpyHtoDAsync_v2, _ptsz, in_async, (Ptr t, const void* s, Size n, Stream_ q), t, s, n, q)
SIMGPU_BOTH(cuMemcpyDtoH_v2, _ptds, out, (void* t, Ptr s, Size n), t, s, n)
SIMGPU_BOTH(cuMemcpyDtoHAsync_v2, _ptsz, out_async, (void* t, Ptr s, Size n, Stream_ q), t, s, n, q)
SIMGPU_BOTH(cuMemcpyDtoD_v2, _ptds, within, (Ptr t, Ptr s, Size n), t, s, n)
SIMGPU_BOTH(cuMemcpyDtoDAsync_v2, _ptsz, within_async, (Ptr t, Ptr s, Size n, Stream_ q), t, s, n, q)
SIMGPU_BOTH(cuMemcpyPeer, _ptds, peer, (Ptr t, CUcontext c, Ptr s, CUcontext d, Size n), t, c, s, d, n)
SIMGPU_BOTH(cuMemcpyPeerAsync, _ptsz, peer_async, (Ptr t, CUcontext c, Ptr s, CUcontext d, Size n, Stream_ q),
            t, c, s, d, n, q)
SIMGPU_BOTH(cuMemcpy2D_v2, _ptds, rows, (const CUDA_MEMCPY2D* r), r)
SIMGPU_BOTH(cuMemcpy2DUnaligned_v2, _ptds, rows_unaligned, (const CUDA_MEMCPY2D* r), r)
SIMGPU_BOTH(cuMemcpy2DAsync_v2, _ptsz, rows_async, (const CUDA_MEMCPY2D* r, Stream_ q), r, q)
SIMGPU_BOTH(cuMemcpy3D_v2, _ptds, planes, (const CUDA_MEMCPY3D* r), r)
SIMGPU_BOTH(cuMemcpy3DAsync_v2, _ptsz, planes_async, (const CUDA_MEMCPY3D* r, Stream_ q), r, q)
SIMGPU_BOTH(cuMemcpyHtoA_v2, _ptds, into_array, (CUarray t, Size o, const void* s, Size n), t, o, s, n)
SIMGPU_BOTH(cuMemcpyAtoH_v2, _ptds, out_of_array, (void* t, CUarray s, Size o, Size n), t, s, o, n)
SIMGPU_BOTH(cuMemsetD8_v2, _ptds, set_line<1>, (Ptr t, U8 v, Size n), t, v, n)
SIMGPU_BOTH(cuMemsetD16_v2, _ptds, set_line<2>, (Ptr t, U16 v, Size n), t, v, n)
SIMGPU_BOTH(cuMemsetD32_v2, _ptds, set_line<4>, (Ptr t, U32 v, Size n), t, v, n)
SIMGPU_BOTH(cuMemsetD8Async, _ptsz, set_line_async<1>, (Ptr t, U8 v, Size n, Stream_ q), t, v, n, q)
SIMGPU_BOTH(cuMemsetD16Async, _ptsz, set_line_async<2>, (Ptr t, U16 v, Size n, Stream_ q), t, v, n, q)
SIMGPU_BOTH(cuMemsetD32Async, _ptsz, set_line_async<4>, (Ptr t, U32 v, Size n, Stream_ q), t, v, n, q)
SIMGPU_BOTH(cuMemsetD2D8_v2, _ptds, set_rows<1>, (Ptr t, Size p, U8 v, Size w, Size h), t, p, v, w, h)
SIMGPU_BOTH(cuMemsetD2D16_v2, _ptds, set_rows<2>, (Ptr t, Size p, U16 v, Size w, Size h), t, p, v, w, h)
SIMGPU_BOTH(cuMemsetD2D32_v2, _ptds, set_rows<4>, (Ptr t, Size p, U32 v, Size w, Size h), t, p, v, w, h)
SIMGPU_BOTH(cuMemsetD2D8Async, _ptsz, set_rows_async<1>, (Ptr t, Size p, U8 v, Size w, Size h, Stream_ q), t,
            p, v, w, h, q)
SIMGPU_BOTH(cuMemsetD2D16Async, _ptsz, set_rows_async<2>, (Ptr t, Size p, U16 v, Size w, Size h, Stream_ q),
            t, p, v, w, h, q)
SIMGPU_BOTH(cuMemsetD2D32Async, _ptsz, set_rows_async<4>, (Ptr t, Size p, U32 v, Size w, Size h, Stream_ q),
            t, p, v, w, h, q)

}  // extern "C"
