// SPDX-License-Identifier: Apache-2.0
// Overuse: a tenant whose lease was revoked has not left a GPU, and others wait for that GPU.
//
// The time counts in which both hold: from the revocation on, or from the first that waits. The time in which
// its processes are stopped shows and does not count, since they do not run: see turns/presence.h. Overuse
// changes no decision of the core, it asks the shell for responses. One thread at a time.
#pragma once

#include <optional>

#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/overdue.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/model/tuning.h"
#include "arbiter/core/turns/presence.h"
#include "arbiter/core/turns/turn_machine.h"

namespace sharedgpu {

class Overuse {
 public:
  Overuse(const Tuning& tuning, const Presence& presence, const TurnMachine& turns, Effects& effects)
      : rules_(tuning.overuse), presence_(presence), turns_(turns), effects_(effects) {}

  void add(const Tenant& tenant) { tenants_.begin(tenant); }
  // Call it once it is known who waits: last in the advance of the domain.
  void watch(const Domain& domain);

  // None: it keeps nobody waiting.
  std::optional<Overdue> of(const Tenant& tenant) const { return tenants_[tenant].overdue; }

 private:
  struct Row {
    Nanoseconds gates_closed{};           // at the end of the turn that this is about
    std::optional<Overdue> overdue = {};  // as of `watched`
    Nanoseconds watched{};
    Nanoseconds stopped{};  // of the time in which it is overdue
    bool noted = false;     // the responses that this turn has had
    bool exceeded = false;
  };

  void watch(const Tenant& tenant);
  const Session* awaited(const Tenant& tenant) const;
  bool waits(const Tenant& tenant) const;
  bool others_wait(const Gpu& gpu, const Tenant& tenant) const;
  void respond(const Tenant& tenant, const Gpu& gpu, Row& its);

  const std::optional<OveruseRules>& rules_;
  const Presence& presence_;
  const TurnMachine& turns_;
  Effects& effects_;
  Table<Tenant, Row> tenants_;
};

}  // namespace sharedgpu
