// SPDX-License-Identifier: Apache-2.0
// NVML queries of memory and processes. The wrappers report the memory sizes that cuMemGetInfo reports, and
// list only the tenant's own processes.
//
// Each wrapper first calls NVML, which checks the arguments. The wrapper replaces NVML's numbers only if NVML
// succeeds. A list of processes comes from the arbiter, and so do memory sizes in a process without a session
// on the GPU. For these, the wrapper opens a connection for this one query, and begins no session. If the
// arbiter does not answer, or this process may not use the GPU, the program gets NVML's own answer.
#include "interposer/driver/nvml.h"

#include <cstdlib>
#include <optional>
#include <vector>

#include "interposer/driver/call.h"
#include "interposer/hooks/export.h"
#include "interposer/process/process.h"
#include "interposer/session/settings.h"
#include "protocol/ask.h"
#include "protocol/gpu_names.h"

using namespace sharedgpu;
using driver::Function;
using nvml::Device;
using nvml::Result;

namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(1);

template <class... Arguments>
Result call(Function function, Arguments... arguments) {
  auto* target = reinterpret_cast<Result (*)(Arguments...)>(driver::real(function));
  return target != nullptr ? target(arguments...) : nvml::kFunctionNotFound;
}

// The UUID of a GPU; nullopt if NVML reports none, and for a MIG instance ("MIG-..."), since the arbiter
// manages no MIG instances.
std::optional<GpuUuid> uuid_of(Device device) {
  char text[nvml::kUuidSize] = {};
  GpuUuid uuid;
  if (call(Function::nvmlDeviceGetUUID, device, &text[0], nvml::kUuidSize) != nvml::kSuccess ||
      !parse_gpu(text, uuid))
    return std::nullopt;
  return uuid;
}

std::optional<GpuReply> ask_arbiter(const GpuUuid& gpu, std::uint32_t first) {
  // The session reports invalid values of environment variables, so this function reports none.
  session::Settings settings =
      session::read_settings([](const char* name) -> const char* { return std::getenv(name); },
                             [](const char*, const char*, const char*) {});
  Message answer;
  GpuQuery query{.token = settings.token, .gpu = gpu, .first = first};
  if (!is_listening(settings.socket) || ask(settings.socket, Message::of(query), kPatience, answer) != 0 ||
      answer.type != MessageType::gpu_reply)
    return std::nullopt;
  auto reply = answer.as<GpuReply>();
  if (reply.known == 0) return std::nullopt;
  return reply;
}

// The values that cuMemGetInfo returns to the program for this GPU; nullopt if this process does not use the
// GPU.
std::optional<MemoryView> own_view(const GpuUuid& gpu) {
  for (CUdevice device : process::devices()) {
    CUuuid uuid = {};
    if (SHAREDGPU_REAL(cuDeviceGetUuid_v2, &uuid, device) == CUDA_SUCCESS &&
        std::memcmp(uuid.bytes, gpu.bytes, sizeof gpu.bytes) == 0)
      if (auto* own = process::session_of(device)) return own->view();
  }
  return std::nullopt;
}

struct Figures {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used() const { return total - free; }
};

std::optional<Figures> figures(Device device) {
  auto gpu = uuid_of(device);
  if (!gpu) return std::nullopt;
  if (auto view = own_view(*gpu)) return Figures{.total = view->total.count, .free = view->free.count};
  if (auto reply = ask_arbiter(*gpu, 0))
    return Figures{.total = reply->total.count, .free = reply->free.count};
  return std::nullopt;
}

// The tenant's processes on this GPU; nullopt if the UUID is not known, or the arbiter does not state the
// processes. The program then gets NVML's own answer.
std::optional<std::vector<GpuReply::Process>> processes(Device device) {
  auto gpu = uuid_of(device);
  if (!gpu) return std::nullopt;
  std::vector<GpuReply::Process> found;
  for (;;) {
    auto reply = ask_arbiter(*gpu, static_cast<std::uint32_t>(found.size()));
    if (!reply) return std::nullopt;
    for (const GpuReply::Process& process : reply->process)
      if (found.size() < reply->processes) found.push_back(process);
    if (found.size() >= reply->processes) return found;
  }
}

