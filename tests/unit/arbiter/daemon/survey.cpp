// SPDX-License-Identifier: Apache-2.0
// The survey's child process, and how the arbiter uses its answers if NVML is missing, does not answer,
// crashes or returns false values.
#include "arbiter/daemon/survey.h"

#include <sys/wait.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "arbiter/daemon/driver_child.h"
#include "systems.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// The behaviour of NVML's functions. The functions run in a child of the test's process, with a copy of these
// values from the time of the fork.
struct Behaviour {
  int init = 0, memory = 0, compute = 0, graphics = 0;  // statuses
  unsigned processes = 2;
  bool hangs = false;
  bool crashes = false;
  int failing_device = -1;  // a device whose memory NVML does not report; -1: none
  int failure = 15;         // the status that NVML returns for this device
  unsigned devices = 2;
  int lost_handle = -1;  // a device for which NVML does not return a handle; -1: none
  unsigned long long ecc_errors = 3;
  unsigned events = 0;  // number of events of the first device: Xids 13, 14, ..., and a double bit error as
                        // the last event
  bool has_events = true;
  unsigned instance = ~0u;  // GPU instance of the first process; ~0u: none
};
Behaviour nvml;

struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

int index_of(void* handle) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)) - 1; }
int init() { return nvml.init; }
int shutdown() { return 0; }
int count_of(unsigned* count) {
  *count = nvml.devices;
  return 0;
}
int handle_of(unsigned index, void** handle) {
  if (nvml.lost_handle == static_cast<int>(index)) return 15;
  *handle = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return 0;
}
int uuid_of(void* handle, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-%02x000000-0000-0000-0000-000000000000", index_of(handle) + 1);
  return 0;
}
int memory_of(void* handle, Memory* memory) {
  while (nvml.hangs) pause();
  if (nvml.crashes) raise(SIGKILL);
  *memory = {.total = 100, .free = 30, .used = 70};
  return nvml.failing_device == index_of(handle) ? nvml.failure : nvml.memory;
}
struct Utilization {
  unsigned gpu, memory;
};
int energy_of(void* handle, unsigned long long* millijoules) {
  *millijoules = 1000;
  return index_of(handle) == 0 ? 0 : 3;
}
int utilization_of(void* handle, Utilization* rates) {
  *rates = {.gpu = 42, .memory = 7};
  return index_of(handle) == 0 ? 0 : 3;
}
int ecc_errors_of(void* handle, int kind, int counter, unsigned long long* count) {
  *count = nvml.ecc_errors;
  return kind == 1 && counter == 0 && index_of(handle) == 0 ? 0 : 3;
}
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
int make_set(void** set) {
  *set = &nvml;
  return 0;
}
int listen_to(void*, unsigned long long, void*) { return nvml.has_events ? 0 : 3; }
int wait_in(void*, EventData* event, unsigned) {
  static unsigned told = 0;
  if (told >= nvml.events) return 10;
  const bool last = ++told == nvml.events;
  *event = {.device = reinterpret_cast<void*>(std::uintptr_t{1}),
            .type = last ? 2u : 8u,
            .data = last ? 0 : 12 + told,
            .gpu_instance = ~0u,
            .compute_instance = ~0u};
  return 0;
}
int compute_on(void*, unsigned* count, Process* places) {
  if (nvml.compute != 0) return nvml.compute;
  const unsigned room = *count;
  *count = nvml.processes;
  if (room < nvml.processes) return 7;
  for (unsigned i = 0; i < nvml.processes; ++i)
    places[i] = {.pid = 100 + i,
                 .used = i == 1 ? ~0ull : 1000,
                 .gpu_instance = i == 0 ? nvml.instance : ~0u,
                 .compute_instance = ~0u};
  return 0;
}
// The first process is in both lists, since it uses the GPU for computation and for graphics.
int graphics_on(void*, unsigned* count, Process* places) {
  if (nvml.graphics != 0) return nvml.graphics;
  *count = 2;
  places[0] = {.pid = 100, .used = 1500, .gpu_instance = ~0u, .compute_instance = ~0u};
  places[1] = {.pid = 7, .used = 30, .gpu_instance = ~0u, .compute_instance = ~0u};
  return 0;
}

