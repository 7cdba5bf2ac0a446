// SPDX-License-Identifier: Apache-2.0
// The kernels that the simulated GPU knows, by their PTX entry names.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/simgpu/address_space.h"

namespace sharedgpu::simgpu {

// The arguments of one launch, in one buffer. Each argument is at its natural alignment.
class Arguments {
 public:
  Arguments() = default;
  Arguments(std::vector<std::size_t> sizes, std::vector<std::byte> bytes)
      : sizes_(std::move(sizes)), bytes_(std::move(bytes)) {}
  std::uint64_t operator[](std::size_t index) const;
  const std::vector<std::byte>& bytes() const { return bytes_; }
  // Pointers to the parameters, as cuLaunchKernel takes them.
  std::vector<void*> pointers() const;

 private:
  std::vector<std::size_t> sizes_;
  std::vector<std::byte> bytes_;
};

// The offset of parameter `index`, given the sizes of all parameters.
std::size_t parameter_offset(const std::vector<std::size_t>& sizes, std::size_t index);

// A kernel that follows pointers in device memory calls this function before it accesses a range. The
// function returns false if the range is not accessible; the kernel must then return
// CUDA_ERROR_ILLEGAL_ADDRESS.
using Reach = std::function<bool(const Range&)>;

struct Kernel {
  const char* name;
  std::vector<std::size_t> parameters;             // sizes of the parameters in bytes
  std::vector<Range> (*ranges)(const Arguments&);  // the ranges that are known before the kernel runs
  CUresult (*run)(const Arguments&, const Reach&);
  Bytes (*traffic)(const Arguments&);      // bytes of device memory that the kernel reads and writes
  Nanoseconds (*extra)(const Arguments&);  // time that the kernel takes in addition to its traffic
  // The ranges that the kernel reaches through a table of pointers. The table itself is the first of
  // `ranges`. Null if the kernel has no such table.
  std::vector<Range> (*reached)(const Arguments&) = nullptr;
  // The number of times that the kernel reads each byte that it only reads. A GPU has caches for its own
  // memory, but memory of the host crosses the bus each time.
  unsigned reads = 1;
};

const Kernel* find_kernel(const std::string& name);

}  // namespace sharedgpu::simgpu
