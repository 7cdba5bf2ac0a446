// SPDX-License-Identifier: Apache-2.0
// Initialization, the device, errors.
#include <cstdio>

#include "tests/simgpu/api.h"
#include "tests/simgpu/identity.h"

using namespace sharedgpu::simgpu;

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
  return call("cuInit", Needs::nothing, [&] {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    initialize();
    enter("cuInit", Needs::init);
  });
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  return call("cuDriverGetVersion", Needs::nothing, [&] {
    require(version != nullptr, CUDA_ERROR_INVALID_VALUE);
    *version = kDriverVersion;
  });
}

CUresult CUDAAPI cuGetErrorName(CUresult code, const char** text) {
  return call("cuGetErrorName", Needs::nothing, [&] {
    require(text != nullptr, CUDA_ERROR_INVALID_VALUE);
    const ErrorName* error = find_error(code);
    *text = error == nullptr ? nullptr : error->name;
    require(error != nullptr, CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult CUDAAPI cuGetErrorString(CUresult code, const char** text) {
  return call("cuGetErrorString", Needs::nothing, [&] {
    require(text != nullptr, CUDA_ERROR_INVALID_VALUE);
    const ErrorName* error = find_error(code);
    *text = error == nullptr ? nullptr : error->text;
    require(error != nullptr, CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  return call("cuDeviceGet", Needs::init, [&] {
    require(device != nullptr, CUDA_ERROR_INVALID_VALUE);
    *device = driver().gpu(ordinal).number;
  });
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", Needs::init, [&] {
    require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
    *count = static_cast<int>(driver().gpus.size());
  });
}

CUresult CUDAAPI cuDeviceGetName(char* name, int size, CUdevice device) {
  return call("cuDeviceGetName", Needs::init, [&] {
    require(name != nullptr && size > 0, CUDA_ERROR_INVALID_VALUE);
    driver().gpu(device);
    std::snprintf(name, static_cast<std::size_t>(size), "%s", kDeviceName);
  });
}

static CUresult get_uuid(CUuuid* uuid, CUdevice device) {
  return call("cuDeviceGetUuid", Needs::init, [&] {
    require(uuid != nullptr, CUDA_ERROR_INVALID_VALUE);
    *uuid = device_uuid(driver().gpu(device).state);
  });
}
#undef cuDeviceGetUuid
CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return get_uuid(uuid, device); }
CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return get_uuid(uuid, device); }

CUresult CUDAAPI cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  return call("cuDeviceTotalMem", Needs::init, [&] {
    require(bytes != nullptr, CUDA_ERROR_INVALID_VALUE);
    *bytes = driver().gpu(device).shared->total().count;
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call("cuDeviceGetAttribute", Needs::init, [&] {
    require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
    driver().gpu(device);
    require(device_attribute(attribute, *value), CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS && !driver().settings.concurrent_managed)
      *value = 0;
  });
}

CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return call("cuDeviceComputeCapability", Needs::init, [&] {
    require(major != nullptr && minor != nullptr, CUDA_ERROR_INVALID_VALUE);
    driver().gpu(device);
    *major = kComputeMajor;
    *minor = kComputeMinor;
  });
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  return call("cuDeviceGetPCIBusId", Needs::init, [&] {
    require(text != nullptr && size > 12, CUDA_ERROR_INVALID_VALUE);
    driver().gpu(device);
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
  });
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return call("cuDeviceCanAccessPeer", Needs::init, [&] {
    require(can != nullptr, CUDA_ERROR_INVALID_VALUE);
    driver().gpu(device);
    driver().gpu(peer);
    *can = device != peer && driver().settings.peer_access;
  });
}

}  // extern "C"
