// SPDX-License-Identifier: Apache-2.0
// Prints the usage of a simulated device: simgpu-info STATE [--reset-peak].
#include <cstdio>
#include <cstring>

#include "tests/simgpu/shared_device.h"

using namespace sharedgpu::simgpu;

int main(int argc, char** argv) {
  bool reset = argc == 3 && std::strcmp(argv[2], "--reset-peak") == 0;
  if (argc < 2 || argc > 3 || (argc == 3 && !reset) || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: simgpu-info STATE [--reset-peak]\n");
    return 2;
  }
  std::string problem;
  SharedDevice* device = SharedDevice::open(argv[1], nullptr, problem);
  if (device == nullptr) {
    std::fprintf(stderr, "simgpu-info: %s\n", problem.c_str());
    return 1;
  }
  if (reset) device->reset_peak();
  DeviceView view = device->view();
  auto print = [](const char* name, std::uint64_t value) {
    std::printf("%s %llu\n", name, static_cast<unsigned long long>(value));
  };
  print("total", view.total.count);
  print("used", view.used.count);
  print("peak", view.peak.count);
  print("kernels", view.kernels);
  print("copied_in", view.copied_in.count);
  print("copied_out", view.copied_out.count);
  print("paged", view.paged.count);
  for (const ProcessUse& process : view.processes)
    std::printf("pid %d memory %llu contexts %llu\n", process.pid,
                static_cast<unsigned long long>(process.memory.count),
                static_cast<unsigned long long>(process.contexts.count));
  return 0;
}
