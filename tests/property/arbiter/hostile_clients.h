// SPDX-License-Identifier: Apache-2.0
// Hostile clients of the simulation in world.h: sessions that send any message that the daemon accepts, at
// any time.
//
// On the GPU, a hostile client really has a context of 1 MiB or nothing. Some clients have another 1 MiB that
// they do not report. Surveys show the real memory, like the surveys of the daemon. The daemon itself
// determines the process of a session and its GPU, so these clients do not lie about process and GPU. The
// largest numbers in messages are the largest that arbiter/daemon/validity.h accepts. A client that is
// dropped or cancelled ends within a second; its tenant reconnects a moment later. One thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "arbiter/core/core.h"

namespace sharedgpu::test {

class HostileClients {
 public:
  // The functions of World that these clients use.
  class Surroundings {
   public:
    virtual ~Surroundings() = default;
    virtual Nanoseconds now() const = 0;
    virtual void at(Nanoseconds time, std::function<void()> what) = 0;
    virtual void tell(const Event& event) = 0;
    virtual unsigned random(unsigned least, unsigned most) = 0;
    virtual SessionId new_session() = 0;
    virtual GpuUuid any_gpu() = 0;
    virtual bool winding_down() const = 0;
  };

  // The sizes of a client's real memory on its GPU: of its context, and of memory that the client never
  // reports.
  static constexpr Bytes kContext = mebibytes(1);
  static constexpr Bytes kHidden = mebibytes(1);

  static constexpr unsigned kMostSessions = 4;  // the most sessions of one tenant

  // The numbers of the tenants begin with `first`. With `absurd`, the tenants of these clients also have
  // arbitrary units, shares and deadlines.
  HostileClients(Surroundings& world, TenantId first, unsigned tenants, bool absurd);

  bool owns(SessionId session) const { return clients_.count(session) != 0; }
  std::size_t size() const { return clients_.size(); }
  void hear(SessionId session, const Message& message);
  void end_session(SessionId session);
  void end_tenant(TenantId tenant);
  void end_all();
  // Adds the clients' memory to a survey of the GPU.
  void show(const GpuUuid& gpu, GpuSurvey& survey) const;
  // The number of requests for growth. The core may answer each request once at most.
  std::uint64_t requests() const { return requests_; }

 private:
  struct Client {
    TenantId tenant;
    GpuUuid gpu;
    Bytes there;   // memory that the client really has on the GPU, without `hidden`
    Bytes hidden;  // memory on the GPU that the client never reports
    bool attached = false;
    Epoch epoch;              // epoch of the last order
    std::uint64_t order = 0;  // number of the last order
    std::uint64_t resident = 0;
  };
  // The action that clients of one kind repeat.
  using Deed = void (HostileClients::*)(SessionId, Client&);
  static Deed deed_of(unsigned number);

  void come(TenantId tenant);
  // The session's process reconnects.
  void come_back(SessionId session);
  SessionId connect(TenantId tenant);
  void begin(SessionId session);
  void live(SessionId session);
  Claims claims();
  Bytes any_size();
  MemoryUse any_use();
  static MemoryUse everything();
  template <class Body>
  void say(SessionId session, const Body& body);

  void claim_memory(SessionId session, Client& client);
  void keep_the_turn(SessionId session, Client& client);
  void answer_wrongly(SessionId session, Client& client);
  void ask_much(SessionId session, Client& client);
  void come_and_go(SessionId session, Client& client);
  void keep_memory(SessionId session, Client& client);
  void hide_memory(SessionId session, Client& client);
  void alternate(SessionId session, Client& client);
  void obey(SessionId session, const MemoryUse& use);
  void do_anything(SessionId session, Client& client);

  Surroundings& world_;
  const TenantId first_;
  const bool absurd_;
  std::uint64_t requests_ = 0;
  std::map<SessionId, Client> clients_;
};

}  // namespace sharedgpu::test
