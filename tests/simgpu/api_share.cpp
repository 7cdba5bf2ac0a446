// SPDX-License-Identifier: Apache-2.0
// Memory for other processes and devices: legacy IPC, dma-buf, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/simgpu/api.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

namespace {

constexpr std::uint64_t kMagic = 0x4350492055504753;

// The contents of a CUipcMemHandle of the simulated driver. A process that opens the handle gets the memory
// by opening `descriptor` of process `pid` in /proc.
struct IpcHandle {
  std::uint64_t magic = kMagic;
  std::int64_t pid = 0;
  std::int64_t descriptor = 0;
  SharedPiece piece;
  Bytes size;
  std::uint64_t offset = 0;  // offset of the allocation in the piece
};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

// The allocation of cuMemAlloc that `at` lies in. Legacy IPC supports only such memory, not memory of
// cuMemMap or of pools.
std::optional<Range> find_in_heap(Address at) {
  std::optional<Range> found;
  driver().contexts.for_each([&](Context& context) {
    if (!found) found = context.heap().find(at);
  });
  return found;
}

CUresult open_handle(CUdeviceptr* out, const CUipcMemHandle& given, unsigned flags) {
  return call("cuIpcOpenMemHandle", Needs::context, [&] {
    IpcHandle handle;
    std::memcpy(static_cast<void*>(&handle), &given, sizeof handle);
    require(out != nullptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
    require(handle.magic == kMagic, CUDA_ERROR_INVALID_VALUE);
    require(handle.pid != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    Driver& d = driver();
    const int here = d.current_gpu().number;
    std::lock_guard lock(d.mutex);
    for (auto& [address, opened] : d.opened) {
      if (!(opened.piece == handle.piece) || address - opened.mapping != handle.offset) continue;
      ++opened.times;
      d.space->set_access(opened.mapping, opened.size, Access::read_write, here);
      *out = address;
      return;
    }
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(handle.pid),
                  static_cast<long long>(handle.descriptor));
    // open() fails if the exporting process has ended. The real driver's result in this case was not
    // measured.
    UniqueFd file(open(path, O_RDWR | O_CLOEXEC));
    require(static_cast<bool>(file), CUDA_ERROR_INVALID_VALUE);
    struct stat info = {};
    Gpu& gpu = d.gpu_of(handle.piece);
    require(fstat(file.get(), &info) == 0 && info.st_ino == handle.piece.file &&
                gpu.shared->is_held(handle.piece),
            CUDA_ERROR_INVALID_VALUE);
    auto physical = std::make_shared<Physical>(*gpu.shared, gpu.number, std::move(file), handle.piece.offset,
                                               handle.size);
    const Address mapping = d.space->reserve(handle.size, kGranule, 0);
    d.space->map(mapping, handle.size, physical, true);
    d.space->set_access(mapping, handle.size, Access::read_write, gpu.number);
    d.space->set_access(mapping, handle.size, Access::read_write, here);
    *out = mapping + handle.offset;
    d.opened[*out] = {handle.piece, mapping, handle.size, 1};
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr pointer) {
  return call("cuIpcGetMemHandle", Needs::context, [&] {
    auto found = find_in_heap(pointer);
    require(out != nullptr && found.has_value(), CUDA_ERROR_INVALID_VALUE);
    AddressSpace& space = *driver().space;
    PhysicalPtr physical = space.physical_at(found->begin);
    // The descriptor stays in this process. The handle has only its number.
    UniqueFd shared(physical->share());
    IpcHandle handle;
    handle.pid = getpid();
    handle.descriptor = physical->file();
    handle.piece = physical->name();
    handle.size = physical->size();
    handle.offset = found->begin - space.mapping_at(found->begin)->begin;
    *out = {};
    std::memcpy(out, &handle, sizeof handle);
  });
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(out, handle, flags);
}
CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(out, handle, flags);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr pointer) {
  return call("cuIpcCloseMemHandle", Needs::context, [&] {
    Driver& d = driver();
    CUresult result = synchronize(*current_context());
    require(result == CUDA_SUCCESS, result);
    std::lock_guard lock(d.mutex);
    auto found = d.opened.find(pointer);
    require(found != d.opened.end(), CUDA_ERROR_INVALID_VALUE);
    if (--found->second.times > 0) return;
    const Driver::Opened opened = found->second;
    d.opened.erase(found);
    d.space->unmap(opened.mapping, opened.size);
    d.space->free_reservation(opened.mapping, opened.size);
  });
}

// The descriptor stands for a dma-buf. It keeps the memory allocated, but supports no operation.
CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, std::size_t size,
                                               CUmemRangeHandleType type, unsigned long long) {
  return call("cuMemGetHandleForAddressRange", Needs::device, [&] {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    require(handle != nullptr && type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD && size > 0 &&
                size % page == 0 && pointer % page == 0,
            CUDA_ERROR_INVALID_VALUE);
    AddressSpace& space = *driver().space;
    Range range{pointer, {size}};
    range.device = driver().current_gpu().number;
    require(space.accessible(range) && driver().managed_at(pointer) == nullptr, CUDA_ERROR_INVALID_VALUE);
    const int descriptor = space.physical_at(pointer)->share();
    std::memcpy(handle, &descriptor, sizeof descriptor);
  });
}

CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                       CUdeviceptr pointer) {
  return call("cuPointerSetAttribute", Needs::init, [&] {
    require(value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    Driver& d = driver();
    auto found = find_in_heap(pointer);
    require(found || d.space->mapping_at(pointer), CUDA_ERROR_INVALID_VALUE);
    require(found.has_value(), CUDA_ERROR_NOT_SUPPORTED);  // as a real driver does for cuMemMap
    std::lock_guard lock(d.mutex);
    if (*static_cast<const unsigned*>(value) != 0)
      d.sync_memops.insert(found->begin);
    else
      d.sync_memops.erase(found->begin);
  });
}

}  // extern "C"
