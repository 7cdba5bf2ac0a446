// SPDX-License-Identifier: Apache-2.0
// What the GRES plugin tells the SPANK plugin in the same slurmd or slurmstepd.
#pragma once

#include <cstddef>
#include <cstdint>

// Units of one type. The text is the GRES plugin's.
struct SharedGpuOffer {
  const char* type;     // "": untyped
  std::uint64_t units;  // as slurm.conf has them
  std::uint64_t gpus;   // that these units are used on; 0 where none was found
};

// sharedgpu_offer(INDEX, &offer), from 0 until it returns false.
using SharedGpuOfferFunction = bool(std::size_t index, SharedGpuOffer* offer);

// sharedgpu_whole_gpu(INDEX, &minor): the number of the device file of a GPU of gres/gpu, by the number that
// it has in SLURM_JOB_GPUS and SLURM_STEP_GPUS; -1: it is no whole GPU, or none of NVIDIA's. False: gres/gpu,
// if it is loaded, has no such GPU.
using SharedGpuWholeGpuFunction = bool(int index, int* minor);
