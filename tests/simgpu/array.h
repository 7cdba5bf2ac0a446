// SPDX-License-Identifier: Apache-2.0
// Arrays. An array is memory of a context's heap. The program does not know its address. Texels lie row by
// row.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "tests/simgpu/context.h"

namespace sharedgpu::simgpu {

struct Array {
  ContextPtr context;
  CUDA_ARRAY3D_DESCRIPTOR wanted = {};
  Address memory = 0;  // 0: the program maps memory itself
  bool level = false;  // true if this is a level of a mipmapped array, whose memory it uses

  std::size_t pitch() const;   // bytes of a row
  std::size_t height() const;  // at least 1, like depth()
  std::size_t depth() const;
  Bytes size() const { return {pitch() * height() * depth()}; }
};

struct MipmappedArray {
  ContextPtr context;
  Address memory = 0;
  std::vector<std::shared_ptr<Array>> levels;
};

}  // namespace sharedgpu::simgpu
