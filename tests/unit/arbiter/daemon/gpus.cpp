// SPDX-License-Identifier: Apache-2.0
// The search for GPUs by NVML and by the driver, and its result if these libraries are missing, fail, crash
// or hang.
#include "arbiter/daemon/gpus.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "arbiter/daemon/system.h"
#include "systems.h"

namespace sharedgpu {
namespace {

// The behaviour of the functions of NVML and of the driver. The functions run in a child of the test's
// process, with a copy of these values from the time of the fork.
struct Behaviour {
  int init = 0, count_status = 0, uuid = 0, memory = 0, minor = 0;  // statuses
  unsigned count = 2;
  int failing_device = -1;  // index of the GPU for which uuid, memory and minor count; -1: all GPUs
  bool crashes = false;     // crashes when the second device is queried
  bool hangs = false;       // hangs when the second device is queried
};
Behaviour nvml;
Behaviour driver;

void* device(unsigned index) { return reinterpret_cast<void*>(std::uintptr_t{index} + 1); }
int index_of(void* handle) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)) - 1; }

int nvml_init() { return nvml.init; }
int nvml_count(unsigned* count) {
  *count = nvml.count;
  return nvml.count_status;
}
int nvml_handle(unsigned index, void** handle) {
  if (index == 1 && nvml.crashes) raise(SIGKILL);
  while (index == 1 && nvml.hangs) pause();
  *handle = device(index);
  return 0;
}
int status_of(int status, void* handle) {
  return nvml.failing_device < 0 || nvml.failing_device == index_of(handle) ? status : 0;
}
int nvml_uuid(void* handle, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-0%d000000-0000-0000-0000-000000000000", index_of(handle) + 1);
  return status_of(nvml.uuid, handle);
}
int nvml_name(void*, char* text, unsigned size) {
  std::strncpy(text, "of NVML", size);
  return 0;
}
int nvml_memory(void* handle, unsigned long long* memory) {
  memory[0] = gibibytes(2).count;
  return status_of(nvml.memory, handle);
}
int nvml_minor(void* handle, unsigned* minor) {
  *minor = static_cast<unsigned>(index_of(handle)) + 4;
  return status_of(nvml.minor, handle);
}

int driver_init(unsigned) { return driver.init; }
int driver_count(int* count) {
  *count = static_cast<int>(driver.count);
  return driver.count_status;
}
int driver_device(int* found, int index) {
  *found = index;
  return 0;
}
int driver_uuid(GpuUuid* uuid, int index) {
  uuid->bytes[0] = static_cast<std::uint8_t>(index + 1);
  return driver.uuid;
}
int driver_name(char* text, int size, int) {
  std::strncpy(text, "of the driver", static_cast<std::size_t>(size));
  return 0;
}
int driver_memory(std::size_t* size, int) {
  *size = gibibytes(2).count;
  return driver.memory;
}

// A host with both libraries, one library, no library, or libraries that lack functions.
class Libraries : public System {
 public:
  bool has_nvml = true, has_driver = true;
  std::string missing;  // name of a function that no library has

  Libraries() {
    nvml = {};
    driver = {};
  }
  void* open_library(const char* name) const override {
    if (std::strcmp(name, "libnvidia-ml.so.1") == 0) return has_nvml ? &nvml : nullptr;
    return has_driver && std::strcmp(name, "libcuda.so.1") == 0 ? &driver : nullptr;
  }
  void* symbol(void*, const char* name) const override {
    static const std::map<std::string, void*> kFunctions = {
        {"nvmlInit_v2", reinterpret_cast<void*>(nvml_init)},
        {"nvmlDeviceGetCount_v2", reinterpret_cast<void*>(nvml_count)},
        {"nvmlDeviceGetHandleByIndex_v2", reinterpret_cast<void*>(nvml_handle)},
        {"nvmlDeviceGetUUID", reinterpret_cast<void*>(nvml_uuid)},
        {"nvmlDeviceGetName", reinterpret_cast<void*>(nvml_name)},
        {"nvmlDeviceGetMemoryInfo", reinterpret_cast<void*>(nvml_memory)},
        {"nvmlDeviceGetMinorNumber", reinterpret_cast<void*>(nvml_minor)},
        {"cuInit", reinterpret_cast<void*>(driver_init)},
        {"cuDeviceGetCount", reinterpret_cast<void*>(driver_count)},
        {"cuDeviceGet", reinterpret_cast<void*>(driver_device)},
        {"cuDeviceGetUuid", reinterpret_cast<void*>(driver_uuid)},
        {"cuDeviceGetName", reinterpret_cast<void*>(driver_name)},
        {"cuDeviceTotalMem_v2", reinterpret_cast<void*>(driver_memory)}};
    const auto found = kFunctions.find(name);
    return found == kFunctions.end() || name == missing ? nullptr : found->second;
  }
};

