// SPDX-License-Identifier: Apache-2.0
// This process's session with the arbiter for one GPU: a connection, its two threads, the memory of the GPU.
//
// A process has one for each GPU that it uses. All are of one tenant, so the arbiter opens and closes their
// gates together. The first is made by cuInit, before it is known which GPU it is for. Never destroyed once
// begun: a program may call CUDA until its last instruction.
#pragma once

#include <cuda.h>

#include <mutex>

#include "interposer/memory/memory.h"
#include "interposer/session/backend.h"
#include "interposer/session/borrowing.h"
#include "interposer/session/service.h"

namespace sharedgpu::session {

// How the arbiter is told of `device`.
Attach describe(CUdevice device);

class DeviceSession final : public Books {
 public:
  DeviceSession(const Settings& settings, ContextDrain& drain, gate::PageSlot slot)
      : settings_(settings),
        slot_(slot),
        turns_(drain, outbox_, slot),
        service_(settings, outbox_, requests_, turns_, lending_, slot) {}

  // Before begin(), for one session of the process.
  void listen_to(const DeadlinePipe& pipe) { service_.listen_to(pipe); }
  // Takes over a connection that has been welcomed, and starts the threads. False, and nobody is gated by
  // this session: that has been said.
  bool begin(Handshake& hands);
  // Tells the arbiter which GPU it is, and makes the memory. Once, after begin().
  void attach(CUdevice device);
  void want() { outbox_.want(); }
  void give_turn_back() { turns_.give_back(); }
  void measure_by(Nanoseconds (*submission)()) { turns_.measure_by(submission); }
  void set_also_tend(void (*also)()) { turns_.set_also_tend(also); }

  // All after attach().
  Memory* memory() const { return made_.memory; }  // null: plain CUDA's
  Bytes capacity() const { return capacity_; }
  Bytes usual_context() const { return usual_context_; }
  MemoryView view();
  // The contexts of the GPU are others now: the memory copies within one, and what they take, which cannot be
  // swapped, is told.
  void follow(const Contexts& contexts);

  // Opens the memory to another device, or leaves it out from now on.
  void set_peer(CUdevice peer, bool allowed);

  Answer grow() override;
  void refused_by_host(Bytes most, Bytes wanted) override;
  void report(bool stuck) override { outbox_.usage(stuck); }
  bool capturing() override { return gate::capturing(); }
  bool idle() override;
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
  Turns turns_;
  Service service_;

  // Written by attach().
  MadeMemory made_;
  Bytes capacity_;
};

}  // namespace sharedgpu::session
