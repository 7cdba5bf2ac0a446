// SPDX-License-Identifier: Apache-2.0
// Native memory: memory that the driver itself allocates for the program. Native memory counts as pinned. It
// is allocated only while the lease is held, since the other tenants have then evicted enough memory.
#pragma once

#include "interposer/driver/call.h"
#include "interposer/gate/gate.h"
#include "interposer/hooks/holdings.h"
#include "interposer/process/process.h"

namespace sharedgpu::hooks {

// Decides whether to retry an allocation that the arbiter has granted. Another process may have given up the
// memory for this allocation, but the driver may not have freed this memory yet. The program sees
// CUDA_ERROR_OUT_OF_MEMORY only if the retries fail for two seconds.
class Patience {
 public:
  bool worth_another_try(CUresult result);

 private:
  int tries_ = 0;
};

CUcontext current_context();

// Returns the error of an earlier kernel, which the driver would also return for an allocation; CUDA_SUCCESS
// if no such error is known, during a capture, and in an unmanaged process.
CUresult sticky_error(CUstream stream);

template <class Handle>
unsigned long long key_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<unsigned long long>(handle);
  else
    return handle;
}

// Calls `real`, which stores a new handle in *result. The memory is not counted if the current device is
// unmanaged. It is not counted either if `size` exceeds the memory of every GPU, since the driver then
// refuses the call.
template <class Handle, class Call>
CUresult allocate_native(Pinned::Kind kind, Handle* result, Bytes size, Call real) {
  Pinning* memory = process::current_memory();
  if (memory == nullptr || size > kLargestAllocation) {
    gate::Pass pass;
    return real();
  }
  if (CUresult refused = memory->pin(size); refused != CUDA_SUCCESS) return refused;
  CUresult done;
  Patience patience;
  do {
    gate::Pass pass;
    done = real();
  } while (patience.worth_another_try(done));
  if (done == CUDA_SUCCESS && result != nullptr)
    pinned().add(kind, key_of(*result), {size, current_context(), memory});
  else
    memory->unpin(size);
  return done;
}

// Calls `real`, which releases the handle.
template <class Handle, class Call>
CUresult free_native(Pinned::Kind kind, Handle handle, Call real) {
  if (process::memories().empty()) return real();
  auto held = pinned().take(kind, key_of(handle));
  CUresult done = real();
  if (held && done == CUDA_SUCCESS) held->memory->unpin(held->size);
  if (held && done != CUDA_SUCCESS) pinned().add(kind, key_of(handle), *held);
  return done;
}

}  // namespace sharedgpu::hooks