template <class Place>
void put(Place& place, const GpuReply::Process& process) {
  place = {};
  place.pid = process.pid;
  place.used = process.used.count;
  if constexpr (requires { place.gpu_instance; })
    place.gpu_instance = place.compute_instance = nvml::kNoInstance;
}

enum class Kind { compute, other };

// Implements NVML's queries for the processes on a GPU. `real` calls NVML's own function with the size of an
// array, and with the array.
template <class Process, class Call>
Result list(Device device, Kind kind, unsigned int* count, Process* places, Call real) {
  // NVML checks the arguments. With a count of zero, NVML writes no processes of other tenants to the
  // program's array.
  if (count == nullptr || (places == nullptr && *count != 0)) return real(count, places);
  unsigned int none = 0;
  Result judged = real(&none, static_cast<Process*>(nullptr));
  if (judged != nvml::kSuccess && judged != nvml::kInsufficientSize) return judged;
  auto found = processes(device);
  if (!found) return real(count, places);
  if (kind != Kind::compute) found->clear();  // CUDA programs are compute processes
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(found->size());
  if (room < found->size()) return nvml::kInsufficientSize;
  for (const GpuReply::Process& process : *found) put(*places++, process);
  return nvml::kSuccess;
}

}  // namespace

SHAREDGPU_EXPORT Result nvmlDeviceGetMemoryInfo(Device device, nvml::Memory* memory) {
  Result result = call(Function::nvmlDeviceGetMemoryInfo, device, memory);
  if (result != nvml::kSuccess) return result;
  if (auto seen = figures(device)) *memory = {.total = seen->total, .free = seen->free, .used = seen->used()};
  return result;
}

SHAREDGPU_EXPORT Result nvmlDeviceGetMemoryInfo_v2(Device device, nvml::MemoryV2* memory) {
  Result result = call(Function::nvmlDeviceGetMemoryInfo_v2, device, memory);
  if (result != nvml::kSuccess || memory->version != nvml::kMemoryV2) return result;
  if (auto seen = figures(device))
    *memory = {.version = memory->version,
               .total = seen->total,
               .reserved = 0,  // the arbiter's reserve is not part of `total`
               .free = seen->free,
               .used = seen->used()};
  return result;
}

SHAREDGPU_EXPORT Result nvmlDeviceGetRunningProcessDetailList(Device device,
                                                              nvml::ProcessDetailList* wanted) {
  auto real = [=](nvml::ProcessDetailList* given) {
    return call(Function::nvmlDeviceGetRunningProcessDetailList, device, given);
  };
  if (wanted == nullptr || wanted->version != nvml::kProcessDetailListV1) return real(wanted);
  Kind kind = wanted->mode == nvml::kComputeMode ? Kind::compute : Kind::other;
  return list(device, kind, &wanted->count, wanted->places,
              [=](unsigned int* count, nvml::ProcessDetail* places) {
                nvml::ProcessDetailList copy = {
                    .version = wanted->version, .mode = wanted->mode, .count = *count, .places = places};
                Result result = real(&copy);
                *count = copy.count;
                return result;
              });
}

#define SHAREDGPU_LIST(name, kind, Process)                                                           \
  SHAREDGPU_EXPORT Result name(Device device, unsigned int* count, nvml::Process* places) {           \
    return list(device, Kind::kind, count, places, [=](unsigned int* its_count, nvml::Process* its) { \
      return call(Function::name, device, its_count, its);                                            \
    });                                                                                               \
  }
SHAREDGPU_LIST(nvmlDeviceGetComputeRunningProcesses, compute, ProcessV1)
SHAREDGPU_LIST(nvmlDeviceGetComputeRunningProcesses_v2, compute, ProcessV2)
SHAREDGPU_LIST(nvmlDeviceGetComputeRunningProcesses_v3, compute, ProcessV2)
SHAREDGPU_LIST(nvmlDeviceGetGraphicsRunningProcesses, other, ProcessV1)
SHAREDGPU_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, other, ProcessV2)
SHAREDGPU_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, other, ProcessV2)
SHAREDGPU_LIST(nvmlDeviceGetMPSComputeRunningProcesses, other, ProcessV1)
SHAREDGPU_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, other, ProcessV2)
SHAREDGPU_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, other, ProcessV2)
