// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

// TSan takes mmap for a write to the whole range. That the kernel puts one lease page in the place of another
// at once, under the eyes of threads that read it, is the very point.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:sharedgpu::map_lease_page\n"; }
