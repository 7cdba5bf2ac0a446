// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/survey_child.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "arbiter/daemon/driver_child.h"
#include "protocol/gpu_names.h"
#include "protocol/write_all.h"

namespace sharedgpu {
namespace {

// Declares the stable part of NVML itself, because only the full toolkit contains NVML's header.
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
using Processes = int (*)(void*, unsigned*, Process*);
struct Utilization {
  unsigned gpu, memory;  // percent of the last sampling period
};
struct EventData {
  void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long kDoubleBitError = 0x2;
constexpr unsigned long long kXid = 0x8;
constexpr int kUncorrected = 1;  // the kind of ECC errors that are counted
constexpr int kVolatile = 0;     // errors since the driver was loaded

struct Nvml {
  int (*init)() = nullptr;
  int (*count_of)(unsigned*) = nullptr;
  int (*handle_of)(unsigned, void**) = nullptr;
  int (*uuid_of)(void*, char*, unsigned) = nullptr;
  int (*memory_of)(void*, Memory*) = nullptr;
  Processes compute_on = nullptr;
  // Optional functions: null if NVML lacks them.
  Processes graphics_on = nullptr;
  int (*shutdown)() = nullptr;
  int (*ecc_errors_of)(void*, int, int, unsigned long long*) = nullptr;
  int (*energy_of)(void*, unsigned long long*) = nullptr;
  int (*utilization_of)(void*, Utilization*) = nullptr;
  int (*make_set)(void**) = nullptr;
  int (*listen_to)(void*, unsigned long long, void*) = nullptr;
  int (*wait_in)(void*, EventData*, unsigned) = nullptr;
  int (*free_set)(void*) = nullptr;

  // Loads version 3 or 2 of each list function. Both versions use the same struct.
  bool load(const DriverLibrary& library) {
    static_cast<void>(library.load("nvmlDeviceGetGraphicsRunningProcesses_v3", graphics_on) ||
                      library.load("nvmlDeviceGetGraphicsRunningProcesses_v2", graphics_on));
    static_cast<void>(library.load("nvmlShutdown", shutdown));
    static_cast<void>(library.load("nvmlDeviceGetTotalEccErrors", ecc_errors_of));
    static_cast<void>(library.load("nvmlDeviceGetTotalEnergyConsumption", energy_of));
    static_cast<void>(library.load("nvmlDeviceGetUtilizationRates", utilization_of));
    static_cast<void>(
        library.load("nvmlEventSetCreate", make_set) && library.load("nvmlDeviceRegisterEvents", listen_to) &&
        library.load("nvmlEventSetFree", free_set) && library.load("nvmlEventSetWait_v2", wait_in));
    return library.load("nvmlInit_v2", init) && library.load("nvmlDeviceGetCount_v2", count_of) &&
           library.load("nvmlDeviceGetHandleByIndex_v2", handle_of) &&
           library.load("nvmlDeviceGetUUID", uuid_of) && library.load("nvmlDeviceGetMemoryInfo", memory_of) &&
           (library.load("nvmlDeviceGetComputeRunningProcesses_v3", compute_on) ||
            library.load("nvmlDeviceGetComputeRunningProcesses_v2", compute_on));
  }
};

constexpr unsigned kNoInstance = ~0u;

constexpr std::chrono::milliseconds kLook{100};  // the pause between two checks for errors
// The time after which NVML is restarted, because GPUs may have been added. The shorter time, kTroubledStart,
// applies after an error, and while a GPU is lost or missing.
constexpr std::chrono::seconds kStart{10};
constexpr std::chrono::seconds kTroubledStart{1};

struct Device {
  void* handle;
  GpuUuid uuid;
  std::uint32_t status;  // last reported status
};

// Represents NVML from one start to the next. GPUs that are added or come back are listed only after the next
// start.
class Started {
 public:
  explicit Started(const Nvml& nvml) : nvml_(nvml) {}

