// SPDX-License-Identifier: Apache-2.0
// Reads the node for `sharedgpu doctor`.
#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "arbiter/cli/ask_status.h"
#include "arbiter/cli/doctor.h"
#include "config/host_name.h"
#include "protocol/ask.h"
#include "protocol/environment.h"
#include "protocol/split.h"

namespace sharedgpu::doctor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{5};  // a program that runs longer is killed
constexpr int kTimedOut = 124;
constexpr std::size_t kMostOutput = 1 << 20;
constexpr std::size_t kLargestPlugin = 64 << 20;

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

// Reads until the end of the stream. Returns false if the end has not come before the deadline.
bool read_until_end(int file, Clock::time_point deadline, std::string& text) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd one = {.fd = file, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&one, 1, static_cast<int>(left)) == 0) return false;
    char piece[4096];
    const ssize_t size = ::read(file, piece, sizeof piece);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    if (text.size() < kMostOutput) text.append(piece, static_cast<std::size_t>(size));
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Parses lines such as "Key   = value".
std::vector<KeyValue> values_in(const std::string& text) {
  std::vector<KeyValue> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t equals = line.find('='); equals != line.npos)
      values.emplace_back(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
  return values;
}

void ask_slurm(Node& node) {
  const Host::Output config = node.host.run({"scontrol", "show", "config"});
  if (!config.ran) {
    node.no_slurm = "scontrol is not installed";
    return;
  }
  if (config.status != 0) {
    node.no_slurm = "scontrol gets no answer from slurmctld";
    return;
  }
  node.slurm = values_in(config.text);
  const char* name = std::getenv("SLURMD_NODENAME");
  const std::string own = name != nullptr && *name != '\0' ? name : node.host.host_name();
  if (const auto shown = node.host.run({"scontrol", "--oneliner", "show", "node", own}); shown.status == 0)
    node.slurm_node = shown.text;
}

}  // namespace

std::optional<std::string> Host::read(const std::string& path) const {
  std::ifstream file(root_ + path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return file.bad() ? std::nullopt : std::optional(text.str());
}

bool Host::exists(const std::string& path) const { return access((root_ + path).c_str(), F_OK) == 0; }

std::vector<std::string> Host::list(const std::string& path) const {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root_ + path, error))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<struct stat> Host::facts(const std::string& path) const {
  struct stat found = {};
  return stat((root_ + path).c_str(), &found) == 0 ? std::optional(found) : std::nullopt;
}

std::optional<std::uint64_t> Host::free_space(const std::string& path) const {
  struct statvfs found = {};
  if (statvfs((root_ + path).c_str(), &found) != 0) return std::nullopt;
  return std::uint64_t{found.f_bavail} * found.f_frsize;
}

Host::Output Host::run(const std::vector<std::string>& words) const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    unsetenv("LD_PRELOAD");
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments.front(), arguments.data());
    _exit(127);
  }
  close(ends[1]);
  Output output;
  const bool ended = child > 0 && read_until_end(ends[0], Clock::now() + kPatience, output.text);
  close(ends[0]);
  if (child < 0) return {};
  if (!ended) kill(child, SIGKILL);
  output.status = wait_for(child);
  if (!ended) output.status = kTimedOut;
  output.ran = output.status != 127;
  return output;
}

std::string Host::status(const Settings& settings, std::string& error) const {
  std::string text;
  error = cli::ask_status(settings.socket, answer_patience(settings.arbiter_timeout), text);
  return text;
}

std::optional<uid_t> Host::user(const std::string& name) const {
  if (const auto number = parse_number<uid_t>(name)) return number;
  const passwd* entry = getpwnam(name.c_str());
  return entry == nullptr ? std::nullopt : std::optional(entry->pw_uid);
}

uid_t Host::uid() const { return geteuid(); }

std::string Host::host_name() const { return sharedgpu::host_name(); }

std::optional<bool> Host::clock_is_synchronised() const {
  timex clock = {};
  const int state = adjtimex(&clock);
  if (state < 0) return std::nullopt;
  return state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
}

std::string Node::slurm_value(std::string_view key) const {
  const auto found =
      std::find_if(slurm.begin(), slurm.end(), [&](const KeyValue& each) { return each.first == key; });
  return found == slurm.end() || found->second == "(null)" ? std::string() : found->second;
}

std::string Node::node_value(std::string_view key) const {
  const std::string name = " " + std::string(key) + "=";
  const std::size_t at = (" " + slurm_node).find(name);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() - 1;
  const std::string value = slurm_node.substr(begin, slurm_node.find_first_of(" \n", begin) - begin);
  return value == "(null)" ? std::string() : value;
}

std::string Node::slurm_folder() const {
  const std::string file = slurm_value("SLURM_CONF");
  return file.empty() ? "/etc/slurm" : file.substr(0, file.rfind('/'));
}

Node examine(const Host& host, const std::string& config, bool with_slurm) {
  Node node{.host = host,
            .config = config,
            .reading = {},
            .settings = {},
            .status = {},
            .no_status = {},
            .slurm = {},
            .slurm_node = {},
            .no_slurm = {}};
  if (node.config.empty() && host.exists(kDefaultConfigFile)) node.config = kDefaultConfigFile;
  if (!node.config.empty()) node.reading = read_in_spite_of_errors(host.root() + node.config, node.settings);
  if (const char* socket = std::getenv(environment::kSocket); socket != nullptr && *socket != '\0')
    node.settings.socket = socket;
  const std::string text = host.status(node.settings, node.no_status);
  if (node.no_status.empty()) {
    nlohmann::json status = nlohmann::json::parse(text, nullptr, false);
    if (status.is_object())
      node.status = std::move(status);
    else
      node.no_status = "its answer is not understood";
  }
  if (with_slurm) ask_slurm(node);
  return node;
}

namespace {

// Reads a value at an offset of the file; nullopt if the file ends before.
template <class Value>
std::optional<Value> at(std::string_view file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::string_view name_at(std::string_view file, std::uint64_t offset) {
  if (offset >= file.size()) return {};
  const std::string_view rest = file.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

}  // namespace

// Finds the symbol in the table of dynamic symbols. The section of the symbol gives the position of its value
// in the file.
std::optional<std::uint32_t> plugin_version(std::string_view file) {
  const auto head = at<Elf64_Ehdr>(file, 0);
  if (file.size() > kLargestPlugin || !head || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
      head->e_ident[EI_CLASS] != ELFCLASS64)
    return std::nullopt;
  const auto section = [&](std::uint64_t index) {
    return index < head->e_shnum ? at<Elf64_Shdr>(file, head->e_shoff + index * sizeof(Elf64_Shdr))
                                 : std::nullopt;
  };
  for (std::uint64_t index = 0; index < head->e_shnum; ++index) {
    const auto symbols = section(index);
    if (!symbols || symbols->sh_type != SHT_DYNSYM) continue;
    const auto names = section(symbols->sh_link);
    if (!names) return std::nullopt;
    for (std::uint64_t done = 0; done < symbols->sh_size; done += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(file, symbols->sh_offset + done);
      if (!symbol) return std::nullopt;
      if (name_at(file, names->sh_offset + symbol->st_name) != "plugin_version") continue;
      const auto holder = section(symbol->st_shndx);
      if (!holder || holder->sh_type == SHT_NOBITS) return std::nullopt;
      return at<std::uint32_t>(file, holder->sh_offset + (symbol->st_value - holder->sh_addr));
    }
  }
  return std::nullopt;
}

}  // namespace sharedgpu::doctor
