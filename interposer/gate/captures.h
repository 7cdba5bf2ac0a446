// SPDX-License-Identifier: Apache-2.0
// Counts the streams of this process that are being captured. During a capture, submissions pass a closed
// gate as long as the process holds the lease, and nothing may synchronize. Thread-safe.
#pragma once

namespace sharedgpu::gate {

void capture_began();
void capture_ended();
bool capturing();

// Sets the count to zero. Call this in the child of a fork.
void forget_captures();

}  // namespace sharedgpu::gate
