// SPDX-License-Identifier: Apache-2.0
// TSan treats mmap as a write to the whole range. But the gate replaces a mapped lease page while threads
// read it. This is safe, since Linux replaces the mapping atomically.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:sharedgpu::map_lease_page\n"; }
