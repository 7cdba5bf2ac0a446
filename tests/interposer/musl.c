// SPDX-License-Identifier: Apache-2.0
// A program that uses musl, for check_musl.sh. The program uses the same functions of the loader as a shell
// or Python.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void* thread(void* argument) { return argument; }

int main(void) {
  pthread_t id;
  void* result = NULL;
  size_t (*length)(const char*) = (size_t(*)(const char*))dlsym(RTLD_DEFAULT, "strlen");
  if (length == NULL || length("four") != 4) return 1;
  if (dlsym(RTLD_NEXT, "strlen") == NULL || dlsym(RTLD_DEFAULT, "no_such_function") != NULL) return 2;
  if (dlopen("libcuda.so.1", RTLD_NOW) != NULL || dlerror() == NULL) return 3;
  if (pthread_create(&id, NULL, thread, &result) != 0 || pthread_join(id, &result) != 0 || result != &result)
    return 4;
  const pid_t child = fork();
  int status = 1;
  if (child == 0) _exit(0);
  if (waitpid(child, &status, 0) != child || status != 0) return 5;
  puts("works");
  return 0;
}
