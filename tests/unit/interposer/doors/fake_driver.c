// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 with a few functions that do no work. Their counts of calls, the arguments that they store,
// and their results show which function each way of looking up a function (each door) returns.
#include <stdint.h>
#include <string.h>

int fake_calls_plain, fake_calls_per_thread, fake_calls_query;
uintptr_t fake_words[11];

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int* version) {
  *version = 12000;
  return 0;
}
int cuStreamQuery(void* stream) {
  (void)stream;
  ++fake_calls_query;
  return 0;
}
int cuMemsetD8_v2(uintptr_t address, unsigned char value, size_t size) {
  fake_words[0] = address;
  fake_words[1] = value;
  fake_words[2] = size;
  return 0;
}
static void keep(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g,
                 uintptr_t h, uintptr_t i, uintptr_t j, uintptr_t k) {
  uintptr_t words[] = {a, b, c, d, e, f, g, h, i, j, k};
  memcpy(fake_words, words, sizeof words);
}
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
  ++fake_calls_plain;
  keep((uintptr_t)f, gx, gy, gz, bx, by, bz, shared, (uintptr_t)stream, (uintptr_t)parameters,
       (uintptr_t)extra);
  return 77;
}
int cuLaunchKernel_ptsz(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void* stream, void** parameters, void** extra) {
  ++fake_calls_per_thread;
  keep((uintptr_t)f, gx, gy, gz, bx, by, bz, shared, (uintptr_t)stream, (uintptr_t)parameters,
       (uintptr_t)extra);
  return 78;
}
// One function in three variants, which all store their arguments.
int cuCtxCreate_v2(void** context, unsigned flags, int device) {
  *context = (void*)2;
  keep(2, flags, (uintptr_t)device, 0, 0, 0, 0, 0, 0, 0, 0);
  return 0;
}
int cuCtxCreate_v3(void** context, void* affinity, int count, unsigned flags, int device) {
  *context = (void*)3;
  keep(3, (uintptr_t)affinity, (uintptr_t)count, flags, (uintptr_t)device, 0, 0, 0, 0, 0, 0);
  return 0;
}
int cuCtxCreate_v4(void** context, void* parameters, unsigned flags, int device) {
  *context = (void*)4;
  keep(4, (uintptr_t)parameters, flags, (uintptr_t)device, 0, 0, 0, 0, 0, 0, 0);
  return 0;
}
int cuGetExportTable(const void** table, const void* id) {
  *table = id;
  return 80;
}
// This function has no exported name: cuGetProcAddress may return such functions, too.
static int internal(void) { return 79; }

int cuGetProcAddress(const char* symbol, void** address, int version, uint64_t flags);
int cuGetProcAddress_v2(const char* symbol, void** address, int version, uint64_t flags, int* status);
int cuGetProcAddress_v2_ptsz(const char* symbol, void** address, int version, uint64_t flags, int* status);

static void* lookup(const char* symbol, int version, uint64_t flags) {
  if (strcmp(symbol, "cuLaunchKernel") == 0)
    return flags == 2 ? (void*)cuLaunchKernel_ptsz : (void*)cuLaunchKernel;
  if (strcmp(symbol, "cuStreamQuery") == 0) return (void*)cuStreamQuery;
  if (strcmp(symbol, "cuMemsetD8") == 0)
    return (void*)(version < 3020 ? (void*)internal : (void*)cuMemsetD8_v2);
  if (strcmp(symbol, "cuCtxCreate") == 0)
    return version < 11040   ? (void*)cuCtxCreate_v2
           : version < 12050 ? (void*)cuCtxCreate_v3
                             : (void*)cuCtxCreate_v4;
  if (strcmp(symbol, "cuGetExportTable") == 0) return (void*)cuGetExportTable;
  if (strcmp(symbol, "cuGetProcAddress") == 0)
    return version < 12000 ? (void*)cuGetProcAddress
           : flags == 2    ? (void*)cuGetProcAddress_v2_ptsz
                           : (void*)cuGetProcAddress_v2;
  return 0;
}
int cuGetProcAddress(const char* symbol, void** address, int version, uint64_t flags) {
  *address = lookup(symbol, version, flags);
  return *address ? 0 : 500;
}
int cuGetProcAddress_v2(const char* symbol, void** address, int version, uint64_t flags, int* status) {
  *address = lookup(symbol, version, flags);
  if (status) *status = *address ? 0 : 1;
  return *address ? 0 : 500;
}
int cuGetProcAddress_v2_ptsz(const char* symbol, void** address, int version, uint64_t flags, int* status) {
  return cuGetProcAddress_v2(symbol, address, version, flags == 0 ? 2 : flags, status);
}