  // Returns false if NVML does not start.
  bool start() {
    unsigned count = 0;
    if (nvml_.init() != 0 || nvml_.count_of(&count) != 0) return false;
    whole_ = count <= kMostSurveyedGpus;
    for (unsigned i = 0; i < std::min(count, kMostSurveyedGpus); ++i) {
      Device device = {};
      char uuid[96] = {};
      int status = nvml_.handle_of(i, &device.handle);
      if (status == 0) status = nvml_.uuid_of(device.handle, uuid, sizeof uuid);
      if (status == 0 && parse_gpu(uuid, device.uuid))
        devices_.push_back(device);
      else
        whole_ = whole_ && static_cast<std::uint32_t>(status) == kNvmlLost;
    }
    if (nvml_.wait_in != nullptr && nvml_.make_set(&set_) == 0) listen();
    return true;
  }
  void stop() {
    if (set_ != nullptr) nvml_.free_set(set_);
    set_ = nullptr;
    devices_.clear();
    nvml_.shutdown();
  }

  std::vector<Device>& devices() { return devices_; }
  // Returns true if each GPU that NVML lists is in devices(), or is lost.
  bool whole() const { return whole_; }

  // The next error that a GPU has reported; nullopt if there are no more errors.
  std::optional<SurveyLine> next_error() {
    EventData event = {};
    while (set_ != nullptr && nvml_.wait_in(set_, &event, 0) == 0) {
      for (const Device& device : devices_) {
        if (device.handle != event.device) continue;
        const bool is_xid = event.type == kXid;
        return SurveyLine{.kind = is_xid ? SurveyLine::Kind::xid : SurveyLine::Kind::ecc_error,
                          .pid = 0,
                          .gpu = device.uuid,
                          .used = event.data};
      }
    }
    return std::nullopt;
  }

 private:
  // Listens for errors. Failures are ignored, since some GPUs have no ECC.
  void listen() {
    for (const Device& device : devices_)
      if (nvml_.listen_to(device.handle, kXid | kDoubleBitError, set_) != 0)
        nvml_.listen_to(device.handle, kXid, set_);
  }

