// SPDX-License-Identifier: Apache-2.0
// What this process lends to others of its tenant: allocations that the program has exported.
//
// Nothing is handed out before it is asked for: a borrower asks through the arbiter for one piece after the
// other, and gets a descriptor that was made for it. So no descriptor waits anywhere, and an arbiter that
// dies loses nothing. Safe from all threads.
#pragma once

#include <map>
#include <mutex>

#include "interposer/memory/memory.h"
#include "interposer/session/lien.h"

namespace sharedgpu::session {

class Lending {
 public:
  // The lender's number, random; zero: there are no random numbers, so nothing can be lent.
  std::uint64_t number();

  // Lends the allocation at `base`, which has been settled: always under the same name until it is freed.
  // False: it cannot be lent.
  bool lend(Pinning& memory, CUdeviceptr base, LoanName& name);
  // It is being freed: nobody gets it any more. Whether a borrower still has it.
  bool still_lent(CUdeviceptr base);
  // What the arbiter is to be told, and the descriptor that goes with it.
  Lend answer(const Wanted& wanted, UniqueFd& descriptor);

  // In the child of a fork.
  void after_fork() { lien_.drop(); }

 private:
  struct Loan {
    std::uint64_t number = 0;
    Pinning* memory = nullptr;
  };

  std::mutex mutex_;
  std::uint64_t number_ = 0;
  Lien lien_;
  std::map<CUdeviceptr, Loan> loans_;
  std::map<std::uint64_t, CUdeviceptr> bases_;  // by number, of those that are not being freed
};

}  // namespace sharedgpu::session
