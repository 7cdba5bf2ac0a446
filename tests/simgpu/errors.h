// SPDX-License-Identifier: Apache-2.0
// CUDA error codes as names and text, and the exception that carries one inside the simulator.
#pragma once

#include <cuda.h>

#include <string>

namespace sharedgpu::simgpu {

struct ErrorName {
  CUresult code;
  const char* name;
  const char* text;
};

const ErrorName* find_error(CUresult code);
const ErrorName* find_error(const std::string& name);

// Thrown inside the simulator only; call() turns it into the returned code.
struct Error {
  CUresult code;
};

inline void require(bool condition, CUresult otherwise) {
  if (!condition) throw Error{otherwise};
}

}  // namespace sharedgpu::simgpu