void reap_children_of_other_tests() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

std::vector<std::string> names(const std::vector<GpuInfo>& gpus) {
  std::vector<std::string> all;
  for (const GpuInfo& gpu : gpus) all.push_back(gpu.name);
  return all;
}
using Names = std::vector<std::string>;
const Names kOfNvml = {"of NVML", "of NVML"};
const Names kOfDriver = {"of the driver", "of the driver"};

TEST_CASE("GPUs as NVML reports them") {
  const Libraries host;
  const std::vector<GpuInfo> gpus = find_gpus(host);
  REQUIRE(names(gpus) == kOfNvml);
  CHECK(gpus[0].uuid == GpuUuid{{1}});
  CHECK(gpus[1].uuid == GpuUuid{{2}});
  CHECK(gpus[1].total == gibibytes(2));
  CHECK(gpus[1].minor == std::optional<unsigned>(5));
}

TEST_CASE("If NVML is missing or fails, the driver is asked") {
  Libraries host;
  SECTION("no library") { host.has_nvml = false; }
  SECTION("a function is missing") { host.missing = "nvmlDeviceGetMinorNumber"; }
  SECTION("nvmlInit fails") { nvml.init = 9; }
  SECTION("the count fails") { nvml.count_status = 999; }
  SECTION("it knows no GPU") { nvml.count = 0; }
  SECTION("no GPU tells its UUID") { nvml.uuid = 15; }
  SECTION("no GPU tells its memory") { nvml.memory = 15; }
  const std::vector<GpuInfo> gpus = find_gpus(host);
  REQUIRE(names(gpus) == kOfDriver);
  CHECK(gpus[1].uuid == GpuUuid{{2}});
  CHECK(gpus[1].total == gibibytes(2));
  CHECK_FALSE(gpus[1].minor);
}

TEST_CASE("A GPU that does not answer hides no other") {
  const Libraries host;
  nvml.failing_device = 0;
  SECTION("no UUID") { nvml.uuid = 15; }
  SECTION("no memory: it has fallen off the bus") { nvml.memory = 15; }
  const std::vector<GpuInfo> gpus = find_gpus(host);
  REQUIRE(names(gpus) == Names{"of NVML"});
  CHECK(gpus[0].uuid == GpuUuid{{2}});
}

TEST_CASE("NVML may not know the device file of a GPU") {
  const Libraries host;
  nvml.failing_device = 1;
  nvml.minor = 3;
  const std::vector<GpuInfo> gpus = find_gpus(host);
  REQUIRE(names(gpus) == kOfNvml);
  CHECK(gpus[0].minor == std::optional<unsigned>(4));
  CHECK_FALSE(gpus[1].minor);
}

TEST_CASE("If neither NVML nor the driver answers, there is no GPU") {
  Libraries host;
  host.has_nvml = false;
  SECTION("no library") { host.has_driver = false; }
  SECTION("a function is missing") { host.missing = "cuDeviceTotalMem_v2"; }
  SECTION("cuInit fails") { driver.init = 100; }
  SECTION("the count fails") { driver.count_status = 999; }
  SECTION("it knows no GPU") { driver.count = 0; }
  SECTION("no GPU tells its UUID") { driver.uuid = 1; }
  SECTION("no GPU tells its memory") { driver.memory = 1; }
  CHECK(find_gpus(host).empty());
}

