// SPDX-License-Identifier: Apache-2.0
// Memory that the program makes known to others: it stays where it is from then on.
#pragma once

#include "interposer/process/process.h"

namespace sharedgpu::hooks {

// The allocation of ours that `address` lies in, stream-ordered ones included; nullopt: none.
std::optional<Place> allocation_at(CUdeviceptr address);

// Settles a part of an allocation, in a turn of ours. Returns the driver's error that fits.
CUresult settle(const Place& place, CUdeviceptr address, Bytes size);
// All of it.
inline CUresult settle(const Place& place) { return settle(place, place.range.base, place.range.size); }
// What of these addresses the program has mapped there itself; the rest is not ours.
CUresult settle_mappings(CUdeviceptr address, Bytes size);

}  // namespace sharedgpu::hooks
