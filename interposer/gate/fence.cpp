// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/fence.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sharedgpu::gate {
namespace detail {

constinit std::atomic<bool> fence_every_pass{false};

}  // namespace detail

namespace {

enum class Method { none, expedited, global, forbidden };
constinit std::atomic<Method> method{Method::none};

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

// The fence of a process that may not call membarrier(2).
#if defined(__x86_64__)
// Removing the write permission of a dirty page makes the Linux kernel interrupt every processor that runs a
// thread of this process, and an interrupt is a fence.
void fence_by_hand() {
  const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  *static_cast<volatile char*>(page) = 1;
  mprotect(page, size, PROT_READ);
  munmap(page, size);
}
#else
// Other architectures propagate a changed mapping without an interrupt, so on these architectures
// light_fence() is a full fence.
void fence_by_hand() { detail::fence_every_pass.store(true, std::memory_order_seq_cst); }
#endif

}  // namespace

void prepare_fence() {
  if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) {
    method.store(Method::expedited, std::memory_order_relaxed);
  } else if (membarrier(MEMBARRIER_CMD_GLOBAL)) {
    method.store(Method::global, std::memory_order_relaxed);
  } else {
    method.store(Method::forbidden, std::memory_order_relaxed);
    fence_by_hand();
  }
}

// membarrier(2) is a full fence for the calling thread, too.
void process_fence() {
  switch (method.load(std::memory_order_relaxed)) {
    case Method::none:
    case Method::expedited:
      if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) break;
      [[fallthrough]];
    case Method::global:
      if (membarrier(MEMBARRIER_CMD_GLOBAL)) break;
      [[fallthrough]];
    case Method::forbidden:
      fence_by_hand();
      std::atomic_thread_fence(std::memory_order_seq_cst);
      break;
  }
}

}  // namespace sharedgpu::gate
