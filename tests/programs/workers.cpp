// SPDX-License-Identifier: Apache-2.0
// A multi-process program: several processes, forked or executed, work on the GPU at once. When these
// processes have ended, the parent process works on the GPU, too.
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

int main(int argc, char** argv) {
  CommandLine app("Works on the GPU in many processes at once and verifies.");
  unsigned processes = 8;
  std::string bytes = "32MiB";
  std::uint64_t steps = 30;
  std::uint64_t seed = 0;
  bool executed = false;
  app.add_option("--processes", processes, "how many; 0: only this one");
  app.add_option("--bytes", bytes, "device memory of each");
  app.add_option("--steps", steps, "kernels of each");
  app.add_option("--seed", seed, "of the first one's pattern");
  app.add_flag("--exec", executed, "the processes execute this program, as with the spawn method of Python");
  app.parse(argc, argv);

  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<pid_t> children;
  for (unsigned i = 1; i <= processes; ++i) {
    pid_t child = fork();
    if (child < 0) fail("fork failed");
    if (child == 0) {
      seed = i;
      if (executed) {
        execl(self.c_str(), self.c_str(), "--processes", "0", "--bytes", bytes.c_str(), "--steps",
              std::to_string(steps).c_str(), "--seed", std::to_string(seed).c_str(), nullptr);
        _exit(127);
      }
      children.clear();
      break;
    }
    children.push_back(child);
  }
  for (pid_t child : children) expect("a process", status_of(child));
  try {
    start();
    exercise(parse_size(bytes, 0), seed, steps);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  if (!children.empty()) std::printf("workers: %zu processes, every byte verified\n", children.size() + 1);
  return 0;
}
