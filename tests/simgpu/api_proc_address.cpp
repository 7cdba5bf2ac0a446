// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress, both ABIs.
#include "tests/simgpu/api.h"
#include "tests/simgpu/exports.h"
#include "tests/simgpu/identity.h"

using namespace sharedgpu::simgpu;

namespace {

// The flags and results of CUDA 12; older headers do not define them.
constexpr cuuint64_t kPerThread = 2;
constexpr int kFound = 0;
constexpr int kNotFound = 1;
constexpr int kTooOld = 2;
#if CUDA_VERSION >= 12000
using QueryResult = CUdriverProcAddressQueryResult;
#else
using QueryResult = int;
#endif

CUresult look_up(const char* name, void** out, int version, cuuint64_t flags, int& status) {
  status = kNotFound;
  return call("cuGetProcAddress", Needs::nothing, [&] {
    require(name != nullptr && out != nullptr && flags <= 2, CUDA_ERROR_INVALID_VALUE);
    bool known = false;
    *out = find_export(name, std::min(version, kDriverVersion), flags == kPerThread, known);
    status = *out != nullptr ? kFound : known ? kTooOld : kNotFound;
  });
}

}  // namespace

#undef cuGetProcAddress

extern "C" {

CUresult CUDAAPI cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  int status = 0;
  CUresult code = look_up(name, out, version, flags, status);
  return code == CUDA_SUCCESS && status != kFound ? CUDA_ERROR_NOT_FOUND : code;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                                     QueryResult* result) {
  int status = 0;
  CUresult code = look_up(name, out, version, flags, status);
  if (result != nullptr) *result = static_cast<QueryResult>(status);
  return code;
}

}  // extern "C"
