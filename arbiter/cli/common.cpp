// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "arbiter/cli/commands.h"
#include "protocol/environment.h"

namespace sharedgpu::cli {

void complain(const std::string& text) { std::fprintf(stderr, "sharedgpu: %s\n", text.c_str()); }

bool load_settings(const std::string& config, Settings& settings) {
  std::string error = config.empty() ? read_default_settings(settings) : read_settings(config, settings);
  if (!error.empty()) {
    complain(error);
    settings = {};
  }
  const char* socket = std::getenv(environment::kSocket);
  if (socket != nullptr && *socket != '\0') settings.socket = socket;
  return error.empty();
}

std::string find_sibling(const char* installed, const char* built) {
  std::error_code error;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* place : {installed, built}) {
    std::filesystem::path path = (self.parent_path() / place).lexically_normal();
    if (!error && access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

}  // namespace sharedgpu::cli
