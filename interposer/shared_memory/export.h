// SPDX-License-Identifier: Apache-2.0
// The export side of CUDA IPC: allocations that the program has exported to other processes of its tenant.
//
// Descriptors are created on request: an importing process requests one piece after another through the
// arbiter, and for each piece the exporter creates a descriptor. So no descriptor of a piece is stored
// anywhere, and nothing is lost if the arbiter dies. Thread-safe.
#pragma once

#include <map>
#include <mutex>

#include "interposer/memory/memory.h"
#include "interposer/shared_memory/lock_file.h"

namespace sharedgpu::shared_memory {

class Exports {
 public:
  // The random number that identifies this exporter. Zero if the system gave no random number; the process
  // can then export nothing.
  std::uint64_t number();

  // Exports the allocation at `base`, which must be pinned in place, and sets `name`. An allocation keeps its
  // name until it is freed. Returns false if the allocation cannot be exported.
  bool add(Pinning& memory, CUdeviceptr base, LoanName& name);
  // Called when the allocation is being freed; no process can import it from now on. Returns true if an
  // importer still has the allocation open.
  bool still_lent(CUdeviceptr base);
  // Returns the answer to a request of an importer, and sets the descriptor to send with it.
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
  std::map<std::uint64_t, CUdeviceptr> bases_;  // the exported allocations, with their numbers as keys;
                                                // without allocations that are being freed
};

}  // namespace sharedgpu::shared_memory
