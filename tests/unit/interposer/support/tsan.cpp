// SPDX-License-Identifier: Apache-2.0
// TSan takes mmap for a write to the whole range. But the kernel atomically replaces one lease page by
// another while threads read it, which is intended.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:sharedgpu::map_lease_page\n"; }
