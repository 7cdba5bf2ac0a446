// SPDX-License-Identifier: Apache-2.0
// The export side of CUDA IPC: allocations that the program has exported to other processes of its tenant.
//
// Descriptors are created on request: an importing process requests one piece after the other through the
// arbiter, and each time gets a descriptor made for it. So no descriptor is stored anywhere, and nothing is
// lost if the arbiter dies. Thread-safe.
#pragma once

#include <map>
#include <mutex>

#include "interposer/memory/memory.h"
#include "interposer/shared_memory/lock_file.h"

namespace sharedgpu::shared_memory {

class Exports {
 public:
  // The random number of this exporter; zero if there are no random numbers, so that nothing can be exported.
  std::uint64_t number();

  // Exports the allocation at `base`, which is pinned in place. The name of an allocation stays the same
  // until it is freed. Returns false if it cannot be exported.
  bool add(Pinning& memory, CUdeviceptr base, LoanName& name);
  // Called when the allocation is being freed; no process can import it from now on. Returns true if an
  // importer still has the allocation open.
  bool still_lent(CUdeviceptr base);
  // The answer for the arbiter, and the descriptor that goes with it.
  Lend answer(const Wanted& wanted, UniqueFd& descriptor);

  // Call this in the child of a fork.
  void after_fork() { lock_file_.drop(); }

 private:
  struct Exported {
    std::uint64_t number = 0;
    Pinning* memory = nullptr;
  };

  std::mutex mutex_;
  std::uint64_t number_ = 0;
  LockFile lock_file_;
  std::map<CUdeviceptr, Exported> exported_;
  std::map<std::uint64_t, CUdeviceptr>
      bases_;  // exported allocations by number, without those that are being freed
};

}  // namespace sharedgpu::shared_memory
