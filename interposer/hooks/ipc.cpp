// SPDX-License-Identifier: Apache-2.0
// Memory that processes of a tenant share by cuIpcGetMemHandle. The driver supports cuIpcGetMemHandle only
// for memory from the driver's own cuMemAlloc. Our memory is exported through the arbiter, as descriptors of
// its physical memory.
#include <unistd.h>

#include "interposer/driver/call.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/settle.h"
#include "interposer/process/process.h"

using namespace sharedgpu;

namespace {

// Exports the block's first piece, to test whether exporting works. If the export fails, the program gets an
// error already from cuIpcGetMemHandle, and can still share the memory by other means.
bool export_block(Pinning& memory, const AddressRange& block, CUipcMemHandle* handle) {
  Piece piece;
  if (memory.export_piece(block.base, 0, &piece) != CUDA_SUCCESS) return false;
  close(piece.descriptor);
  shared_memory::IpcTicket ticket;
  ticket.mapped = piece.total;
  ticket.offset = piece.offset;
  ticket.size = block.size;
  Process* const mine = Process::get();
  if (mine == nullptr || !mine->export_memory(memory, block.base, ticket.name)) return false;
  *handle = shared_memory::handle_of(ticket);
  return true;
}

template <class Call>
CUresult open(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags, Call real) {
  auto ticket = shared_memory::ticket_in(handle);
  if (!ticket) return real();
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  Process* const mine = Process::get();
  if (mine == nullptr) return CUDA_ERROR_MAP_FAILED;  // without a session, the memory cannot be requested
  if (mine->is_exporter_of(ticket->name)) return CUDA_ERROR_INVALID_CONTEXT;  // the driver refuses this, too
  return mine->imports().open(*ticket, address);
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  auto block = handle != nullptr ? hooks::allocation_at(address) : std::nullopt;
  // cuIpcGetMemHandle does not support memory of pools.
  if (!block || !block->memory->exportable() || block->pooled)
    return SHAREDGPU_REAL(cuIpcGetMemHandle, handle, address);
  if (CUresult refused = hooks::settle(*block); refused != CUDA_SUCCESS) return refused;
  if (!export_block(*block->memory, block->range, handle))
    return SHAREDGPU_REAL(cuIpcGetMemHandle, handle, address);
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                             unsigned int flags) {
  return open(address, handle, flags,
              [=] { return SHAREDGPU_REAL(cuIpcOpenMemHandle, address, handle, flags); });
}

SHAREDGPU_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle,
                                                unsigned int flags) {
  return open(address, handle, flags,
              [=] { return SHAREDGPU_REAL(cuIpcOpenMemHandle_v2, address, handle, flags); });
}

SHAREDGPU_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  if (Process* mine = Process::get())
    if (auto result = mine->imports().close(address)) return *result;
  return SHAREDGPU_REAL(cuIpcCloseMemHandle, address);
}
