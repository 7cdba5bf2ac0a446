// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {

std::string state_path() {
  const char* path = std::getenv("SIMGPU_STATE");
  return path == nullptr ? "" : path;
}

bool passes_alone(const std::string& name,
                  const std::vector<std::pair<std::string, std::string>>& environment) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  for (const auto& [key, value] : environment) {
    std::erase_if(variables, [&key = key](const std::string& text) { return text.starts_with(key + "="); });
    variables.push_back(key + "=" + value);
  }
  std::vector<char*> pointers;
  for (std::string& variable : variables) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  std::string program = "/proc/self/exe";
  std::string test = name;
  char* arguments[] = {program.data(), test.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, pointers.data()) != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

namespace {

// A device of its own, and no waiting for modelled time but where a kernel spins.
struct OwnDevice : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo&) override {
    if (std::getenv("SIMGPU_STATE") == nullptr) {
      state_ = "/dev/shm/simgpu-test-" + std::to_string(getpid());
      setenv("SIMGPU_STATE", state_.c_str(), 1);
    }
    setenv("SIMGPU_MEMORY", "256MiB", 0);
    setenv("SIMGPU_CONTEXT", "4MiB", 0);
  }
  void testRunEnded(const Catch::TestRunStats&) override {
    if (!state_.empty()) unlink(state_.c_str());
  }

  std::string state_;  // empty: another's
};
CATCH_REGISTER_LISTENER(OwnDevice)

}  // namespace
}  // namespace sharedgpu::simgpu_test
