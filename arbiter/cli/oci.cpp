// SPDX-License-Identifier: Apache-2.0
// sharedgpu oci: lets an OCI container of a job reach the library and the arbiter. Container runtimes call
// this command before they create a container. If anything fails, the container starts as it would without
// this command.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "arbiter/cli/commands.h"
#include "arbiter/cli/mount_point.h"
#include "arbiter/cli/oci_spec.h"
#include "protocol/channel.h"
#include "protocol/replace_file.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

std::string read_all(std::istream& input) {
  return {std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
}

// Reads a variable from the environment of this process or, if it is not set there, from the environment of
// the parent process. The parent is the container runtime. Podman gives its hooks an empty environment.
const char* variable(const char* name) {
  static const std::string runtimes = [] {
    std::ifstream file("/proc/" + std::to_string(getppid()) + "/environ");
    return read_all(file);
  }();
  if (const char* own = std::getenv(name)) return own;
  for (const std::string_view entry : split(runtimes, '\0'))
    if (entry.starts_with(name) && entry.substr(std::strlen(name)).starts_with('='))
      return entry.data() + std::strlen(name) + 1;  // each entry ends with a null character
  return nullptr;
}

// Podman connects the stderr of its hooks to /dev/null. This function connects stderr to Podman's own stderr
// instead. This needs Linux 5.6.
void find_stderr() {
  constexpr long kPidfdOpen = 434, kPidfdGetfd = 438;  // the same numbers on all architectures; old headers
                                                       // lack SYS_pidfd_open and SYS_pidfd_getfd
  struct stat own = {}, null = {};
  if (fstat(STDERR_FILENO, &own) != 0 || stat("/dev/null", &null) != 0 || own.st_rdev != null.st_rdev) return;
  const UniqueFd runtime(static_cast<int>(syscall(kPidfdOpen, getppid(), 0)));
  const UniqueFd its(static_cast<int>(syscall(kPidfdGetfd, runtime.get(), STDERR_FILENO, 0)));
  if (its) dup2(its.get(), STDERR_FILENO);
}

constexpr char kWithout[] = "; the container runs without GPU sharing";

// Returns the reason why `folder` cannot be mounted in a container with this configuration, or an empty
// string.
std::string obstacle_to(const std::string& folder, const nlohmann::json& spec, const std::string& bundle) {
  if (access(folder.c_str(), R_OK | X_OK) != 0) return folder + ": " + std::strerror(errno);
  const auto place = mount_place(spec, folder, bundle);
  const std::string obstacle = place ? obstacle_at(*place, spec) : "";
  return obstacle.empty() ? "" : folder + " cannot be mounted in the container: " + obstacle;
}

// Returns the library, folders and variables for a container with this configuration; none if there is an
// obstacle.
JobReach reach_in(const nlohmann::json& spec, const std::string& bundle) {
  const std::string library =
      find_sibling("../lib/sharedgpu/libsharedgpu.so", "../interposer/libsharedgpu.so");
  JobReach job = read_reach(variable, library);
  for (const std::string& folder : job.folders)
    if (job.obstacle.empty()) job.obstacle = obstacle_to(folder, spec, bundle);
  if (job.obstacle.empty()) return job;
  complain(job.obstacle + kWithout);
  return {};
}

// Returns the edited configuration, or `text` itself if the configuration is not understood.
std::string edit(const std::string& text, const std::string& origin, Stated stated,
                 const std::string& bundle) {
  nlohmann::json spec = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const std::string problem =
      spec.is_discarded() ? "it is not JSON" : add_job(spec, reach_in(spec, bundle), stated);
  if (problem.empty()) return spec.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  complain(origin + ": " + problem + kWithout);
  return text;
}

// Replaces config.json by a new file. As root, slurmstepd has created config.json in a folder of the user. So
// the user may replace the file, but may not write to it.
int edit_bundle(const std::string& bundle) {
  const std::string path = bundle + "/config.json";
  std::ifstream file(path);
  if (!file) {
    complain(path + ": " + std::strerror(errno));
    return 1;
  }
  const std::string text = read_all(file);
  std::error_code ignored;
  const std::string edited =
      edit(text, path, Stated::yields, std::filesystem::absolute(bundle, ignored).string());
  if (edited == text) return 0;
  const Status written = replace_file(path, edited, Durable::no);
  if (!written.ok()) complain(written.message() + kWithout);
  return written.ok() ? 0 : 1;
}

}  // namespace

void add_oci(CLI::App& app, int& status) {
  auto* command =
      app.add_subcommand("oci", "Let containers of a job reach the arbiter; container runtimes call it");
  auto bundle = std::make_shared<std::string>();
  command->add_option(
      "--bundle", *bundle,
      "edit config.json in this folder; without the option, standard input is written, edited, to "
      "standard output");
  command->callback([bundle, &status] {
    if (!bundle->empty()) {
      status = edit_bundle(*bundle);
      return;
    }
    find_stderr();
    std::cout << edit(read_all(std::cin), "standard input", Stated::wins, "");
  });
}

}  // namespace sharedgpu::cli
