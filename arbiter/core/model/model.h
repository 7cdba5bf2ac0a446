// SPDX-License-Identifier: Apache-2.0
// The GPUs, the tenants with their sessions, and the domains of GPUs and tenants that depend on each other.
// The state of memory, turns and waiting is kept in other parts (memory/, turns/, scheduler/).
//
// Only the class Core changes the model. Pointers to an entity are valid until the entity is removed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "arbiter/core/model/gpu_condition.h"
#include "arbiter/policy/policy.h"
#include "protocol/messages.h"

namespace sharedgpu {

using Slot = std::uint32_t;

// The rules for the turns of a GPU. The policy outlives the core.
struct Rules {
  const Policy* policy = nullptr;
  TurnRules turns = {};
  bool all_timed = false;   // the shares of all tenants apply even while memory suffices, see Claims::timed
  bool by_threads = false;  // deadlines limit the threads of starting processes, not the time of tenants
  Nanoseconds queue{};      // the backlog limit of oversubscribed sessions; zero: the default
};

struct Gpu;
struct Tenant;

// A process of a tenant on one GPU, connected to the arbiter. A process has a session for each GPU that it
// uses.
struct Session {
  SessionId id;
  Slot slot = 0;
  Tenant* tenant = nullptr;
  Gpu* gpu = nullptr;  // null until Attach
  StepName step;
  Backend backend = Backend::swap;
  bool resumes = false;      // the session's process was connected to an earlier arbiter
  bool can_be_away = false;  // the session's library can keep memory away (Usage::away)
  // The message Attached has told the session that it may have away memory. Other sessions never request away
  // memory.
  bool may_be_away = false;
};

// Limits of a tenant. Zero: none.
struct Limits {
  Bytes footprint = {};   // per GPU
  Bytes host = {};        // host memory for swap, over all GPUs
  bool oversize = false;  // the tenant may have away memory
};

// A job on this node, with all its processes.
struct Tenant {
  TenantId id;
  Slot slot = 0;
  Limits limits;
  Claims stated;           // as stated by the tenant's job
  bool exclusive = false;  // the policy lets no other tenant run beside this one, even if memory
                           // suffices
  std::uint32_t job = 0;   // number of the tenant's job if the job spans several nodes (gang.h);
                           // otherwise zero
  bool gang = false;       // a coordinator orders the tenant's turns, on all nodes of the job at once
  bool unsettled = false;  // the memory of the gang may still grow; no two such gangs run on a GPU at the
                           // same time
  std::vector<Session*> sessions;     // in the order in which they connected
  std::optional<std::size_t> domain;  // index of the tenant's domain; none while no session is attached

  bool attached() const {
    return std::any_of(sessions.begin(), sessions.end(), [](const Session* its) { return its->gpu; });
  }
};

struct Gpu {
  GpuUuid uuid;
  Slot slot = 0;
  unsigned number = 0;            // number of the GPU in the host's order
  std::optional<unsigned> minor;  // minor number of the GPU's device file, if the driver reports it
  Bytes total;
  Bytes capacity;        // see docs/design/memory.md
  bool learned = false;  // the arbiter knows the GPU only from sessions; removed with its last session
  GpuCondition condition = GpuCondition::healthy;
  bool drained = false;            // an administrator has taken the GPU out of service; its tenants continue
  std::vector<Session*> sessions;  // the sessions attached to the GPU, sorted by id
};

// A set of GPUs that have tenants in common, and all tenants that use them. Their running sets change
// together.
struct Domain {
  Slot slot = 0;  // index among the domains
  std::vector<Gpu*> gpus;
  std::vector<Tenant*> tenants;  // sorted by id, unless group() has merged domains
  Rules rules;                   // the rules of the domain's first GPU in the host's order, made stricter by
                                 // deadlines, see find_domains()
  Nanoseconds due{};             // when the domain must be advanced next; zero: with the next event
  Nanoseconds advanced{};        // when the domain was last advanced
};

inline bool attached(const Session* session) { return session->gpu != nullptr; }

inline bool uses(const Tenant& tenant, const Gpu& gpu) {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [&](const Session* session) { return session->gpu == &gpu; });
}

class Model {
 public:
  explicit Model(const Rules& node) : node_(node) {}

  // Return null if there is no entity with this id.
  Session* find(SessionId id);
  Tenant* find(TenantId id);
  Gpu* find(const GpuUuid& uuid);
  const Session* find(SessionId id) const { return const_cast<Model*>(this)->find(id); }
  const Tenant* find(TenantId id) const { return const_cast<Model*>(this)->find(id); }
  const Gpu* find(const GpuUuid& uuid) const { return const_cast<Model*>(this)->find(uuid); }

  // The second value is true if the entity existed already. A new entity has only its id and slot.
  std::pair<Session*, bool> add(SessionId id);
  std::pair<Tenant*, bool> add(TenantId id);
  std::pair<Gpu*, bool> add(const GpuUuid& uuid);
  void join(Tenant& tenant, Session& session);
  void attach(Session& session, Gpu& gpu);
  void remove(Session& session);  // if this was the last session of a learned GPU, removes the GPU, too
  void remove(Tenant& tenant);    // the tenant must have no sessions

  const std::map<SessionId, Session>& sessions() const { return sessions_; }
  const std::map<TenantId, Tenant>& tenants() const { return tenants_; }
  const std::map<GpuUuid, Gpu>& gpus() const { return gpus_; }

  // Sets the rules of GPUs: `own` for the GPUs in it, `node` for all other GPUs.
  void set_rules(const Rules& node, std::map<GpuUuid, Rules> own);
  const Rules& rules_of(const GpuUuid& gpu) const;
  // The rules of the tenant's domain, or the node's rules if the tenant has no domain.
  const Rules& rules_of(const Tenant& tenant) const;

  // The domains as of the last find_domains(). If stale() returns true, the domains must be computed again.
  const std::vector<Domain>& domains() const { return domains_; }
  bool stale() const { return stale_; }
  void make_stale() { stale_ = true; }
  // Recomputes the domains. A tenant's deadline can affect the rules for all tenants in its domain, see
  // makes_exclusive() and backlog_limit_beside() (entitlement.h).
  void find_domains();
  // Sets the tenant's limits, and the Claims that its job states.
  void state(Tenant& tenant, const Limits& limits, const Claims& claims);
  // Call if a property of the tenant changes: the core then advances the tenant's domain at the end of the
  // current event.
  void touch(const Tenant& tenant);
  void touch_all();
  void set_due(const Domain& domain, Nanoseconds due) { domains_[domain.slot].due = due; }
  void set_advanced(const Domain& domain, Nanoseconds at) { domains_[domain.slot].advanced = at; }

 private:
  // Allocates the smallest free slot.
  class Slots {
   public:
    Slot take();
    void give_back(Slot slot) { free_.push_back(slot); }

   private:
    std::vector<Slot> free_;
    Slot next_ = 0;
  };

  std::vector<Domain> group();
  void set_exclusive(Tenant& tenant) const;

  Rules node_;
  std::map<GpuUuid, Rules> own_;
  std::map<GpuUuid, Gpu> gpus_;
  std::map<TenantId, Tenant> tenants_;
  std::map<SessionId, Session> sessions_;
  Slots session_slots_;
  Slots tenant_slots_;
  Slots gpu_slots_;
  std::vector<Domain> domains_;
  bool stale_ = true;
};

}  // namespace sharedgpu
