// SPDX-License-Identifier: Apache-2.0
// The NVIDIA GPUs of this host, found by files alone: no library of the driver comes into a daemon of Slurm,
// and no GPU is woken.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu {

// The most units of a GRES with device files that Slurm can number on a node, and so the most that one may
// have.
constexpr std::uint64_t kMostUnitsPerNode = 1024;

struct NodeGpu {
  unsigned minor = 0;  // the number of its device file
  std::string model;   // "NVIDIA H200"; empty where only the device file is there
};

// "/dev/nvidia0".
std::string device_file(const NodeGpu& gpu);

// The model as Slurm writes the type of a GPU that it finds by itself: "nvidia_h200".
std::string gres_type(std::string_view model);
// The part of it that a site writes, which is enough for Slurm and for us: "h200".
std::string short_gres_type(std::string_view model);

struct NodeGpus {
  std::vector<NodeGpu> list;  // by their numbers
  bool timed_out = false;     // the driver gave no answer in time, so the models are not known
};

// The GPUs that the kernel's driver lists in ROOT/proc/driver/nvidia/gpus, or else the files
// ROOT/dev/nvidia[0-9]*. The driver's files can block while it starts or is in trouble, so they are read in a
// child process, and no longer than `patience`. Any thread.
NodeGpus find_node_gpus(std::chrono::milliseconds patience, const std::string& root = "");

// The parts of it. `text` is one GPU's "information" file; false where it names no device file.
bool parse_gpu_information(std::string_view text, NodeGpu& gpu);
std::vector<NodeGpu> list_device_files(const std::string& root);

}  // namespace sharedgpu
