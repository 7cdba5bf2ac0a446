// SPDX-License-Identifier: Apache-2.0
// Finds the NVIDIA GPUs of this host by reading files only. So no driver library is loaded into Slurm's
// daemons, and no GPU leaves its power-saving state.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu {

// Slurm's limit on the units of a GRES on one node, if the GRES has device files.
constexpr std::uint64_t kMostUnitsPerNode = 1024;

struct NodeGpu {
  unsigned minor = 0;  // N of the GPU's device file, /dev/nvidiaN
  std::string model;   // such as "NVIDIA H200"; empty if only the device file is known
};

// "/dev/nvidia0".
std::string device_file(const NodeGpu& gpu);

// The GRES type that Slurm gives to an autodetected GPU of this model, such as "nvidia_h200".
std::string gres_type(std::string_view model);
// The short GRES type that sites usually write for this model, such as "h200". Slurm and sharedgpu accept
// both forms.
std::string short_gres_type(std::string_view model);

struct NodeGpus {
  std::vector<NodeGpu> list;  // sorted by minor number
  // If true, the driver did not answer in time, so the models are unknown.
  bool timed_out = false;
};

// Returns the GPUs that NVIDIA's driver lists in ROOT/proc/driver/nvidia/gpus. If the driver lists no GPU,
// returns a GPU for each file ROOT/dev/nvidia[0-9]*. Reading the driver's files can block while the driver
// starts or is in trouble, so a child process reads them, for at most `patience`. Any thread.
NodeGpus find_node_gpus(std::chrono::milliseconds patience, const std::string& root = "");

// Parses the driver's file "information" of one GPU. Returns false if the text names no device file, or if
// the driver excludes the GPU.
bool parse_gpu_information(std::string_view text, NodeGpu& gpu);
// Returns a GPU without a model for each file ROOT/dev/nvidia[0-9]*.
std::vector<NodeGpu> list_device_files(const std::string& root);

}  // namespace sharedgpu
