// SPDX-License-Identifier: Apache-2.0
// This process's session with the arbiter for one GPU: a connection, its two threads, the memory of the GPU.
//
// A process has a session for each GPU that it uses. All sessions of a process belong to one tenant, so the
// arbiter opens and closes their gates together. cuInit creates the first session, before the GPU of this
// session is known. A session that has begun is never destroyed, since a program may call CUDA until its last
// instruction.
#pragma once

#include <cuda.h>

#include <atomic>
#include <mutex>

#include "interposer/memory/memory.h"
#include "interposer/session/arbiter_link.h"
#include "interposer/session/residence.h"
#include "interposer/shared_memory/import.h"

namespace sharedgpu {
class DriverDevice;
}

namespace sharedgpu::session {

// The message that reports `device` to the arbiter.
Attach describe(CUdevice device);

class DeviceSession final : public Books {
 public:
  DeviceSession(const Settings& settings, const TurnParts& parts, gate::PageSlot slot)
      : settings_(settings),
        slot_(slot),
        contexts_(parts.contexts),
        turns_(parts, outbox_, totals_, slot),
        link_(settings, outbox_, requests_, turns_, exports_, totals_, slot) {}

  // Call it before begin(), for only one session of the process.
  void listen_to(const DeadlinePipe& pipe) { link_.listen_to(pipe); }
  // Takes over a connection on which the arbiter has sent Welcome, and starts the threads. On failure prints
  // the reason and `otherwise` (what the process does instead), and returns false; the gate then stays open
  // for this session.
  bool begin(Handshake& hands, const char* otherwise);
  // Reports the GPU to the arbiter, and creates the memory object. Called once, after begin().
  void attach(CUdevice device);
  void want() { outbox_.want(); }
  void give_turn_back() { turns_.give_back(); }

  // Call the following functions only after attach().
  Memory* memory() const { return memory_.load(std::memory_order_acquire); }  // null before attach()
  Bytes capacity() const { return capacity_; }
  Bytes usual_context() const { return usual_context_; }
  // The figures that cuMemGetInfo reports.
  MemoryView view();
  // Called when the contexts of the GPU have changed. Selects the context in which the memory is copied.
  // Reports the size of the contexts, which cannot be swapped.
  void follow();

  // Permits or forbids that another device accesses the memory; a ban affects only memory that is mapped
  // later.
  void set_peer(CUdevice peer, bool allowed);

  Answer grow() override;
  void refused(const Refusal& refusal) override;
  void report(bool stuck) override { outbox_.usage(stuck); }
  bool capturing() override { return gate::capturing(); }
  bool idle() override { return contexts_.done(); }
  void claim() override { outbox_.claim(); }
  bool may_be_oversized() override { return link_.may_be_oversized(); }
  void went_oversized() override;
  bool make_room() override;
  bool still_lent(CUdeviceptr base) override { return exports_.still_lent(base); }

  // Decides which handles are exchanged before kernel launches; null if the session was never oversized.
  Residence* residence() const { return residence_.load(std::memory_order_acquire); }
  // See TurnWorker.
  ExchangeResult exchange(std::vector<CUdeviceptr> out, std::vector<CUdeviceptr> in) {
    return turns_.exchange(std::move(out), std::move(in));
  }
  ExchangeResult merge(CUdeviceptr address) { return turns_.merge(address); }

  shared_memory::Exports& exports() { return exports_; }
  // Requests a piece of exported memory from another process of the tenant, through this session's
  // connection.
  shared_memory::Imports::Answer import_piece(LoanName name, std::uint32_t piece);

 private:
  bool give_up(const char* action, int error, const char* otherwise);
  int launch_threads();
  bool ask(Request& request, Nanoseconds patience, Nanoseconds deadline = Nanoseconds::max());
  bool arbiter_gone(Nanoseconds patience) const;
  bool settles() const;
  MemoryView ask_view();

  CUdevice device_ = 0;
  Bytes usual_context_;
  std::mutex following_;

  static void* run_service(void* session);
  static void* run_turns(void* session);

  const Settings& settings_;
  const gate::PageSlot slot_;
  Outbox outbox_;
  Requests requests_;
  shared_memory::Exports exports_;
  tracking::Contexts& contexts_;
  ExchangeTotals totals_;
  TurnWorker turns_;
  ArbiterLink link_;

  // Written by attach().
  std::atomic<Memory*> memory_{nullptr};
  DriverDevice* copier_ = nullptr;  // the device through which memory_ copies; null if the memory is native
  Bytes capacity_;
  std::atomic<Residence*> residence_{nullptr};
};

}  // namespace sharedgpu::session