class Nvml : public System {
 public:
  bool there = true;
  std::string missing;
  Nvml() { nvml = {}; }
  void* open_library(const char* name) const override {
    return there && std::strcmp(name, "libnvidia-ml.so.1") == 0 ? &nvml : nullptr;
  }
  void* symbol(void*, const char* name) const override {
    static const std::map<std::string, void*> kFunctions = {
        {"nvmlInit_v2", reinterpret_cast<void*>(init)},
        {"nvmlShutdown", reinterpret_cast<void*>(shutdown)},
        {"nvmlDeviceGetTotalEccErrors", reinterpret_cast<void*>(ecc_errors_of)},
        {"nvmlDeviceGetTotalEnergyConsumption", reinterpret_cast<void*>(energy_of)},
        {"nvmlDeviceGetUtilizationRates", reinterpret_cast<void*>(utilization_of)},
        {"nvmlEventSetCreate", reinterpret_cast<void*>(make_set)},
        {"nvmlDeviceRegisterEvents", reinterpret_cast<void*>(listen_to)},
        {"nvmlEventSetFree", reinterpret_cast<void*>(shutdown)},
        {"nvmlEventSetWait_v2", reinterpret_cast<void*>(wait_in)},
        {"nvmlDeviceGetCount_v2", reinterpret_cast<void*>(count_of)},
        {"nvmlDeviceGetHandleByIndex_v2", reinterpret_cast<void*>(handle_of)},
        {"nvmlDeviceGetUUID", reinterpret_cast<void*>(uuid_of)},
        {"nvmlDeviceGetMemoryInfo", reinterpret_cast<void*>(memory_of)},
        {"nvmlDeviceGetComputeRunningProcesses_v2", reinterpret_cast<void*>(compute_on)},
        {"nvmlDeviceGetGraphicsRunningProcesses_v2", reinterpret_cast<void*>(graphics_on)}};
    const auto found = kFunctions.find(name);
    return found == kFunctions.end() || name == missing ? nullptr : found->second;
  }
};

// A survey with short times. The survey runs while `needed` is true.
struct Looking {
  asio::io_context loop{1};
  bool needed = true;
  unsigned answers = 0, silences = 0;
  std::vector<SurveyedGpu> last;
  std::vector<GpuHealth> health;
  bool all = false;
  std::vector<GpuSign> signs;
  Survey survey;

  explicit Looking(const System& system, std::chrono::milliseconds patience = 15s)
      : survey(
            loop, system, [this] { return needed; },
            [this](const std::vector<SurveyedGpu>& gpus) {
              ++(gpus.empty() ? silences : answers);
              last = gpus;
            },
            {.period = 5ms, .patience = patience, .first_pause = 5ms, .longest_pause = 20ms},
            {.looked =
                 [this](const std::vector<GpuHealth>& gpus, bool whole) {
                   health = gpus;
                   all = whole;
                 },
             .saw = [this](const GpuSign& sign) { signs.push_back(sign); }}) {
    survey.wake();
  }
  void until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!holds()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      loop.restart();
      loop.run_for(5ms);
    }
  }
};

TEST_CASE("A survey has each process once, with all of its memory") {
  const Nvml host;
  Looking looking(host);
  looking.until([&] { return looking.answers > 0; });
  REQUIRE(looking.last.size() == 2);
  CHECK(looking.last[1].uuid == GpuUuid{{2}});
  CHECK(looking.last[1].used == Bytes{70});
  CHECK(looking.last[1].free == Bytes{30});
  const auto& processes = looking.last[1].processes;
  REQUIRE(processes.size() == 3);
  CHECK(processes[0].pid == 100);
  CHECK(processes[0].memory == Bytes{1500});
  CHECK(processes[1].memory == std::nullopt);
  CHECK(processes[2].pid == 7);
}

