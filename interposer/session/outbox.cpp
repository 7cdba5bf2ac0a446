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
  if (!want_.exchange(true, std::memory_order_acq_rel)) poke();
}

void Outbox::want_home() {
  home_.store(true, std::memory_order_release);
  want();
}

void Outbox::usage(bool stuck) {
  if (stuck) stuck_.store(true, std::memory_order_release);
  if (!usage_.exchange(true, std::memory_order_acq_rel)) poke();
}

void Outbox::claim() {
  claim_.store(true, std::memory_order_release);
  poke();
}

void Outbox::ping() {
  ping_.store(true, std::memory_order_release);
  poke();
}

void Outbox::forget() {
  std::lock_guard lock(mutex_);
  reports_.clear();
  want_.store(false, std::memory_order_relaxed);
  home_.store(false, std::memory_order_relaxed);
  usage_.store(false, std::memory_order_relaxed);
  stuck_.store(false, std::memory_order_relaxed);
  ping_.store(false, std::memory_order_relaxed);
  claim_.store(false, std::memory_order_relaxed);  // a new connection reports all usage anew
}

}  // namespace sharedgpu::session
