// SPDX-License-Identifier: Apache-2.0
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

}  // namespace sharedgpu::simgpu_test
