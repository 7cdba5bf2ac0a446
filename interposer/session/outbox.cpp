// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/outbox.h"

namespace sharedgpu::session {

void Outbox::post(const Report& report) {
  {
    std::lock_guard lock(mutex_);
    reports_.push_back(report);
  }
  poke();
}

void Outbox::want() {
  if (set(Flag::want)) poke();
}

void Outbox::want_home() {
  set(Flag::home);
  want();
}

void Outbox::usage(bool stuck) {
  if (stuck) set(Flag::stuck);
  if (set(Flag::usage)) poke();
}

void Outbox::claim() {
  set(Flag::claim);
  poke();
}

void Outbox::ping() {
  set(Flag::ping);
  poke();
}

void Outbox::forget() {
  const std::lock_guard lock(mutex_);
  reports_.clear();
  flags_.store(0, std::memory_order_relaxed);  // resume() reports all usage on the next connection
}

}  // namespace sharedgpu::session
