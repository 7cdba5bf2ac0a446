// SPDX-License-Identifier: Apache-2.0
// Counts the streams of this process that are being captured. While one is, work passes a closed gate and
// nothing may synchronize. Safe from all threads.
#pragma once

namespace sharedgpu::gate {

void capture_began();
void capture_ended();
bool capturing();

// In the child of a fork.
void forget_captures();

}  // namespace sharedgpu::gate
