// SPDX-License-Identifier: Apache-2.0
// Functions that the glibc of an older Debian lacks, and that the simulated GPU and the test programs need to
// load, in addition to those of interposer/glibc/old_glibc.c.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST "GLIBC_2.2.5"
#define HIDDEN __attribute__((visibility("hidden")))

#define FIRST_VERSION(result, name, version, parameters, arguments) \
  __asm__(".symver first_" #name ", " #name "@" version);           \
  extern result first_##name parameters;                            \
  HIDDEN result name parameters;                                    \
  result name parameters { return first_##name arguments; }

FIRST_VERSION(int, pthread_mutexattr_init, FIRST, (void* attributes), (attributes))
FIRST_VERSION(int, pthread_mutexattr_destroy, FIRST, (void* attributes), (attributes))
FIRST_VERSION(int, pthread_mutexattr_setpshared, FIRST, (void* attributes, int shared), (attributes, shared))
FIRST_VERSION(int, pthread_mutexattr_setrobust, "GLIBC_2.12", (void* attributes, int robust),
              (attributes, robust))
FIRST_VERSION(int, pthread_mutex_consistent, "GLIBC_2.12", (void* mutex), (mutex))
FIRST_VERSION(char*, dlerror, FIRST, (void), ())
FIRST_VERSION(void*, dlsym, FIRST, (void* handle, const char* name), (handle, name))

// These functions are new in glibc 2.33.
HIDDEN int fstat64(int fd, void* info);
int fstat64(int fd, void* info) {
  return (int)syscall(SYS_newfstatat, fd, "", info, 0x1000 /* AT_EMPTY_PATH */);
}
HIDDEN int stat(const char* path, void* info);
int stat(const char* path, void* info) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, info, 0); }
