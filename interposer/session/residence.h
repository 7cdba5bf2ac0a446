// SPDX-License-Identifier: Apache-2.0
// Decides for each kernel launch of an oversized process which handles must be on the GPU, and learns from
// the launches.
//
// A launch names its operands by the addresses in its arguments. An operand that the kernel streams may stay
// away; any other operand should be on the GPU (oversize/kernel_ways.h). A wrong decision costs time only.
// Thread-safe.
#pragma once

#include <cuda.h>

#include <mutex>
#include <span>
#include <vector>

#include "interposer/memory/away_memory.h"
#include "interposer/oversize/kernel_ways.h"
#include "interposer/oversize/need_order.h"

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

class Residence {
 public:
  // The memory outlives the object.
  explicit Residence(AwayMemory& memory) : memory_(memory) {}

  // What should happen before and after a launch.
  struct Choice {
    // The handles to exchange before the launch; none if `in` is empty.
    std::vector<CUdeviceptr> out;
    std::vector<CUdeviceptr> in;
    // The operands about which the time of this launch would tell something.
    struct Trial {
      KernelWays::Key key;
      bool away = false;
    };
    std::vector<Trial> trials;
    Bytes away;     // size of all tried operands that are away
    Bytes here;     // size of the needed operands
    Bytes missing;  // size of the needed handles that will still be away after the exchange
  };
  // `kernels`: the kernels of the launch, in their order; a graph has several.
  Choice choose(std::span<const KernelUse> kernels, Nanoseconds now);
  // The exchange that brings in the allocation at `address`, which must be on the GPU for another reason.
  Choice choose(CUdeviceptr address);
  // The exchange has ended, or has been given up.
  void exchanged(bool complete, Nanoseconds now);
  // The launch has taken `took` on the GPU.
  void ran(const Choice& choice, Nanoseconds took);

 private:
  void look_at(const KernelUse& use, bool may_try, Choice& choice, std::vector<AwayHandle>& needed);
  void plan_for(const std::vector<AwayHandle>& needed, Choice& choice);

  AwayMemory& memory_;
  std::mutex mutex_;  // guards the members below
  NeedOrder order_;
  KernelWays ways_;
  Nanoseconds pause_{};  // how long no exchange is tried after one that was given up
  Nanoseconds paused_until_{};
};

}  // namespace sharedgpu::session
