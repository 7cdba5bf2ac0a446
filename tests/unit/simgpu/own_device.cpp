// SPDX-License-Identifier: Apache-2.0
// If this file is linked into a test program, each run of the program has its own simulated GPU, which its
// child processes share. If the environment variable SIMGPU_STATE is set, the program uses the GPU that the
// variable names.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

namespace sharedgpu::simgpu_test {
namespace {

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

  std::string state_;  // empty if SIMGPU_STATE was set before, so that another process removes the state file
};
CATCH_REGISTER_LISTENER(OwnDevice)

}  // namespace
}  // namespace sharedgpu::simgpu_test
