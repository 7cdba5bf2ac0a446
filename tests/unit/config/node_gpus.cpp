// SPDX-License-Identifier: Apache-2.0
#include "config/node_gpus.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace sharedgpu;
using namespace std::chrono_literals;

namespace {

// A root folder with the files of a host.
struct Host {
  std::string root = [] {
    char name[] = "/tmp/sharedgpu-host.XXXXXX";
    return std::string(mkdtemp(name));
  }();
  Host() { std::filesystem::create_directories(root + "/dev"); }
  ~Host() { std::filesystem::remove_all(root); }

  void add_file(const std::string& name) { std::ofstream(root + "/dev/" + name) << ""; }
  std::string gpu_folder(const std::string& address) {
    std::string folder = root + "/proc/driver/nvidia/gpus/" + address;
    std::filesystem::create_directories(folder);
    return folder;
  }
  void add_gpu(const std::string& address, const std::string& text) {
    std::ofstream(gpu_folder(address) + "/information") << text;
  }
  // A GPU whose information file is a pipe, so that reading waits until the test writes to the pipe.
  std::string add_slow_gpu() {
    std::string file = gpu_folder("0000:01:00.0") + "/information";
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    return file;
  }
};

}  // namespace

TEST_CASE("a GPU's information is read as the kernel's driver writes it") {
  NodeGpu gpu;
  REQUIRE(parse_gpu_information(
      "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 172\nBus Location: \t 0000:07:00.0\n"
      "Device Minor: \t 3\nGPU Excluded:\t No\n",
      gpu));
  CHECK(gpu.minor == 3);
  CHECK(gpu.model == "NVIDIA A100-SXM4-80GB");
  CHECK(device_file(gpu) == "/dev/nvidia3");
  CHECK(gres_type(gpu.model) == "nvidia_a100-sxm4-80gb");
  CHECK(short_gres_type(gpu.model) == "a100-sxm4-80gb");
}

TEST_CASE("information without a device number, or of an excluded GPU, is ignored") {
  NodeGpu gpu;
  CHECK_FALSE(parse_gpu_information("", gpu));
  CHECK_FALSE(parse_gpu_information("Model: NVIDIA H200\n", gpu));
  CHECK_FALSE(parse_gpu_information("Device Minor: many\n", gpu));
  CHECK_FALSE(parse_gpu_information("Device Minor: \t 0\nGPU Excluded:\t Yes\n", gpu));
}

TEST_CASE("GPUs are found with their models, by their numbers") {
  Host host;
  host.add_gpu("0000:01:00.0", "Model: \t NVIDIA H200\nDevice Minor: \t 1\n");
  host.add_gpu("0000:02:00.0", "Model: \t NVIDIA A100\nDevice Minor: \t 0\n");
  const NodeGpus gpus = find_node_gpus(10s, host.root);
  CHECK_FALSE(gpus.timed_out);
  REQUIRE(gpus.list.size() == 2);
  CHECK(gpus.list[0].model == "NVIDIA A100");
  CHECK(gpus.list[1].model == "NVIDIA H200");
}

TEST_CASE("if the driver names no GPUs, the device files count") {
  Host host;
  for (const char* name :
       {"nvidia1", "nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "nvidia0x", "null"})
    host.add_file(name);
  const NodeGpus gpus = find_node_gpus(10s, host.root);
  CHECK_FALSE(gpus.timed_out);
  REQUIRE(gpus.list.size() == 3);
  CHECK(gpus.list[2].minor == 10);
  CHECK(gpus.list[2].model.empty());
}

TEST_CASE("a driver that gives no answer is not waited for, and is told from one that has no GPU") {
  Host host;
  host.add_file("nvidia0");
  host.add_slow_gpu();
  const NodeGpus gpus = find_node_gpus(100ms, host.root);
  CHECK(gpus.timed_out);
  REQUIRE(gpus.list.size() == 1);
  CHECK(gpus.list[0].model.empty());
}

TEST_CASE(
    "the child that asks a slow driver keeps none of the caller's descriptors open, and gets the answer") {
  Host host;
  const std::string slow = host.add_slow_gpu();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  NodeGpus gpus;
  std::thread caller([&] { gpus = find_node_gpus(60s, host.root); });
  int answer = -1;
  while ((answer = open(slow.c_str(), O_WRONLY | O_NONBLOCK)) < 0) std::this_thread::sleep_for(1ms);
  close(ends[1]);
  pollfd closed = {.fd = ends[0], .events = POLLIN, .revents = 0};
  CHECK(poll(&closed, 1, 10'000) == 1);  // true, since no other process has the write end of the pipe
  close(ends[0]);
  const std::string text = "Model: \t NVIDIA H200\nDevice Minor: \t 0\n";
  CHECK(write(answer, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  close(answer);
  caller.join();
  CHECK_FALSE(gpus.timed_out);
  REQUIRE(gpus.list.size() == 1);
  CHECK(gpus.list[0].model == "NVIDIA H200");
}

TEST_CASE("a host without GPUs has none") {
  Host host;
  const NodeGpus gpus = find_node_gpus(10s, host.root);
  CHECK(gpus.list.empty());
  CHECK_FALSE(gpus.timed_out);
}
