// SPDX-License-Identifier: Apache-2.0
// Functions that launches and kernel nodes of graphs share.
#pragma once

#include "tests/simgpu/driver.h"
#include "tests/simgpu/graph_node.h"
#include "tests/simgpu/kernels.h"

namespace sharedgpu::simgpu {

struct Dimensions {
  unsigned x = 1, y = 1, z = 1;
};

std::shared_ptr<Function> find_function(CUfunction handle);
// The function to launch. `handle` may be a CUkernel, too, as in cuLaunchKernel.
std::shared_ptr<Function> find_launchable(CUfunction handle);
// Throws CUDA_ERROR_INVALID_VALUE if the device does not support such a grid.
void check_grid(Dimensions grid, Dimensions block);
// Copies the arguments from cuLaunchKernel's `kernelParams`, or from its `extra`.
Arguments collect(const Kernel& kernel, void** parameters, void** extra);

}  // namespace sharedgpu::simgpu
