// SPDX-License-Identifier: Apache-2.0
// Creates processes in every possible way, before and after cuInit. A child that is forked before cuInit uses
// the GPU itself. A child that is forked after cuInit gets an error, as without the library, and does not
// disturb the parent. A child that executes another program works like any new process.
#include <spawn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;
constexpr unsigned kHang = 60;  // seconds after which a child counts as hung

const char* self = nullptr;  // a path to this program

void use_gpu() {
  start();
  exercise(kBytes, 7, 3);
}

[[noreturn]] void execute() {
  execl(self, self, "--only-use", nullptr);
  _exit(127);
}

// In a child forked after cuInit every call returns the driver's error, and no lock of the library blocks.
[[noreturn]] void be_forked(CUdeviceptr memory, CUstream stream, CUcontext context) {
  alarm(kHang);
  std::size_t free = 0;
  CUdeviceptr fresh = 0;
  const CUresult results[] = {cuInit(0),
                              cuMemAlloc(&fresh, kBytes),
                              cuMemFree(memory),
                              cuMemGetInfo(&free, nullptr),
                              cuMemsetD8(memory, 1, 1),
                              cuStreamSynchronize(stream),
                              cuStreamDestroy(stream),
                              cuCtxSynchronize(),
                              cuCtxDestroy(context)};
  for (CUresult result : results)
    if (result != CUDA_ERROR_NOT_INITIALIZED) _exit(1);
  _exit(0);
}

void fork_before() {
  pid_t child = fork();
  if (child == 0) {
    use_gpu();
    std::exit(0);
  }
  expect("the child from before cuInit", status_of(child));
}

void make_children(CUdeviceptr memory, CUstream stream, CUcontext context) {
  if (pid_t child = fork(); child == 0)
    be_forked(memory, stream, context);
  else
    expect("the child from after cuInit", status_of(child));
  if (pid_t child = fork(); child == 0)
    execute();
  else
    expect("the child that executes", status_of(child));
  if (pid_t child = vfork(); child == 0)
    execute();
  else
    expect("the child of vfork", status_of(child));
  pid_t spawned = 0;
  char option[] = "--only-use";
  char* arguments[] = {const_cast<char*>(self), option, nullptr};
  expect("posix_spawn", posix_spawn(&spawned, self, nullptr, nullptr, arguments, environ));
  expect("the child of posix_spawn", status_of(spawned));
  expect("system()", std::system((std::string(self) + " --only-use").c_str()));
}

// Forks while other threads allocate, submit and create streams all the time, so that they hold locks at the
// fork.
void fork_while_busy(CUcontext context, CUdeviceptr memory, CUstream stream) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      use(context);
      while (!done) {
        CUdeviceptr block = 0;
        CUstream own = nullptr;
        check(cuMemAlloc(&block, std::size_t{1} << (12 + i)), "cuMemAlloc");
        check(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        check(cuMemsetD8Async(block, 1, 16, own), "cuMemsetD8Async");
        check(cuStreamDestroy(own), "cuStreamDestroy");
        check(cuMemFree(block), "cuMemFree");
      }
    });
  for (int i = 0; i < 40; ++i) {
    pid_t child = fork();
    if (child == 0) be_forked(memory, stream, context);
    expect("the child from amid busy threads", status_of(child));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Makes processes before and after using the GPU.");
  bool only_use = false;
  bool busy = false;
  bool replace = false;
  app.add_flag("--only-use", only_use, "only use the GPU, without any child");
  app.add_flag("--busy", busy, "fork while other threads use the driver");
  app.add_flag("--replace", replace, "use the GPU, then execute this program in the same process");
  app.parse(argc, argv);
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  self = path.c_str();
  if (only_use) {
    use_gpu();
    return 0;
  }
  if (!replace) fork_before();

  CUcontext context = start();
  Kernels kernels;
  Buffer buffer(kernels, kBytes, 3);
  buffer.step(0, nullptr);
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, 0), "cuStreamCreate");
  if (replace) execute();
  if (busy)
    fork_while_busy(context, buffer.memory(), stream);
  else
    make_children(buffer.memory(), stream, context);
  buffer.step(1, nullptr);
  if (!buffer.verify(2, nullptr)) fail("the parent's memory is wrong");
  buffer.free();
  std::printf("fork: parent and children ended right\n");
  return 0;
}
