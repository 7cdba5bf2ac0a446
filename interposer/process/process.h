// SPDX-License-Identifier: Apache-2.0
// This process as a member of a tenant: its sessions with the arbiter, one for each GPU that it uses, and
// what it has on them together.
//
// Built once, at the first cuInit, and never destroyed: a program may call CUDA until its last instruction.
// In the child of a fork there is none until the child calls cuInit itself. Safe from all threads.
#pragma once

#include <cuda.h>

#include <atomic>
#include <optional>
#include <span>

#include "interposer/gate/closing.h"
#include "interposer/memory/memory.h"
#include "interposer/process/device_table.h"
#include "interposer/session/borrowing.h"
#include "interposer/session/captures.h"
#include "interposer/session/contexts.h"
#include "interposer/session/maintenance.h"
#include "interposer/session/settings.h"
#include "interposer/session/wakeup.h"

namespace sharedgpu {

class Process final : private gate::GateListener, private session::Borrowing::Lenders {
 public:
  // The first session's turn thread runs these for the layers above. Both live for ever.
  struct Parts {
    session::Maintenance& maintenance;
    session::SubmissionClock& submissions;
  };

  // Null: this is plain CUDA. Not null while the first cuInit is still at it; then no device is attached.
  static Process* get();
  // What cuInit is to return, after the real one has succeeded: CUDA_SUCCESS, or, where there is no arbiter
  // and SHAREDGPU_ON_NO_ARBITER=fail, CUDA_ERROR_SYSTEM_NOT_READY. The first call connects and may wait for
  // the arbiter as long as SHAREDGPU_ARBITER_TIMEOUT says.
  static CUresult start(const Parts& parts);

  // The process is about to use `device`. A device for which the arbiter gives no session is left to plain
  // CUDA.
  void attach(CUdevice device);
  // The only device of this machine, if so: then it will be attached anyway, and may as well be now.
  void attach_only_device();

  const DeviceTable& devices() const { return devices_; }
  session::Contexts& contexts() { return contexts_; }
  const session::Contexts& contexts() const { return contexts_; }
  session::Captures& captures() { return captures_; }
  session::Borrowing& borrowing() { return borrowing_; }

  // A context of `device` was made, or is about to go and then stays or has gone: the memory copies within
  // one.
  void context_added(CUcontext context, CUdevice device, bool primary);
  session::Contexts::Removed context_going(CUcontext context, CUdevice device);
  void context_stays(session::Contexts::Removed context, CUdevice device);
  // The program has set a limit of the context, for which the driver takes so much more than usual.
  void context_extra(CUcontext context, CUlimit limit, Bytes extra);

  // Offers the turn to those that wait: what comes next would not end in time.
  void give_turn_back();

  // Lends the allocation at `base`, which has been settled, to other processes of the tenant. False: it
  // cannot be.
  bool lend(Pinning& memory, CUdeviceptr base, LoanName& name);
  // Whether it is this process that lends under this name.
  bool is_lender_of(const LoanName& name) const;

 private:
  enum class State : std::uint32_t { unused, starting, plain, failed, managed };

  static Process& only();
  static void in_child();

  State state() const { return state_.load(std::memory_order_acquire); }
  CUresult start_or_wait(const Parts& parts);
  State connect(const Parts& parts);
  void follow(CUdevice device) const;

  void on_wait() override;
  bool all_resident() override;
  session::Borrowing::Answer ask(LoanName name, std::uint32_t piece) override;

  std::atomic<State> state_{State::unused};
  session::Wakeup changed_;  // state_

  session::Settings settings_;
  session::Contexts contexts_;
  session::Captures captures_;
  session::Borrowing borrowing_{*this, contexts_};
  session::ContextDrain drain_{contexts_};
  // Every session is given this; the first one is given more.
  const session::TurnParts parts_{drain_, contexts_, {&borrowing_}};
  DeviceTable devices_{settings_, parts_};
};

// For those to whom plain CUDA is an answer like any other: it has no memory of ours.
namespace process {

std::span<Memory* const> memories();
std::span<const CUdevice> devices();
// The session and the memory of `device`; null: plain CUDA's.
session::DeviceSession* session_of(CUdevice device);
Memory* memory_of(CUdevice device);
// The memory of the device of the calling thread's context; null too where there is no context.
Memory* current_memory();
std::optional<Place> find(CUdeviceptr address);

}  // namespace process
}  // namespace sharedgpu
