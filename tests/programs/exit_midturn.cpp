// SPDX-License-Identifier: Apache-2.0
// Ends in one of several ways while kernels are queued and memory is allocated. The program ends by itself,
// or a thread that does not submit receives SIGUSR1 and ends it.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

struct Options {
  std::string bytes = "50%";
  std::string how = "exit";
  double kernel_ms = 200;
  unsigned threads = 1;
  bool on_signal = false;
};

void end(const std::string& how) {
  if (how == "exit") std::exit(0);
  if (how == "_exit") _exit(0);
  if (how == "quick_exit") std::quick_exit(0);
  if (how == "abort") std::abort();
  if (how == "kill") kill(getpid(), SIGKILL);
  if (how == "destroy") check(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset");
}

// Ignores errors, since end() may destroy the context that this thread uses.
[[noreturn]] void submit_for_ever(CUcontext context, CUfunction kernel, CUdeviceptr memory,
                                  std::size_t bytes) {
  cuCtxSetCurrent(context);
  std::uint64_t words = bytes / 8;
  for (std::uint64_t iteration = 1;; ++iteration) {
    void* parameters[] = {&memory, &words, &iteration};
    cuLaunchKernel(kernel, 64, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
    if (iteration % 4 == 0) cuStreamSynchronize(nullptr);
    CUdeviceptr block = 0;
    if (iteration % 4 == 1 && cuMemAlloc(&block, 1 << 20) == CUDA_SUCCESS) cuMemFree(block);
  }
}

void run(const Options& options) {
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  if (options.on_signal) pthread_sigmask(SIG_BLOCK, &usr1, nullptr);

  CUcontext context = start();
  std::size_t whole = 0;
  check(cuDeviceTotalMem(&whole, 0), "cuDeviceTotalMem");
  std::size_t size = parse_size(options.bytes, whole);
  Kernels kernels;
  Buffer buffer(kernels, size, 1);
  buffer.step(0, nullptr);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  auto spin = static_cast<std::uint64_t>(options.kernel_ms * 1e6);
  launch(kernels["spin"], 1, nullptr, {&spin});
  buffer.step(1, nullptr);
  std::printf("exit_midturn: working\n");
  std::fflush(stdout);
  if (options.on_signal) {
    CUfunction step = kernels["pattern_step"];
    for (unsigned i = 0; i < options.threads; ++i)
      std::thread([=] { submit_for_ever(context, step, buffer.memory(), size); }).detach();
    int number = 0;
    sigwait(&usr1, &number);
  }
  end(options.how);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Ends in the middle of its work.");
  Options options;
  app.add_option("--bytes", options.bytes, "device memory: a size, or a percentage");
  app.add_option("--how", options.how, "how it ends")
      .one_of({"return", "exit", "_exit", "quick_exit", "abort", "kill", "destroy"});
  app.add_option("--kernel-ms", options.kernel_ms, "length of the last kernel").not_negative();
  app.add_flag("--on-signal", options.on_signal, "work until SIGUSR1 comes, in --threads other threads");
  app.add_option("--threads", options.threads, "threads that submit");
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
