// SPDX-License-Identifier: Apache-2.0
// This process as a member of a tenant: its sessions with the arbiter, one for each GPU that it uses, and the
// state that these sessions share.
//
// Built once, at the first cuInit, and never destroyed, since a program may call CUDA until its last
// instruction. The child of a fork has no Process until it calls cuInit itself. Thread-safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <optional>
#include <span>

#include "interposer/gate/closing.h"
#include "interposer/gate/wakeup.h"
#include "interposer/memory/maintenance.h"
#include "interposer/memory/memory.h"
#include "interposer/process/device_table.h"
#include "interposer/session/settings.h"
#include "interposer/session/submission_clock.h"
#include "interposer/shared_memory/import.h"
#include "interposer/tracking/captures.h"
#include "interposer/tracking/contexts.h"

namespace sharedgpu {

class Process final : private gate::GateListener, private shared_memory::Imports::Exporters {
 public:
  // Objects of higher layers that the turn thread of the first session uses. These objects must live until
  // the process ends.
  struct Parts {
    Maintenance& maintenance;
    session::SubmissionClock& submissions;
  };

  // Null before the first call of start(), and if the process is unmanaged. While start() connects, the
  // result is not null, but no device is attached.
  static Process* get();
  // Called after the real cuInit has succeeded, and returns the result for the program: CUDA_SUCCESS, or
  // CUDA_ERROR_SYSTEM_NOT_READY if the arbiter grants no session and SHAREDGPU_ON_NO_ARBITER=fail. The first
  // call connects. It waits for an arbiter that starts for SHAREDGPU_ARBITER_TIMEOUT at most, and for the
  // answer of an arbiter that listens for this time or a second, whichever is longer.
  static CUresult start(const Parts& parts);

  // Called when the process is about to use `device`. If the arbiter grants no session, the device stays
  // unmanaged.
  void attach(CUdevice device);
  // If the program sees only one GPU, attaches this GPU, since the program will use it anyway.
  void attach_only_device();

  const DeviceTable& devices() const { return devices_; }
  tracking::Contexts& contexts() { return contexts_; }
  const tracking::Contexts& contexts() const { return contexts_; }
  tracking::Captures& captures() { return captures_; }
  shared_memory::Imports& imports() { return imports_; }

  // Called when a context of `device` has been created, when it is about to be destroyed, and when its
  // destruction has failed. The session copies memory in one of the device's contexts, and may have to choose
  // another context.
  void context_added(CUcontext context, CUdevice device, bool primary);
  tracking::Contexts::Removed context_going(CUcontext context, CUdevice device);
  void context_stays(tracking::Contexts::Removed context, CUdevice device);
  // Called when the program has set a limit of the context (cuCtxSetLimit). The new limit makes the driver
  // take `extra` bytes more than usual.
  void context_extra(CUcontext context, CUlimit limit, Bytes extra);

  // Yields the turn to waiting tenants. Called when the next submission is not expected to finish before the
  // end of the turn.
  void give_turn_back();

  // Exports the allocation at `base`, which must be pinned in place, to other processes of the tenant.
  // Returns false if the allocation cannot be exported.
  bool export_memory(Pinning& memory, CUdeviceptr base, LoanName& name);
  // Returns true if this process is the exporter of `name`.
  bool is_exporter_of(const LoanName& name) const;

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
  shared_memory::Imports::Answer ask(LoanName name, std::uint32_t piece) override;

  std::atomic<State> state_{State::unused};
  gate::Wakeup changed_;  // wakes threads that wait for a change of state_

  session::Settings settings_;
  tracking::Contexts contexts_;
  tracking::Captures captures_;
  shared_memory::Imports imports_{*this, contexts_};
  tracking::ContextDrain drain_{contexts_};
  // Passed to every session except the first session, which gets additional parts.
  const session::TurnParts parts_{drain_, contexts_, {&imports_}};
  DeviceTable devices_{settings_, parts_};
};

// In an unmanaged process, these functions return empty spans, null and nullopt.
namespace process {

std::span<Memory* const> memories();
std::span<const CUdevice> devices();
// The session and the memory of `device`; null if the device is not attached, or unmanaged.
session::DeviceSession* session_of(CUdevice device);
Memory* memory_of(CUdevice device);
// The same for the device of the calling thread's context; null also if there is no context.
session::DeviceSession* current_session();
Memory* current_memory();
std::optional<Place> find(CUdeviceptr address);

}  // namespace process
}  // namespace sharedgpu
