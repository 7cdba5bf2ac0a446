// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/thread_end.h"

namespace sharedgpu::gate {

void ThreadEnd::watch(const void* value) { pthread_setspecific(key(), value); }

pthread_key_t ThreadEnd::key() {
  std::uint64_t key = key_.load(std::memory_order_acquire);
  if (key != kNoKey) return static_cast<pthread_key_t>(key);
  pthread_key_t made;
  if (pthread_key_create(&made, ended_) != 0) return ~pthread_key_t{0};
  if (key_.compare_exchange_strong(key, made)) return made;
  pthread_key_delete(made);
  return static_cast<pthread_key_t>(key);
}

}  // namespace sharedgpu::gate