  const Nvml& nvml_;
  std::vector<Device> devices_;
  bool whole_ = false;
  void* set_ = nullptr;
};

std::uint32_t status_of(const Nvml& nvml, const Device& device) {
  Memory memory = {};
  return static_cast<std::uint32_t>(nvml.memory_of(device.handle, &memory));
}

SurveyLine health_of(const Nvml& nvml, const Device& device) {
  unsigned long long errors = 0;
  const bool tells = nvml.ecc_errors_of != nullptr &&
                     nvml.ecc_errors_of(device.handle, kUncorrected, kVolatile, &errors) == 0;
  return {.kind = SurveyLine::Kind::health,
          .pid = status_of(nvml, device),
          .gpu = device.uuid,
          .used = tells ? errors : SurveyLine::kUnknown};
}

// On old GPUs and MIG instances, the energy counter or the utilization is missing.
SurveyLine meters_of(const Nvml& nvml, const Device& device) {
  unsigned long long energy = 0;
  Utilization busy = {};
  const bool has_energy = nvml.energy_of != nullptr && nvml.energy_of(device.handle, &energy) == 0;
  const bool has_busy = nvml.utilization_of != nullptr && nvml.utilization_of(device.handle, &busy) == 0;
  return {.kind = SurveyLine::Kind::meters,
          .pid = 0,
          .gpu = device.uuid,
          .used = has_energy ? energy : SurveyLine::kUnknown,
          .free = has_busy ? busy.gpu : SurveyLine::kUnknown};
}

// Adds a process to the lines. If a process is in both the compute list and the graphics list, each list
// shows all of its memory, so the amounts are not added.
void merge(std::vector<SurveyLine>& lines, const Process& process) {
  const auto known = std::find_if(lines.begin(), lines.end(), [&](const SurveyLine& line) {
    return line.kind == SurveyLine::Kind::process && line.pid == process.pid;
  });
  if (known == lines.end())
    lines.push_back(
        {.kind = SurveyLine::Kind::process, .pid = process.pid, .gpu = {}, .used = process.used, .free = 0});
  else
    known->used = std::max<std::uint64_t>(known->used, process.used);
}

// Returns the lines for a GPU; no lines if a query fails, for example because the GPU has fallen off the bus.
// Skips processes in MIG instances, because the arbiter manages an instance as a GPU of its own.
std::vector<SurveyLine> lines_of(const Nvml& nvml, const Device& device) {
  Memory memory = {};
  if (nvml.memory_of(device.handle, &memory) != 0) return {};
  std::vector<SurveyLine> lines = {
      {.kind = SurveyLine::Kind::gpu, .pid = 0, .gpu = device.uuid, .used = memory.used, .free = memory.free},
      meters_of(nvml, device)};
  std::vector<Process> found(kMostSurveyedProcesses);
  for (const Processes ask : {nvml.compute_on, nvml.graphics_on}) {
    if (ask == nullptr) continue;
    unsigned count = kMostSurveyedProcesses;
    if (ask(device.handle, &count, found.data()) != 0 || count > kMostSurveyedProcesses) {
      if (ask == nvml.graphics_on) continue;  // some GPUs have no graphics
      return {};
    }
    for (unsigned i = 0; i < count; ++i)
      if (found[i].gpu_instance == kNoInstance) merge(lines, found[i]);
  }
  return lines;
}

enum class Heard { question, nothing, end };

Heard wait_for_question(int in) {
  pollfd entry = {.fd = in, .events = POLLIN, .revents = 0};
  const int ready = poll(&entry, 1, static_cast<int>(kLook.count()));
  if (ready == 0 || (ready < 0 && errno == EINTR)) return Heard::nothing;
  char question = 0;
  ssize_t size = 0;
  do size = read(in, &question, 1);
  while (size < 0 && errno == EINTR);
  return size == 1 ? Heard::question : Heard::end;
}

// Appends the errors and status changes since the last check. Returns true if there was an error, or if a GPU
// is lost or missing.
bool look(const Nvml& nvml, Started& started, std::vector<SurveyLine>& lines) {
  bool trouble = false;
  while (const auto error = started.next_error()) {
    lines.push_back(*error);
    trouble = true;
  }
  for (Device& device : started.devices()) {
    const std::uint32_t status = status_of(nvml, device);
    trouble = trouble || status == kNvmlLost;
    if (std::exchange(device.status, status) == status) continue;
    lines.push_back({.kind = SurveyLine::Kind::status, .pid = 0, .gpu = device.uuid, .used = status});
  }
  return trouble || !started.whole();
}

std::vector<SurveyLine> answer(const Nvml& nvml, Started& started) {
  std::vector<SurveyLine> lines;
  for (const Device& device : started.devices()) lines.push_back(health_of(nvml, device));
  for (const Device& device : started.devices()) {
    const std::vector<SurveyLine> its = lines_of(nvml, device);
    lines.insert(lines.end(), its.begin(), its.end());
  }
  lines.push_back({.kind = SurveyLine::Kind::end, .pid = 0, .gpu = {}, .used = started.whole()});
  return lines;
}

}  // namespace

void answer_surveys(const System& system, int end) {
  using Clock = std::chrono::steady_clock;
  const DriverLibrary library(system, "libnvidia-ml.so.1");
  Nvml nvml;
  if (!library || !nvml.load(library)) return;
  Started started(nvml);
  if (!started.start()) return;
  Clock::time_point began = Clock::now();
  bool trouble = false;
  for (;;) {
    const Heard heard = wait_for_question(end);
    if (heard == Heard::end) return;
    std::vector<SurveyLine> lines;
    trouble = look(nvml, started, lines) || trouble;
    const Clock::duration age = Clock::now() - began;
    if (heard == Heard::question && nvml.shutdown != nullptr && age > (trouble ? kTroubledStart : kStart)) {
      started.stop();
      if (!started.start()) return;
      began = Clock::now();
      trouble = !started.whole();
    }
    if (heard == Heard::question) {
      const std::vector<SurveyLine> its = answer(nvml, started);
      lines.insert(lines.end(), its.begin(), its.end());
    }
    if (!lines.empty() && !write_all(end, lines.data(), lines.size() * sizeof(SurveyLine))) return;
  }
}

}  // namespace sharedgpu
