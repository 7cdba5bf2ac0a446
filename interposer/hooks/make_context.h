// SPDX-License-Identifier: Apache-2.0
// Creation of a context, for which the driver allocates device memory that cannot be swapped.
#pragma once

#include <cuda.h>

#include "interposer/hooks/native.h"

namespace sharedgpu::hooks {

// Creates a context by calling `real`. If `real` succeeds, calls `added`. If the GPU has too little free
// memory for a context, the function requests pinned memory from the arbiter, in growing amounts, so that
// other tenants evict. After each attempt, the function returns the requested memory to the arbiter. By then,
// a new context is itself counted.
template <class Call, class Added>
CUresult make_context(CUdevice device, Call real, Added added) {
  CUresult result = real();
  if (result == CUDA_SUCCESS) added();
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  if (Process* mine = Process::get()) mine->attach(device);
  session::DeviceSession* const session = process::session_of(device);
  if (session == nullptr) return result;
  Pinning* const memory = session->memory();
  for (const std::uint64_t quarters : {1, 4, 16}) {
    const Bytes room{session->usual_context().count / 4 * quarters};
    if (memory->pin(room) != CUDA_SUCCESS) break;
    Patience patience;
    do result = real();
    while (patience.worth_another_try(result));
    if (result == CUDA_SUCCESS) added();
    memory->unpin(room);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) break;
  }
  return result;
}

}  // namespace sharedgpu::hooks
