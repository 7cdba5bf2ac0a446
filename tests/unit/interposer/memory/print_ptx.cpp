// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "interposer/memory/fingerprint_kernel.h"

int main() { return std::fputs(sharedgpu::fingerprint::kKernelPtx, stdout) < 0 ? 1 : 0; }
