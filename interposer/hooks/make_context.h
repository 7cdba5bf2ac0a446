// SPDX-License-Identifier: Apache-2.0
// Making a context: it takes device memory that cannot be swapped.
#pragma once

#include <cuda.h>

#include "interposer/hooks/native.h"

namespace sharedgpu::hooks {

// Calls `real`, which makes a context, and `added` where it has. Where the driver has no room for one, others
// are to make some: the arbiter is told of the context before it is there, and of more and more room for it
// as memory that cannot be swapped, until it counts itself.
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
