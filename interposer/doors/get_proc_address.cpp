// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress in its four forms: with four arguments (CUDA 11.3) and with five arguments (CUDA 12.0),
// each also for programs with per-thread default streams. The wrapper calls the real function first. So if
// the real function works before cuInit, or for an empty name, the wrapper works in these cases too.
#include <cuda.h>

#include "interposer/doors/substitute.h"
#include "interposer/driver/call.h"
#include "interposer/hooks/export.h"

#if CUDA_VERSION < 12000
typedef int CUdriverProcAddressQueryResult;
extern "C" CUresult cuGetProcAddress_v2(const char*, void**, int, cuuint64_t,
                                        CUdriverProcAddressQueryResult*);
#endif
extern "C" {
CUresult cuGetProcAddress_ptsz(const char*, void**, int, cuuint64_t);
CUresult cuGetProcAddress_v2_ptsz(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
}

using namespace sharedgpu;

namespace {

CUresult resolved(CUresult result, void** address) {
  if (result == CUDA_SUCCESS && address != nullptr) *address = doors::substitute(*address);
  return result;
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuGetProcAddress(const char* symbol, void** address, int version,
                                           cuuint64_t flags) {
  return resolved(SHAREDGPU_REAL(cuGetProcAddress, symbol, address, version, flags), address);
}

SHAREDGPU_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** address, int version,
                                              cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  return resolved(SHAREDGPU_REAL(cuGetProcAddress_v2, symbol, address, version, flags, status), address);
}

SHAREDGPU_EXPORT CUresult cuGetProcAddress_ptsz(const char* symbol, void** address, int version,
                                                cuuint64_t flags) {
  return resolved(SHAREDGPU_REAL(cuGetProcAddress_ptsz, symbol, address, version, flags), address);
}

SHAREDGPU_EXPORT CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** address, int version,
                                                   cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  return resolved(SHAREDGPU_REAL(cuGetProcAddress_v2_ptsz, symbol, address, version, flags, status), address);
}