TEST_CASE("A survey has the energy and the utilization of the GPUs that report them") {
  Nvml host;
  const auto look = [&] {
    Looking looking(host);
    looking.until([&] { return looking.answers > 0; });
    REQUIRE(looking.last.size() == 2);
    CHECK(looking.last[1].energy == std::nullopt);
    CHECK(looking.last[1].utilization == std::nullopt);
    return looking.last[0];
  };
  CHECK(look().energy == Energy{1000});
  CHECK(look().utilization == 42u);
  host.missing = "nvmlDeviceGetTotalEnergyConsumption";
  CHECK(look().energy == std::nullopt);
  CHECK(look().utilization == 42u);
  host.missing = "nvmlDeviceGetUtilizationRates";
  CHECK(look().energy == Energy{1000});
  CHECK(look().utilization == std::nullopt);
}

TEST_CASE("Surveys continue while they are needed, and leave no child process afterwards") {
  const Nvml host;
  Looking looking(host);
  looking.until([&] { return looking.answers > 3; });
  looking.needed = false;
  looking.until([&] { return looking.silences > 0; });
  looking.until([] { return waitpid(-1, nullptr, WNOHANG) == -1; });
  const unsigned before = looking.answers;
  looking.loop.restart();
  looking.loop.run();  // returns early, since the loop has no work left
  CHECK(looking.answers == before);
  looking.needed = true;
  looking.survey.wake();
  looking.until([&] { return looking.answers > before; });
}

TEST_CASE("A survey with many processes is complete, and a survey with too many has nothing about the GPU") {
  const Nvml host;
  SECTION("as many as are told of") {
    nvml.processes = kMostSurveyedProcesses;
    Looking looking(host);
    looking.until([&] { return looking.answers > 1; });
    CHECK(looking.last[0].processes.size() == kMostSurveyedProcesses + 1);
  }
  SECTION("one more") {
    nvml.processes = kMostSurveyedProcesses + 1;
    Looking looking(host);
    looking.until([&] { return looking.silences > 0; });
    CHECK(looking.answers == 0);
  }
}

TEST_CASE("A survey passes over a GPU that does not answer") {
  const Nvml host;
  nvml.failing_device = 0;
  Looking looking(host);
  looking.until([&] { return looking.answers > 0; });
  REQUIRE(looking.last.size() == 1);
  CHECK(looking.last[0].uuid == GpuUuid{{2}});
}

TEST_CASE("A survey passes over processes in MIG instances of a GPU, which are on other GPUs") {
  const Nvml host;
  nvml.instance = 3;
  nvml.graphics = 3;
  Looking looking(host);
  looking.until([&] { return looking.answers > 0; });
  REQUIRE(looking.last.size() == 2);
  REQUIRE(looking.last[1].processes.size() == 1);
  CHECK(looking.last[1].processes[0].pid == 101);
}

TEST_CASE("A survey needs no list of graphics processes") {
  Nvml host;
  SECTION("the function is missing") { host.missing = "nvmlDeviceGetGraphicsRunningProcesses_v2"; }
  SECTION("it fails") { nvml.graphics = 3; }
  Looking looking(host);
  looking.until([&] { return looking.answers > 0; });
  CHECK(looking.last[0].processes.size() == 2);
}

TEST_CASE("A survey has the health of each GPU, even of a GPU that reports nothing else") {
  const Nvml host;
  nvml.failing_device = 1;
  SECTION("lost") { nvml.failure = 15; }
  SECTION("to be reset") { nvml.failure = 16; }
  Looking looking(host);
  looking.until([&] { return looking.health.size() == 2 && !looking.signs.empty(); });
  CHECK(looking.health[0].uuid == GpuUuid{{1}});
  CHECK(looking.health[0].status == 0);
  CHECK(looking.health[0].ecc_errors == 3);
  CHECK(looking.health[1].status == static_cast<std::uint32_t>(nvml.failure));
  CHECK(looking.health[1].ecc_errors == std::nullopt);
  CHECK(looking.all);
  CHECK(looking.signs[0].uuid == GpuUuid{{2}});
  CHECK(looking.signs[0].kind == GpuSign::Kind::status);
  CHECK(looking.signs[0].number == static_cast<std::uint64_t>(nvml.failure));
}

