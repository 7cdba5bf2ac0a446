// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/survey_child.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "arbiter/daemon/driver_child.h"
#include "arbiter/daemon/write_all.h"
#include "protocol/gpu_names.h"

namespace sharedgpu {
namespace {

// NVML's stable part; declared here because its header comes with the full toolkit only.
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
using Processes = int (*)(void*, unsigned*, Process*);

struct Nvml {
  int (*init)() = nullptr;
  int (*count_of)(unsigned*) = nullptr;
  int (*handle_of)(unsigned, void**) = nullptr;
  int (*uuid_of)(void*, char*, unsigned) = nullptr;
  int (*memory_of)(void*, Memory*) = nullptr;
  Processes compute_on = nullptr;
  Processes graphics_on = nullptr;  // may be missing

  // Both versions have the same layout.
  bool load(const DriverLibrary& library) {
    static_cast<void>(library.load("nvmlDeviceGetGraphicsRunningProcesses_v3", graphics_on) ||
                      library.load("nvmlDeviceGetGraphicsRunningProcesses_v2", graphics_on));
    return library.load("nvmlInit_v2", init) && library.load("nvmlDeviceGetCount_v2", count_of) &&
           library.load("nvmlDeviceGetHandleByIndex_v2", handle_of) &&
           library.load("nvmlDeviceGetUUID", uuid_of) && library.load("nvmlDeviceGetMemoryInfo", memory_of) &&
           (library.load("nvmlDeviceGetComputeRunningProcesses_v3", compute_on) ||
            library.load("nvmlDeviceGetComputeRunningProcesses_v2", compute_on));
  }
};

constexpr unsigned kNoInstance = ~0u;

struct Device {
  void* handle;
  GpuUuid uuid;
};

std::vector<Device> devices_of(const Nvml& nvml) {
  std::vector<Device> devices;
  unsigned count = 0;
  if (nvml.init() != 0 || nvml.count_of(&count) != 0) return devices;
  for (unsigned i = 0; i < std::min(count, kMostSurveyedGpus); ++i) {
    Device device = {};
    char uuid[96] = {};
    if (nvml.handle_of(i, &device.handle) == 0 && nvml.uuid_of(device.handle, uuid, sizeof uuid) == 0 &&
        parse_gpu(uuid, device.uuid))
      devices.push_back(device);
  }
  return devices;
}

// A process may use a GPU in both ways, and then has all of its memory in both lists.
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

// Nothing where one of the questions fails, as for a GPU that has fallen off the bus. Processes in MIG
// instances of the GPU are on other GPUs, of which NVML is not asked.
std::vector<SurveyLine> lines_of(const Nvml& nvml, const Device& device) {
  Memory memory = {};
  if (nvml.memory_of(device.handle, &memory) != 0) return {};
  std::vector<SurveyLine> lines = {{.kind = SurveyLine::Kind::gpu,
                                    .pid = 0,
                                    .gpu = device.uuid,
                                    .used = memory.used,
                                    .free = memory.free}};
  std::vector<Process> found(kMostSurveyedProcesses);
  for (const Processes ask : {nvml.compute_on, nvml.graphics_on}) {
    if (ask == nullptr) continue;
    unsigned count = kMostSurveyedProcesses;
    if (ask(device.handle, &count, found.data()) != 0 || count > kMostSurveyedProcesses) {
      if (ask == nvml.graphics_on) continue;  // some GPUs do no graphics
      return {};
    }
    for (unsigned i = 0; i < count; ++i)
      if (found[i].gpu_instance == kNoInstance) merge(lines, found[i]);
  }
  return lines;
}

bool wait_for_question(int in) {
  char question = 0;
  ssize_t size = 0;
  do size = read(in, &question, 1);
  while (size < 0 && errno == EINTR);
  return size == 1;
}

}  // namespace

void answer_surveys(const System& system, int end) {
  const DriverLibrary library(system, "libnvidia-ml.so.1");
  Nvml nvml;
  if (!library || !nvml.load(library)) return;
  const std::vector<Device> devices = devices_of(nvml);
  if (devices.empty()) return;
  while (wait_for_question(end)) {
    std::vector<SurveyLine> answer;
    for (const Device& device : devices) {
      const std::vector<SurveyLine> lines = lines_of(nvml, device);
      answer.insert(answer.end(), lines.begin(), lines.end());
    }
    answer.push_back({});
    if (!write_all(end, answer.data(), answer.size() * sizeof(SurveyLine))) return;
  }
}

}  // namespace sharedgpu
