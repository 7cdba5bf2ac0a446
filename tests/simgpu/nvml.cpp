// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 of the simulated GPU. It reports the GPU's memory and the processes that use the GPU. The
// results, also those of wrong calls, follow nvml.h; they were not measured.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
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
constexpr Result kNotSupported = 3;
constexpr Result kNotFound = 6;
constexpr Result kTimeout = 10;
constexpr Result kLost = 15;
constexpr Result kResetRequired = 16;
constexpr Result kVersionMismatch = 25;
constexpr Result kUnknown = 999;

struct Utilization {
  unsigned gpu, memory;  // percent
};

struct Gpu {
  std::string state;
  simgpu::SharedDevice* device = nullptr;
  // The values at the last query of the utilization.
  simgpu::TimePoint looked{};
  Nanoseconds busy{};
  unsigned percent = 0;
};

// All devices of SIMGPU_DEVICES, absent ones included. nvmlInit adds devices and never removes any.
std::vector<Gpu>& gpus() {
  static auto* made = new std::vector<Gpu>;
  return *made;
}
std::atomic<unsigned> users{0};
std::atomic<bool> has_events{true};
// Indices in gpus(): the devices that were not absent when NVML was last started.
std::vector<std::size_t> found;

Device handle(std::size_t index) { return reinterpret_cast<Device>(&gpus()[index]); }
Gpu& gpu(Device device) { return *reinterpret_cast<Gpu*>(device); }

Result check(bool arguments) {
  if (users == 0) return kUninitialized;
  return arguments ? kSuccess : kInvalidArgument;
}
Result check(Device device, bool arguments) {
  bool known = false;
  for (const std::size_t i : found) known |= device == handle(i);
  if (Result wrong = check(known && arguments)) return wrong;
  const simgpu::Presence now = gpu(device).device->presence();
  return now == simgpu::Presence::lost || now == simgpu::Presence::absent ? kLost : kSuccess;
}
// Like check(), for queries that NVML does not answer while the device needs a reset.
Result check_usable(Device device, bool arguments) {
  if (Result wrong = check(device, arguments)) return wrong;
  return gpu(device).device->presence() == simgpu::Presence::unusable ? kResetRequired : kSuccess;
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
  auto users_of_it = gpu(device).device->view().processes;
  // Leaves out processes without a context, such as processes that only query NVML.
  std::erase_if(users_of_it, [](const simgpu::ProcessUse& process) { return process.contexts == Bytes{}; });
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(users_of_it.size());
  if (room < users_of_it.size()) return kInsufficientSize;
  for (const auto& process : users_of_it)
    put(*places++, static_cast<unsigned int>(process.pid), (process.memory + process.contexts).count);
  return kSuccess;
}

Result no_processes(Device device, unsigned int* count, const void* places) {
  if (Result wrong = check(device, count != nullptr && (*count == 0 || places != nullptr))) return wrong;
  *count = 0;
  return kSuccess;
}

// A device in an event set: the kinds of events to report, and the number of the next event.
struct Listened {
  unsigned long long types = 0;
  std::uint64_t next = 0;
};
struct EventSet {
  std::map<Device, Listened> devices;
};

bool next_event(EventSet& set, EventData& data) {
  for (auto& [device, listened] : set.devices) {
    const simgpu::SharedDevice& its = *gpu(device).device;
    while (listened.next < its.reports()) {
      const simgpu::Report report = its.report_at(listened.next++);
      if ((report.type & listened.types) == 0) continue;
      data = {.device = device,
              .type = report.type,
              .data = report.data,
              .gpu_instance = kNoInstance,
              .compute_instance = kNoInstance};
      return true;
    }
  }
  return false;
}

}  // namespace

EXPORT Result nvmlInit_v2() {
  simgpu::Settings settings;
  std::string problem;
  if (!simgpu::read_settings(settings, problem)) return kUnknown;
  for (auto number = static_cast<unsigned>(gpus().size()); number < settings.devices; ++number) {
    Gpu opened = {.state = simgpu::device_state(settings.state, number)};
    opened.device = simgpu::SharedDevice::open(opened.state, &settings.memory, problem);
    if (opened.device == nullptr) return kUnknown;
    gpus().push_back(opened);
  }
  has_events = settings.nvml_events;
  if (users++ > 0) return kSuccess;
  found.clear();
  for (std::size_t i = 0; i < gpus().size(); ++i)
    if (gpus()[i].device->presence() != simgpu::Presence::absent) found.push_back(i);
  return kSuccess;
}

