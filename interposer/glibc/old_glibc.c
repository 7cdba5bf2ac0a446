// SPDX-License-Identifier: Apache-2.0
// Lets the library load with a glibc (2.17 or later) older than the one it was linked with, and with musl,
// since the program's container determines the C library. NVIDIA's driver does not work with musl, so with
// musl the library only has to load without harm.
//
// Functions that got a new version when libpthread and libdl moved into libc (2.34) are bound to their first
// version, which every glibc has. The few functions that are entirely new are defined here. All functions in
// this file are hidden: only this library uses them, including the libstdc++ and libgcc inside it.
// check_glibc.sh enforces this.
#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#else
#error "what is the first version of glibc here?"
#endif

#define HIDDEN __attribute__((visibility("hidden")))

// Types do not matter here: each function passes its arguments through.
#define FIRST_VERSION(result, name, parameters, arguments) \
  __asm__(".symver first_" #name ", " #name "@" FIRST);    \
  extern result first_##name parameters;                   \
  HIDDEN result name parameters;                           \
  result name parameters { return first_##name arguments; }

FIRST_VERSION(void*, dlopen, (const char* path, int flags), (path, flags))
// Weak, since musl lacks dlvsym(); see driver/musl.h.
extern void* first_dlvsym(void* handle, const char* name, const char* version) __attribute__((weak));
__asm__(".symver first_dlvsym, dlvsym@" FIRST);
HIDDEN void* dlvsym(void* handle, const char* name, const char* version);
void* dlvsym(void* handle, const char* name, const char* version) {
  return first_dlvsym != NULL ? first_dlvsym(handle, name, version) : NULL;
}
FIRST_VERSION(int, pthread_create,
              (void* thread, const void* attributes, void* (*run)(void*), void* argument),
              (thread, attributes, run, argument))
FIRST_VERSION(int, pthread_join, (unsigned long thread, void** result), (thread, result))
FIRST_VERSION(int, pthread_detach, (unsigned long thread), (thread))
FIRST_VERSION(int, pthread_mutex_trylock, (void* mutex), (mutex))
FIRST_VERSION(int, pthread_key_create, (unsigned* key, void (*end)(void*)), (key, end))
FIRST_VERSION(int, pthread_key_delete, (unsigned key), (key))
FIRST_VERSION(void*, pthread_getspecific, (unsigned key), (key))
FIRST_VERSION(int, pthread_setspecific, (unsigned key, const void* value), (key, value))
FIRST_VERSION(int, pthread_once, (int* control, void (*run)(void)), (control, run))
FIRST_VERSION(int, pthread_sigmask, (int how, const void* set, void* before), (how, set, before))
FIRST_VERSION(int, pthread_attr_setstacksize, (void* attributes, size_t size), (attributes, size))

// libstdc++ calls this name; see gthr-posix.h.
HIDDEN int __pthread_key_create(unsigned* key, void (*end)(void*));
int __pthread_key_create(unsigned* key, void (*end)(void*)) { return first_pthread_key_create(key, end); }

// fstat() and lstat() are new in glibc 2.33. The Linux kernel and glibc have the same struct stat.
HIDDEN int fstat(int fd, void* info);
int fstat(int fd, void* info) {
  return (int)syscall(SYS_newfstatat, fd, "", info, 0x1000 /* AT_EMPTY_PATH */);
}
HIDDEN int lstat(const char* path, void* info);
int lstat(const char* path, void* info) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);
}

// This variable is new in glibc 2.32. If it is zero, libstdc++ takes some locks that are not needed, which
// does no harm.
HIDDEN char __libc_single_threaded;
char __libc_single_threaded = 0;

// This function is new in glibc 2.35, and finds the unwind tables. This library throws nothing, so no unwind
// table is ever needed.
HIDDEN int _dl_find_object(void* address, void* result);
int _dl_find_object(void* address, void* result) {
  (void)address;
  (void)result;
  return -1;
}

// memfd_create() is new in glibc 2.27, getrandom() in 2.25.
HIDDEN int memfd_create(const char* name, unsigned flags);
int memfd_create(const char* name, unsigned flags) { return (int)syscall(SYS_memfd_create, name, flags); }
HIDDEN ssize_t getrandom(void* buffer, size_t size, unsigned flags);
ssize_t getrandom(void* buffer, size_t size, unsigned flags) {
  return syscall(SYS_getrandom, buffer, size, flags);
}

// glibc's own pthread_atfork() is linked statically, and calls a function that musl lacks. With musl no
// driver works, so this library has nothing to do after a fork.
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void* object)
    __attribute__((weak));
extern void* __dso_handle HIDDEN;
HIDDEN int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  return __register_atfork != NULL ? __register_atfork(prepare, parent, child, &__dso_handle) : 0;
}

// arc4random() is new in glibc 2.36. Only std::random_device calls this function, and this library never uses
// std::random_device.
HIDDEN unsigned arc4random(void);
unsigned arc4random(void) {
  unsigned value = 0;
  syscall(SYS_getrandom, &value, sizeof value, 0);
  return value;
}
