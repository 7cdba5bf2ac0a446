// SPDX-License-Identifier: Apache-2.0
// Lets a program that was linked on this host start with the glibc of an older Debian. Most of the work is in
// interposer/glibc/old_glibc.c. glibc 2.34 has a new version of __libc_start_main, which runs the program's
// initialisers itself; the old version calls a function that runs them.
#define FIRST "GLIBC_2.2.5"

typedef int Main(int, char**, char**);
typedef void Init(int, char**, char**);

__asm__(".symver first_start, __libc_start_main@" FIRST);
extern int first_start(Main* main, int argc, char** argv, Init* init, void (*fini)(void), void (*end)(void),
                       void* stack);

extern Init* __preinit_array_start[];
extern Init* __preinit_array_end[];
extern Init* __init_array_start[];
extern Init* __init_array_end[];

static void initialise(int argc, char** argv, char** environment) {
  for (Init** one = __preinit_array_start; one != __preinit_array_end; ++one) (*one)(argc, argv, environment);
  for (Init** one = __init_array_start; one != __init_array_end; ++one) (*one)(argc, argv, environment);
}

int __libc_start_main(Main* main, int argc, char** argv, Init* init, void (*fini)(void), void (*end)(void),
                      void* stack);
int __libc_start_main(Main* main, int argc, char** argv, Init* init, void (*fini)(void), void (*end)(void),
                      void* stack) {
  (void)init;
  return first_start(main, argc, argv, initialise, fini, end, stack);
}