EXPORT Result nvmlShutdown() {
  if (users == 0) return kUninitialized;
  --users;
  return kSuccess;
}

EXPORT Result nvmlDeviceGetCount_v2(unsigned int* count) {
  if (Result wrong = check(count != nullptr)) return wrong;
  *count = static_cast<unsigned int>(found.size());
  return kSuccess;
}

EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device* device) {
  if (Result wrong = check(index < found.size() && device != nullptr)) return wrong;
  if (Result wrong = check(handle(found[index]), true)) return wrong;
  *device = handle(found[index]);
  return kSuccess;
}

EXPORT Result nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  if (Result wrong = check(uuid != nullptr && device != nullptr)) return wrong;
  for (const std::size_t i : found) {
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

// The minor number of the device file, /dev/nvidiaN. All devices count, absent ones included.
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
  if (Result wrong = check_usable(device, memory != nullptr)) return wrong;
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

EXPORT Result nvmlDeviceGetTotalEccErrors(Device device, int kind, int counter, unsigned long long* count) {
  if (Result wrong = check(device, count != nullptr && kind <= 1 && counter <= 1)) return wrong;
  *count = kind == 1 ? gpu(device).device->ecc_errors() : 0;
  return kSuccess;
}

// The device uses kIdleWatts always, and kBusyWatts more while a kernel runs.
EXPORT Result nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* millijoules) {
  constexpr double kIdleWatts = 60;
  constexpr double kBusyWatts = 300;
  if (Result wrong = check(device, millijoules != nullptr)) return wrong;
  const simgpu::SharedDevice::Meters meters = gpu(device).device->meters();
  const auto milliseconds = [](Nanoseconds time) { return static_cast<double>(time.count()) / 1e6; };
  *millijoules = static_cast<unsigned long long>(kIdleWatts * milliseconds(simgpu::now() - meters.created) +
                                                 kBusyWatts * milliseconds(meters.busy));
  return kSuccess;
}

// `rates->gpu` is the percentage of the time since the last call in which kernels ran on the device. The
// first call counts from the creation of the device's state.
EXPORT Result nvmlDeviceGetUtilizationRates(Device device, Utilization* rates) {
  if (Result wrong = check(device, rates != nullptr)) return wrong;
  Gpu& its = gpu(device);
  const simgpu::SharedDevice::Meters meters = its.device->meters();
  const simgpu::TimePoint at = simgpu::now();
  const Nanoseconds passed = at - std::max(its.looked, meters.created);
  const Nanoseconds busy = meters.busy - its.busy;
  if (passed > Nanoseconds{})
    its.percent =
        static_cast<unsigned>(std::clamp<std::int64_t>(100 * busy.count() / passed.count(), 0, 100));
  its.looked = at;
  its.busy = meters.busy;
  *rates = {.gpu = its.percent, .memory = 0};
  return kSuccess;
}

EXPORT Result nvmlEventSetCreate(EventSet** set) {
  if (Result wrong = check(set != nullptr)) return wrong;
  *set = new EventSet;
  return kSuccess;
}

EXPORT Result nvmlEventSetFree(EventSet* set) {
  if (Result wrong = check(set != nullptr)) return wrong;
  delete set;
  return kSuccess;
}

EXPORT Result nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet* set) {
  if (Result wrong = check(device, set != nullptr)) return wrong;
  if (!has_events) return kNotSupported;
  set->devices[device] = {.types = types, .next = gpu(device).device->reports()};
  return kSuccess;
}

EXPORT Result nvmlEventSetWait_v2(EventSet* set, EventData* data, unsigned int milliseconds) {
  if (Result wrong = check(set != nullptr && data != nullptr)) return wrong;
  constexpr unsigned kStep = 5;
  for (unsigned waited = 0;; waited += kStep) {
    if (next_event(*set, *data)) return kSuccess;
    if (waited >= milliseconds) return kTimeout;
    std::this_thread::sleep_for(std::chrono::milliseconds(kStep));
  }
}
