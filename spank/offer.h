// SPDX-License-Identifier: Apache-2.0
// What the GRES plugin tells the SPANK plugin in the same slurmd.
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
