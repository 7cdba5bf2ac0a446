// SPDX-License-Identifier: Apache-2.0
// Changes its user or its root folder, before or after cuInit.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr uid_t kNobody = 65534;

void become(const std::string& what) {
  if (what == "chroot") {
    char folder[] = "/tmp/sharedgpu-root.XXXXXX";
    if (mkdtemp(folder) == nullptr || chdir(folder) != 0 || chroot(".") != 0) fail("chroot failed");
  } else if (setgid(kNobody) != 0 || setuid(kNobody) != 0) {
    fail("setuid failed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Becomes another user or gets another root, and works on the GPU. Needs root.");
  std::string what = "user";
  bool before = false;
  app.add_option("what", what, "user or chroot").one_of({"user", "chroot"});
  app.add_flag("--before", before, "before CUDA begins, not in the middle of its work");
  app.parse(argc, argv);
  if (before) become(what);
  start();
  Kernels kernels;
  Buffer buffer(kernels, std::size_t{128} << 20, 1);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  if (!before) become(what);
  exercise(buffer, 20);
  CUdeviceptr more = 0;
  check(cuMemAlloc(&more, 1 << 20), "cuMemAlloc");
  check(cuMemFree(more), "cuMemFree");
  buffer.free();
  std::printf("become: every byte verified\n");
  return 0;
}
