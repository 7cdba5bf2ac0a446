// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/kernel_arguments.h"

#include <cuda.h>

#include <cstddef>
#include <cstring>

#include "interposer/driver/call.h"

namespace sharedgpu::hooks {
namespace {

using session::Argument;

// cuFuncGetParamInfo and cuKernelGetParamInfo, which the cuda.h of CUDA 11.8 lacks.
using GetParamInfo = CUresult(std::uintptr_t kernel, std::size_t index, std::size_t* offset,
                              std::size_t* size);

constexpr std::size_t kMostParameters = 4096;  // bounds the loop if the driver misbehaves
constexpr std::size_t kMostBytes = 32768;      // the largest argument buffer that CUDA permits
// No device address lies outside these bounds.
constexpr CUdeviceptr kLowest = 1ull << 21;
constexpr CUdeviceptr kHighest = 1ull << 48;

// Adds the words of one argument that may be addresses. Compilers align pointers to eight bytes.
void scan(const std::byte* data, std::size_t size, std::size_t offset, std::vector<Argument>& found) {
  for (std::size_t at = 0; at + sizeof(CUdeviceptr) <= size; at += sizeof(CUdeviceptr)) {
    CUdeviceptr word = 0;
    std::memcpy(&word, data + at, sizeof word);
    if (word >= kLowest && word < kHighest) found.push_back({static_cast<std::uint32_t>(offset + at), word});
  }
}

// Finds the buffer that `extra` describes: pairs of a key and a value, ended by a null key.
void scan_extra(void* const* extra, std::vector<Argument>& found) {
  const void* data = nullptr;
  std::size_t size = 0;
  for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      data = extra[1];
    else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
      std::memcpy(&size, extra[1], sizeof size);
    else
      return;
  }
  if (data != nullptr && size <= kMostBytes) scan(static_cast<const std::byte*>(data), size, 0, found);
}

}  // namespace

std::vector<Argument> kernel_arguments(std::uintptr_t kernel, std::uintptr_t parameters,
                                       std::uintptr_t extra) {
  std::vector<Argument> found;
  if (extra != 0) scan_extra(reinterpret_cast<void* const*>(extra), found);
  if (parameters == 0) return found;
  const auto* const values = reinterpret_cast<const std::byte* const*>(parameters);
  using driver::Function;
  auto info = Function::cuFuncGetParamInfo;
  for (std::size_t index = 0; index < kMostParameters; ++index) {
    std::size_t offset = 0;
    std::size_t size = 0;
    CUresult result = driver::call<GetParamInfo>(info, kernel, index, &offset, &size);
    if (result != CUDA_SUCCESS && index == 0) {
      info = Function::cuKernelGetParamInfo;  // the launch names a CUkernel
      result = driver::call<GetParamInfo>(info, kernel, index, &offset, &size);
    }
    if (result != CUDA_SUCCESS || values[index] == nullptr || size > kMostBytes) break;
    scan(values[index], size, offset, found);
  }
  return found;
}

}  // namespace sharedgpu::hooks
