// SPDX-License-Identifier: Apache-2.0
// Functions of the GRES plugin that the SPANK plugin in the same slurmd or slurmstepd calls.
#pragma once

#include <cstddef>
#include <cstdint>

// The units of one type on this node. The GRES plugin owns the string.
struct SharedGpuOffer {
  const char* type;     // "": untyped
  std::uint64_t units;  // the count in slurm.conf
  std::uint64_t gpus;   // number of GPUs to which these units belong; 0 if none was found
};

// sharedgpu_offer(INDEX, &offer): stores the units of one type in `offer`. Call it with indices from 0 until
// it returns false.
using SharedGpuOfferFunction = bool(std::size_t index, SharedGpuOffer* offer);

// sharedgpu_whole_gpu(INDEX, &minor): sets the minor number of the device file of a GPU of gres/gpu. INDEX is
// the GPU's number in SLURM_JOB_GPUS and SLURM_STEP_GPUS. `minor` is -1 if the device is a part of a GPU
// (MIG), or if it is not an NVIDIA GPU. Returns false if gres/gpu has no such GPU or is not loaded.
using SharedGpuWholeGpuFunction = bool(int index, int* minor);
