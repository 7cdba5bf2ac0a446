// SPDX-License-Identifier: Apache-2.0
// The part of nvml.h that the interposer uses. NVIDIA's nvml.h comes with the full toolkit only; its ABI is
// stable.
#pragma once

#include <cstdint>

namespace sharedgpu::nvml {

// The values of nvmlReturn_t that we use.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInsufficientSize = 7;
inline constexpr Result kFunctionNotFound = 13;

using Device = struct nvmlDevice_st*;

struct Memory {  // nvmlMemory_t
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct MemoryV2 {  // nvmlMemory_v2_t
  unsigned int version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
inline constexpr unsigned int kMemoryV2 = sizeof(MemoryV2) | 2u << 24;

struct ProcessV1 {  // nvmlProcessInfo_v1_t
  unsigned int pid;
  unsigned long long used;
};

struct ProcessV2 {  // nvmlProcessInfo_v2_t, and nvmlProcessInfo_t of functions with _v3
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
struct ProcessDetail {  // nvmlProcessDetail_v1_t
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance;
  unsigned int compute_instance;
  unsigned long long used_protected;  // bytes used by confidential computing
};

struct ProcessDetailList {  // nvmlProcessDetailList_v1_t
  unsigned int version;
  unsigned int mode;
  unsigned int count;
  ProcessDetail* places;
};
inline constexpr unsigned int kProcessDetailListV1 = sizeof(ProcessDetailList) | 1u << 24;
inline constexpr unsigned int kComputeMode = 0;

struct EventData {  // nvmlEventData_t
  Device device;
  unsigned long long type;
  unsigned long long data;  // of an Xid event: the Xid's number
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

inline constexpr unsigned int kNoInstance = 0xffffffff;  // the value for a GPU without MIG instances

// A size that suffices for each text that nvmlDeviceGetUUID returns, according to nvml.h. For a GPU the text
// is "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx".
inline constexpr unsigned int kUuidSize = 96;

}  // namespace sharedgpu::nvml