TEST_CASE("A library that crashes or hangs does not harm the daemon") {
  const Libraries host;
  SECTION("crashes") { nvml.crashes = true; }
  SECTION("hangs") { nvml.hangs = true; }
  // The search finds the GPUs that its child has reported before the child crashes or hangs.
  CHECK(names(find_gpus(host, std::chrono::milliseconds(200))) == Names{"of NVML"});
}

TEST_CASE("GPUs that appear later are found") {
  Libraries host;
  host.has_nvml = host.has_driver = false;
  asio::io_context loop(1);
  std::vector<GpuInfo> found;
  GpuSearch search(loop, host, [&](const std::vector<GpuInfo>& gpus) { found = gpus; });
  search.start();
  loop.run_for(std::chrono::milliseconds(1200));  // the search has run once
  CHECK(found.empty());
  host.has_nvml = true;
  loop.run_for(std::chrono::seconds(20));  // returns earlier if the loop has no work left
  CHECK(names(found) == kOfNvml);
}

TEST_CASE("A search that only the driver answers does not end the searches of a host with NVML") {
  Libraries host;
  asio::io_context loop(1);
  std::vector<GpuInfo> found;
  GpuSearch search(loop, host, [&](const std::vector<GpuInfo>& gpus) { found = gpus; });
  const auto search_now = [&] {
    found.clear();
    search.hurry();
    for (int i = 0; i < 20 && found.empty(); ++i) loop.run_one_for(std::chrono::seconds(1));
    return names(found);
  };
  search.go_on(find_gpus(host));
  host.has_nvml = false;
  CHECK(search_now() == kOfDriver);
  host.has_nvml = true;
  CHECK(search_now() == kOfNvml);
}

TEST_CASE("A search that gets no descriptor for its child searches again") {
  struct Host : Libraries {
    mutable int refused = 0;
    UniqueFd open_process(pid_t pid) const override {
      if (refused++ > 0) return System::open_process(pid);
      errno = EMFILE;
      return {};
    }
  } host;
  reap_children_of_other_tests();
  asio::io_context loop(1);
  std::vector<GpuInfo> found;
  GpuSearch search(loop, host, [&](const std::vector<GpuInfo>& gpus) { found = gpus; });
  search.start();
  loop.run_for(std::chrono::seconds(20));
  CHECK(host.refused == 2);
  CHECK(names(found) == kOfNvml);
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // no child is left unreaped
}

TEST_CASE("At most 64 GPUs are requested from the driver") {
  Libraries host;
  host.has_nvml = false;
  driver.count = 70;
  CHECK(find_gpus(host).size() == 64);
}

TEST_CASE(
    "The child that asks has none of the arbiter's descriptors, preloads and signals, and is not left "
    "behind") {
  struct Watching : Libraries {
    int open = -1;
    void* open_library(const char* name) const override {
      const bool clean = fcntl(open, F_GETFD) < 0 && getenv("LD_PRELOAD") == nullptr &&
                         signal(SIGTERM, SIG_DFL) == SIG_DFL && signal(SIGINT, SIG_DFL) == SIG_DFL;
      return clean ? Libraries::open_library(name) : nullptr;
    }
  } host;
  host.open = fcntl(STDERR_FILENO, F_DUPFD, 100);
  REQUIRE(host.open >= 0);
  setenv("LD_PRELOAD", "", 1);
  reap_children_of_other_tests();
  const auto term = std::signal(SIGTERM, SIG_IGN);
  const auto interrupt = std::signal(SIGINT, SIG_IGN);
  const std::vector<GpuInfo> found = find_gpus(host);
  std::signal(SIGTERM, term);
  std::signal(SIGINT, interrupt);
  unsetenv("LD_PRELOAD");
  close(host.open);
  CHECK(names(found) == kOfNvml);
  nvml.hangs = true;
  CHECK(names(find_gpus(host, std::chrono::milliseconds(50))) == Names{"of NVML"});
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
}

}  // namespace
}  // namespace sharedgpu
