// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/gpus.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "arbiter/daemon/driver_child.h"
#include "arbiter/daemon/watched.h"
#include "protocol/channel.h"
#include "protocol/gpu_names.h"

namespace sharedgpu {
namespace {

constexpr unsigned kMostGpus = 64;
constexpr std::chrono::seconds kFirstPause{1};
constexpr std::chrono::seconds kLongestPause{60};
constexpr std::chrono::seconds kClosePause{10};

// The child writes one line for each GPU. A line is shorter than PIPE_BUF, so a read never returns a part of
// a line.
struct Line {
  GpuUuid uuid;
  std::uint64_t total = 0;
  std::optional<unsigned> minor;
  char name[96] = {};
};

// This function declares the part of NVML's ABI that it uses, because NVML's header is only in the full CUDA
// toolkit.
bool ask_nvml(const System& system, int out) {
  struct Memory {
    unsigned long long total, free, used;
  };
  const DriverLibrary library(system, "libnvidia-ml.so.1");
  if (!library) return false;
  int (*init)();
  int (*count_of)(unsigned*);
  int (*handle_of)(unsigned, void**);
  int (*uuid_of)(void*, char*, unsigned);
  int (*name_of)(void*, char*, unsigned);
  int (*memory_of)(void*, Memory*);
  int (*minor_of)(void*, unsigned*);
  if (!library.load("nvmlInit_v2", init) || !library.load("nvmlDeviceGetCount_v2", count_of) ||
      !library.load("nvmlDeviceGetHandleByIndex_v2", handle_of) ||
      !library.load("nvmlDeviceGetUUID", uuid_of) || !library.load("nvmlDeviceGetName", name_of) ||
      !library.load("nvmlDeviceGetMemoryInfo", memory_of) ||
      !library.load("nvmlDeviceGetMinorNumber", minor_of))
    return false;
  unsigned count = 0;
  if (init() != 0 || count_of(&count) != 0) return false;
  bool found = false;
  for (unsigned i = 0; i < count && i < kMostGpus; ++i) {
    Line line;
    void* device = nullptr;
    char uuid[96] = {};
    Memory memory = {};
    if (handle_of(i, &device) != 0 || uuid_of(device, uuid, sizeof uuid) != 0 ||
        memory_of(device, &memory) != 0 || !parse_gpu(uuid, line.uuid))
      continue;
    name_of(device, line.name, sizeof line.name);
    if (unsigned minor = 0; minor_of(device, &minor) == 0) line.minor = minor;
    line.total = memory.total;
    found = write(out, &line, sizeof line) == sizeof line || found;
  }
  return found;
}

void ask_driver(const System& system, int out) {
  const DriverLibrary library(system, "libcuda.so.1");
  if (!library) return;
  int (*init)(unsigned);
  int (*count_of)(int*);
  int (*device_of)(int*, int);
  int (*uuid_of)(GpuUuid*, int);
  int (*name_of)(char*, int, int);
  int (*memory_of)(std::size_t*, int);
  if (!library.load("cuInit", init) || !library.load("cuDeviceGetCount", count_of) ||
      !library.load("cuDeviceGet", device_of) || !library.load("cuDeviceGetUuid", uuid_of) ||
      !library.load("cuDeviceGetName", name_of) || !library.load("cuDeviceTotalMem_v2", memory_of))
    return;
  int count = 0;
  if (init(0) != 0 || count_of(&count) != 0) return;
  for (int i = 0; i < count && i < static_cast<int>(kMostGpus); ++i) {
    Line line;
    int device = 0;
    std::size_t total = 0;
    if (device_of(&device, i) != 0 || uuid_of(&line.uuid, device) != 0 || memory_of(&total, device) != 0)
      continue;
    name_of(line.name, sizeof line.name, device);
    line.total = total;
    if (write(out, &line, sizeof line) != sizeof line) return;
  }
}

std::vector<GpuInfo> read_lines(int in, std::chrono::milliseconds timeout) {
  std::vector<GpuInfo> gpus;
  for (;;) {
    pollfd entry = {.fd = in, .events = POLLIN, .revents = 0};
    int ready = poll(&entry, 1, static_cast<int>(timeout.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return gpus;
    Line line;
    if (read(in, &line, sizeof line) != sizeof line) return gpus;
    line.name[sizeof line.name - 1] = '\0';
    gpus.push_back(
        GpuInfo{.uuid = line.uuid, .total = Bytes{line.total}, .name = line.name, .minor = line.minor});
  }
}

// Starts a child that lists the GPUs. Returns the child's pid, or a negative number on failure.
pid_t start_child(const System& system, UniqueFd& answer) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  answer.reset(ends[0]);
  return start_driver_child(UniqueFd(ends[1]), [&](int out) {
    if (!ask_nvml(system, out)) ask_driver(system, out);
  });
}

// Kills the child. Does not wait longer than a second, since a child that hangs in the Linux kernel does not
// die.
void end_child(pid_t child) {
  kill(child, SIGKILL);
  for (int i = 0; i < 100 && waitpid(child, nullptr, WNOHANG) == 0; ++i) usleep(10'000);
}

}  // namespace

std::vector<GpuInfo> find_gpus(const System& system, std::chrono::milliseconds timeout) {
  UniqueFd answer;
  pid_t child = start_child(system, answer);
  if (child < 0) return {};
  std::vector<GpuInfo> gpus = read_lines(answer.get(), timeout);
  end_child(child);
  return gpus;
}

GpuSearch::GpuSearch(asio::io_context& loop, const System& system,
                     std::function<void(const std::vector<GpuInfo>&)> found)
    : system_(system),
      found_(std::move(found)),
      timer_(loop),
      timeout_(loop),
      death_(loop),
      pause_(kFirstPause) {}

GpuSearch::~GpuSearch() {
  if (child_ > 0) end_child(child_);
}

void GpuSearch::start() {
  timer_.expires_after(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) ask();
  });
}

// Only NVML reports minor numbers, so a minor number shows that NVML has answered.
void GpuSearch::go_on(const std::vector<GpuInfo>& found) {
  has_nvml_ = has_nvml_ || std::any_of(found.begin(), found.end(),
                                       [](const GpuInfo& gpu) { return gpu.minor.has_value(); });
  if (!has_nvml_) return;
  pause_ = closely_ ? kClosePause : kLongestPause;
  start();
}

void GpuSearch::hurry() {
  if (timer_.cancel() > 0) ask();
}

// Starts no second child while an earlier child hangs in the driver.
void GpuSearch::ask() {
  const bool killed_unwatched = child_ > 0;
  if (killed_unwatched && waitpid(child_, nullptr, WNOHANG) == 0) return start();
  child_ = start_child(system_, answer_);
  if (child_ < 0) return start();
  UniqueFd pidfd = system_.open_process(child_);
  if (!pidfd || hand_over(pidfd, death_)) {
    kill(child_, SIGKILL);
    return start();
  }
  await_death(death_, [this] { finish(); });
  timeout_.expires_after(kGpuTimeout);
  timeout_.async_wait([this](const asio::error_code& error) {
    if (!error && child_ > 0) kill(child_, SIGKILL);
  });
}

void GpuSearch::finish() {
  timeout_.cancel();
  death_.close();
  waitpid(child_, nullptr, 0);
  child_ = -1;
  // The child has ended, so its whole answer is in the pipe. A wait for end-of-file could be endless, since a
  // process that the child has started may hold the pipe open.
  const std::vector<GpuInfo> gpus = read_lines(answer_.get(), {});
  answer_.reset();
  if (gpus.empty()) return start();
  found_(gpus);
  go_on(gpus);
}

}  // namespace sharedgpu
