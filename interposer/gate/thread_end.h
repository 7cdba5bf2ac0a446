// SPDX-License-Identifier: Apache-2.0
// What is to be done when a thread ends. Safe from all threads, also where the program ends one in the
// middle.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace sharedgpu::gate {

class ThreadEnd {
 public:
  // To be there for as long as threads are. `ended` gets what was given to watch(), on the thread that ends.
  constexpr explicit ThreadEnd(void (*ended)(void*)) : ended_(ended) {}

  // Has `ended` called at the end of the calling thread; not where the program has used up all keys.
  void watch(const void* value);

 private:
  // It exists for its destructor, which glibc runs when a thread ends.
  pthread_key_t key();

  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};
  void (*const ended_)(void*);
  std::atomic<std::uint64_t> key_{kNoKey};
};

}  // namespace sharedgpu::gate
