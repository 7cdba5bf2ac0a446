// SPDX-License-Identifier: Apache-2.0
// Runs under limits: no thread can be created during cuInit, or only 8 MiB of address space are left while
// other tenants want the GPU.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr uid_t kNobody = 65534;

void set_limit(int resource, rlim_t value) {
  rlimit limit = {};
  getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  limit.rlim_cur = std::min(value, limit.rlim_max);
  if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) fail("setrlimit failed");
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Works on the GPU under a limit.");
  std::string what = "threads";
  app.add_option("--what", what, "threads (needs root: the program becomes user nobody), or space")
      .one_of({"threads", "space"});
  app.parse(argc, argv);
  if (what == "threads") {
    // the limit has no effect for root
    if (setuid(kNobody) != 0) fail("setuid failed");
    set_limit(RLIMIT_NPROC, 0);
    start();
    set_limit(RLIMIT_NPROC, RLIM_INFINITY);
    exercise(std::size_t{64} << 20, 1, 10);
  } else {
    start();
    Kernels kernels;
    Buffer buffer(kernels, std::size_t{128} << 20, 1);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    set_limit(RLIMIT_AS, address_space() + (std::size_t{8} << 20));
    for (std::uint64_t i = 0; i < 100; ++i) {
      buffer.step(i, nullptr);
      check(cuCtxSynchronize(), "cuCtxSynchronize");
      usleep(10000);
    }
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    if (!buffer.verify(100, nullptr)) fail("the device memory is wrong");
    buffer.free();
  }
  std::printf("limits: every byte verified\n");
  return 0;
}
