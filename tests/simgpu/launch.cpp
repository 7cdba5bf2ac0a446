// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/launch.h"

namespace sharedgpu::simgpu {

std::shared_ptr<Function> find_function(CUfunction handle) { return driver().functions.get(handle); }

std::shared_ptr<Function> find_launchable(CUfunction handle) {
  auto kernel = driver().kernels.find(handle);
  return kernel != nullptr ? kernel->function : find_function(handle);
}

void check_grid(Dimensions grid, Dimensions block) {
  require(
      grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535,
      CUDA_ERROR_INVALID_VALUE);
  require(block.x > 0 && block.y > 0 && block.z > 0 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
              block.x * block.y * block.z <= 1024,
          CUDA_ERROR_INVALID_VALUE);
}

Arguments collect(const Kernel& kernel, void** parameters, void** extra) {
  const auto& sizes = kernel.parameters;
  std::size_t total = sizes.empty() ? 0 : parameter_offset(sizes, sizes.size() - 1) + sizes.back();
  std::vector<std::byte> bytes(total);
  require(parameters == nullptr || extra == nullptr, CUDA_ERROR_INVALID_VALUE);
  if (extra != nullptr) {
    const void* buffer = nullptr;
    std::size_t size = 0;
    for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
      if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = at[1];
      if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<std::size_t*>(at[1]);
    }
    require(size >= total && (total == 0 || buffer != nullptr), CUDA_ERROR_INVALID_VALUE);
    if (total > 0) std::memcpy(bytes.data(), buffer, total);
  } else {
    require(sizes.empty() || parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      std::memcpy(bytes.data() + parameter_offset(sizes, i), parameters[i], sizes[i]);
  }
  return {sizes, std::move(bytes)};
}

}  // namespace sharedgpu::simgpu
