// SPDX-License-Identifier: Apache-2.0
// Physical memory of the program that cannot be swapped: imported memory, kinds that the swap backend does
// not support, and all memory of cuMemCreate with another backend. The driver allocates this memory. Device
// memory that the program has created counts as pinned, and host memory as uncharged host memory. Imported
// memory is not counted here. program_memory.cpp calls these functions for such memory.
#pragma once

#include <cuda.h>

namespace sharedgpu::hooks {

CUresult create_pinned(CUmemGenericAllocationHandle* handle, std::size_t size,
                       const CUmemAllocationProp* wanted, unsigned long long flags);
CUresult release_pinned(CUmemGenericAllocationHandle handle);
CUresult retain_pinned(CUmemGenericAllocationHandle* handle, void* address);
CUresult map_pinned(CUdeviceptr address, std::size_t size, std::size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult unmap_pinned(CUdeviceptr address, std::size_t size);

}  // namespace sharedgpu::hooks
