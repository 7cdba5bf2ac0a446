// SPDX-License-Identifier: Apache-2.0
// Calls a function when a thread ends. Thread-safe, even if the program ends a thread in the middle of a
// call.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace sharedgpu::gate {

class ThreadEnd {
 public:
  // The object must outlive all threads. `ended` runs on the thread that ends and gets the value that was
  // given to watch().
  constexpr explicit ThreadEnd(void (*ended)(void*)) : ended_(ended) {}

  // Arranges for `ended` to run at the end of the calling thread, unless the program has used up all keys for
  // thread-specific data.
  void watch(const void* value);

 private:
  // Returns a key of thread-specific data. The destructor of this key is `ended`: glibc runs it when a thread
  // ends.
  pthread_key_t key();

  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};
  void (*const ended_)(void*);
  std::atomic<std::uint64_t> key_{kNoKey};
};

}  // namespace sharedgpu::gate
