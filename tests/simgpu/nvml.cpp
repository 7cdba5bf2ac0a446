// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 of the simulated GPU: its memory and the processes that use it, as nvml.h describes the
// calls. What real NVML says to wrong calls was taken from that description, not measured.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "interposer/driver/nvml.h"
#include "tests/simgpu/identity.h"
#include "tests/simgpu/settings.h"
#include "tests/simgpu/shared_device.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace sharedgpu;
using namespace sharedgpu::nvml;

namespace {

constexpr Result kUninitialized = 1;
constexpr Result kInvalidArgument = 2;
constexpr Result kNotFound = 6;
constexpr Result kVersionMismatch = 25;
constexpr Result kUnknown = 999;

struct Gpu {
  std::string state;
  simgpu::SharedDevice* device = nullptr;
};

// Made by the first nvmlInit, and never changed.
std::vector<Gpu>& gpus() {
  static auto* made = new std::vector<Gpu>;
  return *made;
}
std::atomic<unsigned> users{0};

Device handle(std::size_t index) { return reinterpret_cast<Device>(&gpus()[index]); }
Gpu& gpu(Device device) { return *reinterpret_cast<Gpu*>(device); }

Result check(bool arguments) {
  if (users == 0) return kUninitialized;
  return arguments ? kSuccess : kInvalidArgument;
}
Result check(Device device, bool arguments) {
  bool known = false;
  for (std::size_t i = 0; i < gpus().size(); ++i) known |= device == handle(i);
  return check(known && arguments);
}

Result copy_text(char* place, unsigned int room, const std::string& text) {
  if (room <= text.size()) return kInsufficientSize;
  std::memcpy(place, text.c_str(), text.size() + 1);
  return kSuccess;
}

void put(ProcessV1& place, unsigned int pid, unsigned long long used) { place = {.pid = pid, .used = used}; }
void put(ProcessV2& place, unsigned int pid, unsigned long long used) {
  place = {.pid = pid, .used = used, .gpu_instance = kNoInstance, .compute_instance = kNoInstance};
}

void put(ProcessDetail& place, unsigned int pid, unsigned long long used) {
  place = {.pid = pid,
           .used = used,
           .gpu_instance = kNoInstance,
           .compute_instance = kNoInstance,
           .used_protected = 0};
}

template <class Process>
Result compute_processes(Device device, unsigned int* count, Process* places) {
  if (Result wrong = check(device, count != nullptr && (*count == 0 || places != nullptr))) return wrong;
  auto found = gpu(device).device->view().processes;
  // One that only looks, as this process may, has no context.
  std::erase_if(found, [](const simgpu::ProcessUse& process) { return process.contexts == Bytes{}; });
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(found.size());
  if (room < found.size()) return kInsufficientSize;
  for (const auto& process : found)
    put(*places++, static_cast<unsigned int>(process.pid), (process.memory + process.contexts).count);
  return kSuccess;
}

Result no_processes(Device device, unsigned int* count, const void* places) {
  if (Result wrong = check(device, count != nullptr && (*count == 0 || places != nullptr))) return wrong;
  *count = 0;
  return kSuccess;
}

}  // namespace

EXPORT Result nvmlInit_v2() {
  simgpu::Settings settings;
  std::string problem;
  if (!simgpu::read_settings(settings, problem)) return kUnknown;
  for (auto number = static_cast<unsigned>(gpus().size()); number < settings.devices; ++number) {
    Gpu found = {.state = simgpu::device_state(settings.state, number)};
    found.device = simgpu::SharedDevice::open(found.state, &settings.memory, problem);
    if (found.device == nullptr) return kUnknown;
    gpus().push_back(found);
  }
  ++users;
  return kSuccess;
}

EXPORT Result nvmlShutdown() {
  if (users == 0) return kUninitialized;
  --users;
  return kSuccess;
}

EXPORT Result nvmlDeviceGetCount_v2(unsigned int* count) {
  if (Result wrong = check(count != nullptr)) return wrong;
  *count = static_cast<unsigned int>(gpus().size());
  return kSuccess;
}

EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device* device) {
  if (Result wrong = check(index < gpus().size() && device != nullptr)) return wrong;
  *device = handle(index);
  return kSuccess;
}

EXPORT Result nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  if (Result wrong = check(uuid != nullptr && device != nullptr)) return wrong;
  for (std::size_t i = 0; i < gpus().size(); ++i) {
    if (simgpu::uuid_text(simgpu::device_uuid(gpus()[i].state)) != uuid) continue;
    *device = handle(i);
    return kSuccess;
  }
  return kNotFound;
}

EXPORT Result nvmlDeviceGetUUID(Device device, char* text, unsigned int room) {
  if (Result wrong = check(device, text != nullptr)) return wrong;
  return copy_text(text, room, simgpu::uuid_text(simgpu::device_uuid(gpu(device).state)));
}

// As the files of a host with these devices are numbered.
EXPORT Result nvmlDeviceGetMinorNumber(Device device, unsigned int* minor) {
  if (Result wrong = check(device, minor != nullptr)) return wrong;
  *minor = static_cast<unsigned int>(&gpu(device) - gpus().data());
  return kSuccess;
}

EXPORT Result nvmlDeviceGetName(Device device, char* text, unsigned int room) {
  if (Result wrong = check(device, text != nullptr)) return wrong;
  return copy_text(text, room, simgpu::kDeviceName);
}

EXPORT Result nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  if (Result wrong = check(device, memory != nullptr)) return wrong;
  const auto view = gpu(device).device->view();
  *memory = {.total = view.total.count, .free = minus(view.total, view.used).count, .used = view.used.count};
  return kSuccess;
}

EXPORT Result nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* memory) {
  if (Result wrong = check(device, memory != nullptr)) return wrong;
  if (memory->version != kMemoryV2) return kVersionMismatch;
  const auto view = gpu(device).device->view();
  *memory = {.version = memory->version,
             .total = view.total.count,
             .reserved = 0,
             .free = minus(view.total, view.used).count,
             .used = view.used.count};
  return kSuccess;
}

EXPORT Result nvmlDeviceGetRunningProcessDetailList(Device device, ProcessDetailList* list) {
  if (list == nullptr || list->version != kProcessDetailListV1 || list->mode > 2)
    return users == 0 ? kUninitialized : kInvalidArgument;
  if (list->mode != kComputeMode) return no_processes(device, &list->count, list->places);
  return compute_processes(device, &list->count, list->places);
}
EXPORT Result nvmlDeviceGetComputeRunningProcesses(Device device, unsigned int* count, ProcessV1* places) {
  return compute_processes(device, count, places);
}
EXPORT Result nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned int* count, ProcessV2* places) {
  return compute_processes(device, count, places);
}
EXPORT Result nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned int* count, ProcessV2* places) {
  return compute_processes(device, count, places);
}
EXPORT Result nvmlDeviceGetGraphicsRunningProcesses(Device device, unsigned int* count, ProcessV1* places) {
  return no_processes(device, count, places);
}
EXPORT Result nvmlDeviceGetGraphicsRunningProcesses_v2(Device device, unsigned int* count,
                                                       ProcessV2* places) {
  return no_processes(device, count, places);
}
EXPORT Result nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned int* count,
                                                       ProcessV2* places) {
  return no_processes(device, count, places);
}