TEST_CASE("A survey passes on the errors that GPUs report") {
  const Nvml host;
  nvml.events = 3;
  SECTION("some GPU has no events of ECC errors") { nvml.has_events = false; }
  Looking looking(host);
  looking.until([&] { return looking.signs.size() == 3; });
  for (const GpuSign& sign : looking.signs) CHECK(sign.uuid == GpuUuid{{1}});
  CHECK(looking.signs[0].kind == GpuSign::Kind::xid);
  CHECK(looking.signs[0].number == 13);
  CHECK(looking.signs[1].number == 14);
  CHECK(looking.signs[2].kind == GpuSign::Kind::ecc_error);
}

TEST_CASE("A survey lists all GPUs, or says that its list may be incomplete") {
  const Nvml host;
  SECTION("one is lost, and has no name") {
    nvml.lost_handle = 0;
    Looking looking(host);
    looking.until([&] { return looking.health.size() == 1; });
    CHECK(looking.health[0].uuid == GpuUuid{{2}});
    CHECK(looking.all);
  }
  SECTION("there is none any more") {
    nvml.devices = 0;
    Looking looking(host);
    looking.until([&] { return looking.all; });
    CHECK(looking.health.empty());
  }
  SECTION("there are more than are told of") {
    nvml.devices = kMostSurveyedGpus + 1;
    Looking looking(host);
    looking.until([&] { return looking.health.size() == kMostSurveyedGpus; });
    CHECK(!looking.all);
  }
}

TEST_CASE("A survey without NVML says so and tries again") {
  Nvml host;
  SECTION("no library") { host.there = false; }
  SECTION("a function is missing") { host.missing = "nvmlDeviceGetComputeRunningProcesses_v2"; }
  SECTION("it does not start") { nvml.init = 9; }
  SECTION("it crashes") { nvml.crashes = true; }
  Looking looking(host);
  looking.until([&] { return looking.silences > 2; });
  CHECK(looking.answers == 0);
  host.there = true;
  host.missing.clear();
  nvml = {};
  looking.until([&] { return looking.answers > 0; });
}

TEST_CASE("A survey's child process that is silent is killed, and a new one is started") {
  const Nvml host;
  nvml.hangs = true;
  Looking looking(host, 30ms);
  looking.until([&] { return looking.silences > 0; });
  CHECK(looking.answers == 0);
  nvml.hangs = false;
  looking.until([&] { return looking.answers > 0; });
}

TEST_CASE("A survey's child process that cannot be watched is not left behind") {
  struct Host : Nvml {
    mutable int refused = 0;
    UniqueFd open_process(pid_t pid) const override {
      if (refused++ > 1) return System::open_process(pid);
      errno = EMFILE;
      return {};
    }
  } host;
  {
    Looking looking(host);
    looking.until([&] { return looking.answers > 0; });
  }
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
}

// A library that writes to the survey's connection. The connection is the first descriptor after standard
// error, since the child has no other descriptors.
TEST_CASE("A survey's child process that sends invalid data is killed, and its data is dropped") {
  struct Host : Nvml {
    SurveyLine line;
    unsigned lines = 1;
    bool lies = true;
    void* open_library(const char* name) const override {
      for (unsigned i = 0; lies && i < lines; ++i)
        if (write(STDERR_FILENO + 1, &line, sizeof line) < 0) _exit(1);
      while (lies) pause();
      return Nvml::open_library(name);
    }
  } host;
  SECTION("an unknown line") { host.line.kind = static_cast<SurveyLine::Kind>(77); }
  SECTION("a process of no GPU") { host.line.kind = SurveyLine::Kind::process; }
  SECTION("meters of no GPU") { host.line.kind = SurveyLine::Kind::meters; }
  SECTION("too many GPUs") {
    host.line.kind = SurveyLine::Kind::gpu;
    host.lines = 1000;
  }
  SECTION("more answers than questions") { host.lines = 2; }
  Looking looking(host);
  looking.until([&] { return looking.silences > 0; });
  host.lies = false;
  looking.until([&] { return looking.last.size() == 2; });
}

}  // namespace
}  // namespace sharedgpu
