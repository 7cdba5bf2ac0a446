// SPDX-License-Identifier: Apache-2.0
// This process's sessions with the arbiter, one for each GPU that it uses, as the wrappers see them.
//
// They begin at the first cuInit; before that, and in a process without an arbiter, everything here says
// "plain". Safe from all threads. Never destroyed: a program may call CUDA until its last instruction. In the
// child of a fork they begin afresh.
#pragma once

#include <cuda.h>

#include <optional>
#include <span>

#include "interposer/memory/memory.h"
#include "interposer/session/borrowing.h"
#include "interposer/session/captures.h"
#include "interposer/session/contexts.h"

namespace sharedgpu::session {

inline constexpr unsigned kMostDevices = gate::PageSlot::kCount;

// What cuInit is to return, after the real one has succeeded: CUDA_SUCCESS, or, where there is no arbiter and
// SHAREDGPU_ON_NO_ARBITER=fail, CUDA_ERROR_SYSTEM_NOT_READY. The first call connects and may wait for the
// arbiter as long as SHAREDGPU_ARBITER_TIMEOUT says.
CUresult start();

// The process is about to use `device`. A device for which the arbiter gives no session is left to plain
// CUDA.
void attach(CUdevice device);
// The only device of this machine, if so: then it will be attached anyway, and may as well be now.
void attach_only_device();

// The memory of `device`; null: it is plain CUDA's.
Memory* memory_of(CUdevice device);
// The memory of the device of the calling thread's context; null too where there is no context.
Memory* current_memory();
// The memories of all attached devices, in the order of their attachment, and those devices.
std::span<Memory* const> memories();
std::span<const CUdevice> devices();

// Our allocation that `address` lies in, on whichever device; nullopt: none of ours.
struct Place {
  Memory* memory = nullptr;
  CUdevice device = 0;
  AddressRange range;
};
std::optional<Place> find(CUdeviceptr address);

// Work of `device` may access our memory of `owner` from now on, or no longer needs to.
void set_peer_access(CUdevice device, CUdevice owner, bool allowed);

// What cuDeviceTotalMem is to show for `device`; nullopt: what the driver says.
std::optional<Bytes> capacity(CUdevice device);
// What a context of `device` is reckoned to take.
Bytes usual_context(CUdevice device);
// What cuMemGetInfo is to show on `device`; nullopt: what the driver says.
std::optional<MemoryView> memory_view(CUdevice device);

// Calls `submission` every 2 ms while the gate is open and others wait, on a turn thread: it may not block.
// It returns how long the GPU is at one submission of the process; zero: not known.
void measure_by(Nanoseconds (*submission)());
// Offers the turn to those that wait: what comes next would not end in time.
void give_turn_back();

// Calls `also` every second or so, on a turn thread: it may ask the arbiter for nothing.
void tend_also(void (*also)());

// Lends the allocation at `base`, which has been settled, to other processes of the tenant. False: it cannot
// be.
bool lend(Memory& memory, CUdeviceptr base, LoanName& name);
// Whether it is this process that lends under this name.
bool is_lender_of(const LoanName& name);
Borrowing& borrowing();

Contexts& contexts();
Captures& captures();
// Whether the GPUs have done all that this process gave them. Never waits; where it cannot be known, no.
bool idle();
// A context of `device` was made, or is about to go and then stays or has gone: the memory copies within one.
void context_added(CUcontext context, CUdevice device, bool primary);
Contexts::Removed context_going(CUcontext context, CUdevice device);
void context_stays(Contexts::Removed context, CUdevice device);
void context_gone(CUcontext context);
// The program has set a limit of the context, for which the driver takes so much more than usual.
void context_extra(CUcontext context, CUlimit limit, Bytes extra);

}  // namespace sharedgpu::session
