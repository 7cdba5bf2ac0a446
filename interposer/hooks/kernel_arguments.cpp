// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/kernel_arguments.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <span>

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

// Adds the words that may be addresses, of one argument or of a whole argument buffer. Compilers align
// pointers to eight bytes.
void scan(const std::byte* data, std::size_t size, std::size_t offset, std::vector<Argument>& found) {
  for (std::size_t at = 0; at + sizeof(CUdeviceptr) <= size; at += sizeof(CUdeviceptr)) {
    CUdeviceptr word = 0;
    std::memcpy(&word, data + at, sizeof word);
    if (word >= kLowest && word < kHighest) found.push_back({static_cast<std::uint32_t>(offset + at), word});
  }
}

// The argument buffer that `extra` describes; empty if `extra` describes no valid buffer. `extra` is a list
// of pairs of a key and a value. A null key ends the list.
std::span<const std::byte> buffer_of(std::uintptr_t extra) {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  for (auto pair = reinterpret_cast<void* const*>(extra); pair[0] != CU_LAUNCH_PARAM_END; pair += 2) {
    if (pair[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      data = static_cast<const std::byte*>(pair[1]);
    else if (pair[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
      std::memcpy(&size, pair[1], sizeof size);
    else
      return {};
  }
  if (data == nullptr || size > kMostBytes) return {};
  return {data, size};
}

// Calls visit(data, size, offset) for each argument. Returns false if some arguments may not have been
// visited.
template <class Visit>
bool visit_each(std::uintptr_t kernel, std::uintptr_t parameters, Visit visit) {
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
    if (result != CUDA_SUCCESS) return result == CUDA_ERROR_INVALID_VALUE;  // true: all were visited
    if (values == nullptr || values[index] == nullptr || size > kMostBytes || offset > kMostBytes)
      return false;
    visit(values[index], size, offset);
  }
  return false;
}

}  // namespace

std::vector<Argument> kernel_arguments(std::uintptr_t kernel, std::uintptr_t parameters,
                                       std::uintptr_t extra) {
  std::vector<Argument> found;
  if (extra != 0) {
    const std::span<const std::byte> buffer = buffer_of(extra);
    scan(buffer.data(), buffer.size(), 0, found);
  }
  if (parameters != 0)
    visit_each(kernel, parameters, [&](const std::byte* data, std::size_t size, std::size_t offset) {
      scan(data, size, offset, found);
    });
  return found;
}

std::optional<ArgumentCopy> copy_arguments(std::uintptr_t kernel, std::uintptr_t parameters,
                                           std::uintptr_t extra) {
  ArgumentCopy copy;
  if (parameters == 0 && extra != 0) {
    const std::span<const std::byte> buffer = buffer_of(extra);
    if (buffer.empty()) return std::nullopt;
    copy.bytes.assign(buffer.begin(), buffer.end());
    copy.as_buffer = true;
    return copy;
  }
  const bool all =
      visit_each(kernel, parameters, [&](const std::byte* data, std::size_t size, std::size_t offset) {
        copy.bytes.resize(std::max(copy.bytes.size(), offset + size));
        std::memcpy(copy.bytes.data() + offset, data, size);
        copy.offsets.push_back(offset);
      });
  if (!all) return std::nullopt;
  return copy;
}

}  // namespace sharedgpu::hooks
