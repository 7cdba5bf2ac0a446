// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/wakeup.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace sharedgpu::gate {

void Wakeup::wait(std::uint32_t seen, Nanoseconds timeout) {
  timespec limit = {.tv_sec = static_cast<time_t>(timeout.count() / 1'000'000'000),
                    .tv_nsec = static_cast<long>(timeout.count() % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&count_), FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
}

void Wakeup::raise() {
  count_.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&count_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
          0);
}

}  // namespace sharedgpu::gate
