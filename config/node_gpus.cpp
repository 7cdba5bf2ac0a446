// SPDX-License-Identifier: Apache-2.0
#include "config/node_gpus.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>

#include "config/close_from.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostText = 1u << 20;

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

std::vector<std::string> entries(const std::string& path) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, CloseFolder> folder(opendir(path.c_str()));
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder.get()))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  return names;
}

std::string_view trim(std::string_view text) {
  std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Runs in the child process: writes the driver's file "information" of each GPU to `out`, each followed by a
// NUL.
void write_information(const std::string& folder, int out) {
  for (const std::string& name : entries(folder)) {
    int file = open((folder + "/" + name + "/information").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    char buffer[4096];
    ssize_t size = read(file, buffer, sizeof buffer - 1);
    close(file);
    if (size <= 0) continue;
    buffer[size] = '\0';
    if (write(out, buffer, static_cast<std::size_t>(size) + 1) < 0) return;
  }
}

// Reads until the writer closes the pipe. Returns nullopt on timeout.
std::optional<std::string> read_all(int in, std::chrono::milliseconds patience) {
  std::string text;
  const auto end = Clock::now() + patience;
  while (text.size() < kMostText) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd entry = {.fd = in, .events = POLLIN, .revents = 0};
    int ready = left > 0 ? poll(&entry, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return {};
    char buffer[4096];
    ssize_t size = read(in, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

// Returns the contents of the driver's "information" files; an empty text if there is no driver or no child
// process could be created; nullopt if the driver does not answer in time.
std::optional<std::string> ask_kernel(const std::string& folder, std::chrono::milliseconds patience) {
  int ends[2];
  if (access(folder.c_str(), R_OK) != 0 || pipe2(ends, O_CLOEXEC) != 0) return std::string();
  pid_t child = fork();
  if (child == 0) {
    // The child may outlive this call, and must not keep the daemon's sockets and log open.
    dup2(ends[1], STDOUT_FILENO);
    close(STDIN_FILENO);
    close_from(STDERR_FILENO);
    write_information(folder, STDOUT_FILENO);
    _exit(0);
  }
  close(ends[1]);
  std::optional<std::string> text = child > 0 ? read_all(ends[0], patience) : std::string();
  close(ends[0]);
  if (child > 0) {
    kill(child, SIGKILL);
    // SIGKILL has no effect on a child that hangs in the driver, so the wait for the child ends after a
    // second.
    for (int i = 0; i < 100 && waitpid(child, nullptr, WNOHANG) == 0; ++i) usleep(10'000);
  }
  return text;
}

void sort(std::vector<NodeGpu>& gpus) {
  std::sort(gpus.begin(), gpus.end(), [](const NodeGpu& a, const NodeGpu& b) { return a.minor < b.minor; });
}

}  // namespace

std::string device_file(const NodeGpu& gpu) { return "/dev/nvidia" + std::to_string(gpu.minor); }

std::string gres_type(std::string_view model) {
  std::string type;
  for (char c : model) type += c == ' ' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return type;
}

std::string short_gres_type(std::string_view model) {
  std::string type = gres_type(model);
  for (std::string_view maker : {"nvidia_", "tesla_"})
    if (type.starts_with(maker)) type.erase(0, maker.size());
  return type;
}

bool parse_gpu_information(std::string_view text, NodeGpu& gpu) {
  bool numbered = false;
  while (!text.empty()) {
    std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::size_t colon = line.find(':');
    if (colon == line.npos) continue;
    std::string_view key = trim(line.substr(0, colon));
    std::string_view value = trim(line.substr(colon + 1));
    if (key == "Model") gpu.model = value;
    if (key == "GPU Excluded" && value == "Yes") return false;
    if (auto number = parse_number<unsigned>(value); key == "Device Minor" && number) {
      gpu.minor = *number;
      numbered = true;
    }
  }
  return numbered;
}

std::vector<NodeGpu> list_device_files(const std::string& root) {
  std::vector<NodeGpu> gpus;
  constexpr std::string_view kPrefix = "nvidia";
  for (const std::string& name : entries(root + "/dev")) {
    if (!name.starts_with(kPrefix)) continue;
    if (auto number = parse_number<unsigned>(std::string_view(name).substr(kPrefix.size())))
      gpus.push_back({.minor = *number, .model = {}});
  }
  sort(gpus);
  return gpus;
}

NodeGpus find_node_gpus(std::chrono::milliseconds patience, const std::string& root) {
  NodeGpus gpus;
  const std::optional<std::string> answer = ask_kernel(root + "/proc/driver/nvidia/gpus", patience);
  gpus.timed_out = !answer;
  const std::string text = answer.value_or("");
  for (std::size_t begin = 0, end; (end = text.find('\0', begin)) != text.npos; begin = end + 1) {
    NodeGpu gpu;
    if (parse_gpu_information(std::string_view(text).substr(begin, end - begin), gpu))
      gpus.list.push_back(gpu);
  }
  sort(gpus.list);
  if (gpus.list.empty()) gpus.list = list_device_files(root);
  return gpus;
}

}  // namespace sharedgpu
