// SPDX-License-Identifier: Apache-2.0
// Decides for each kernel launch of an oversized process which handles should be on the GPU, and learns from
// the times of launches.
//
// A launch names its operands by the addresses in its arguments. A handle that is away comes in when launches
// have lost as much time because of it as two exchanges cost (oversize/debts.h). A wrong decision costs time
// only. Thread-safe.
#pragma once

#include <cuda.h>

#include <array>
#include <mutex>
#include <span>
#include <vector>

#include "interposer/memory/away_memory.h"
#include "interposer/oversize/debts.h"
#include "interposer/oversize/exchange_plan.h"
#include "interposer/oversize/kernel_costs.h"
#include "interposer/oversize/need_order.h"
#include "interposer/session/exchange_request.h"
#include "interposer/session/exchange_totals.h"

namespace sharedgpu::session {

// A word of a kernel's arguments that may be an address.
struct Argument {
  std::uint32_t word = 0;  // offset of the word in the arguments
  CUdeviceptr address = 0;
};

// A kernel that will run, with the arguments that may be addresses.
struct KernelUse {
  std::uintptr_t kernel = 0;  // CUfunction or CUkernel
  std::vector<Argument> arguments;
};

// The handles to exchange before a launch. If `in` is empty, nothing is exchanged.
struct ExchangeChoice {
  std::vector<CUdeviceptr> out;
  std::vector<CUdeviceptr> in;
};

class Residence {
 public:
  // `memory` and `totals` must outlive this object.
  Residence(AwayMemory& memory, ExchangeTotals& totals);

  struct Choice {
    ExchangeChoice exchange;
    bool timed = false;  // the time of the launch should be measured
    // The operands, with the bytes that are away after the exchange. Empty if the launch has several kernels.
    std::vector<KernelCosts::Operand> operands;
  };
  // `kernels`: the kernels of the launch, in their order; a graph has several.
  Choice choose(std::span<const KernelUse> kernels, Nanoseconds now);
  // Returns true if the window cannot hold, at the same time, all operands that the kernels need or may need
  // on the GPU. Handles should then be exchanged between the kernels. Returns false also while exchanges
  // pause after a failure.
  bool exceeds_window(std::span<const KernelUse> kernels, Nanoseconds now);
  // The exchange that brings in these handles. Call it if the handles must be on the GPU for a reason other
  // than a launch.
  ExchangeChoice choose(const std::vector<AwayHandle>& handles);
  // The handles that should leave if `size` bytes of the window are needed for other memory; an empty list if
  // all handles together are too small.
  std::vector<CUdeviceptr> leavers(Bytes size);
  // The exchange has ended, or has been given up.
  void exchanged(const ExchangeChoice& exchange, const ExchangeResult& result, Nanoseconds now);
  // The launch has taken `took` on the GPU.
  void ran(const Choice& choice, Nanoseconds took);
  // The launch has not ended while the thread waited for it; the kernel has been running for `ran_for`, or
  // for zero if it has not begun. The kernel may be waiting for the program, so no launch is timed for a
  // while.
  void did_not_end(const Choice& choice, Nanoseconds ran_for, Nanoseconds now);

 private:
  // After a failure, nothing is tried for a time that doubles with each further failure, up to a minute.
  class Pause {
   public:
    void after_failure(Nanoseconds now);
    void after_success() { *this = {}; }
    bool over(Nanoseconds now) const { return now >= until_; }

   private:
    Nanoseconds length_{};
    Nanoseconds until_{};
  };
  // A handle that a launch uses.
  struct Use {
    AwayHandle handle;
    KernelCosts::Key key;
    std::size_t operand = 0;  // index in Choice::operands
  };
  std::vector<Use> uses_of(std::span<const KernelUse> kernels, std::vector<KernelCosts::Operand>& operands);
  bool is_need(const KernelCosts::Key& key) const;
  std::vector<AwayHandle> wanted(const std::vector<Use>& uses, bool may_try);
  ExchangeChoice plan_for(const std::vector<AwayHandle>& wanted);
  std::vector<Candidate> candidates() const;

  // The nanoseconds per byte that an exchange is expected to take.
  double per_byte() const;
  void add_slowed(double nanoseconds);
  void learn(const Choice& choice, Nanoseconds took);

  AwayMemory& memory_;
  ExchangeTotals& totals_;
  std::mutex mutex_;  // guards the members below
  NeedOrder order_;
  KernelCosts costs_;
  Debts debts_;
  // Nanoseconds per byte of the last exchanges. At first all values are the estimate.
  std::array<double, 8> took_;
  std::size_t measured_ = 0;  // the number of measured exchanges
  Pause exchanges_;
  Pause trials_;
};

}  // namespace sharedgpu::session
