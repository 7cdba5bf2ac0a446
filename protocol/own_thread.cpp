// SPDX-License-Identifier: Apache-2.0
#include "protocol/own_thread.h"

#include <csignal>
#include <cstddef>

namespace sharedgpu {
namespace {

// Large enough for the program's thread-local storage, which glibc takes from the stack.
constexpr std::size_t kStackSize = 2ul << 20;

}  // namespace

int start_own_thread(pthread_t* thread, void* (*run)(void*), void* argument) {
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes)) return error;
  pthread_attr_setstacksize(&attributes, kStackSize);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(thread, &attributes, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace sharedgpu
