// SPDX-License-Identifier: Apache-2.0
// This process's session with the arbiter for one GPU: a connection, its two threads, the memory of the GPU.
//
// A process has one for each GPU that it uses. All are of one tenant, so the arbiter opens and closes their
// gates together. The first is made by cuInit, before it is known which GPU it is for. Never destroyed once
// begun: a program may call CUDA until its last instruction.
#pragma once

#include <cuda.h>

#include <atomic>
#include <mutex>

#include "interposer/memory/memory.h"
#include "interposer/session/arbiter_link.h"
#include "interposer/session/borrowing.h"

namespace sharedgpu {
class DriverDevice;
}

namespace sharedgpu::session {

// How the arbiter is told of `device`.
Attach describe(CUdevice device);

class DeviceSession final : public Books, private ReportSource {
 public:
  DeviceSession(const Settings& settings, const TurnParts& parts, gate::PageSlot slot)
      : settings_(settings),
        slot_(slot),
        contexts_(parts.contexts),
        turns_(parts, outbox_, slot),
        link_(settings, outbox_, requests_, turns_, *this, lending_, slot) {}

  // Before begin(), for one session of the process.
  void listen_to(const DeadlinePipe& pipe) { link_.listen_to(pipe); }
  // Takes over a connection that has been welcomed, and starts the threads. False, and nobody is gated by
  // this session: that has been said.
  bool begin(Handshake& hands);
  // Tells the arbiter which GPU it is, and makes the memory. Once, after begin().
  void attach(CUdevice device);
  void want() { outbox_.want(); }
  void give_turn_back() { turns_.give_back(); }

  // All after attach().
  Memory* memory() const { return memory_.load(std::memory_order_acquire); }  // null: plain CUDA's
  Bytes capacity() const { return capacity_; }
  Bytes usual_context() const { return usual_context_; }
  // The figures that cuMemGetInfo is to show.
  MemoryView view();
  // The contexts of the GPU are others now: the memory copies within one, and what they take, which cannot be
  // swapped, is told.
  void follow();

  // Opens the memory to another device, or leaves it out from now on.
  void set_peer(CUdevice peer, bool allowed);

  Answer grow() override;
  void refused_by_host(Bytes most, Bytes wanted) override;
  void report(bool stuck) override { outbox_.usage(stuck); }
  bool capturing() override { return gate::capturing(); }
  bool idle() override { return contexts_.done(); }
  void claim() override { outbox_.claim(); }
  bool still_lent(CUdeviceptr base) override { return lending_.still_lent(base); }

  Lending& lending() { return lending_; }
  // Asks a lender of the tenant for a piece of what it lends, by this session's connection.
  Borrowing::Answer borrow(LoanName name, std::uint32_t piece);

 private:
  bool stay_plain(const char* trouble, int error);
  int launch_threads();
  bool ask(Request& request, Nanoseconds patience, Nanoseconds deadline = Nanoseconds::max());
  bool arbiter_gone(Nanoseconds patience) const;
  bool settles() const;
  MemoryView ask_view();

  // The link reports these; without memory they are zero.
  MemoryUse use() const override;
  Bytes job_host_limit() const override;
  Traffic moved() const override;

  CUdevice device_ = 0;
  Bytes usual_context_;
  std::mutex following_;

  static void* run_service(void* session);
  static void* run_turns(void* session);

  const Settings& settings_;
  const gate::PageSlot slot_;
  Outbox outbox_;
  Requests requests_;
  Lending lending_;
  Contexts& contexts_;
  TurnWorker turns_;
  ArbiterLink link_;

  // Written by attach().
  std::atomic<Memory*> memory_{nullptr};
  DriverDevice* copier_ = nullptr;  // what the memory copies with; null: it is the driver's own
  Bytes capacity_;
};

}  // namespace sharedgpu::session
