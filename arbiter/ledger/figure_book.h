// SPDX-License-Identifier: Apache-2.0
// What tenants and their steps come to, beside lease time: bytes moved, time waited, handoffs, the most
// memory.
//
// Watches the core from outside: observe() sees its state after each step, in which alone it changes. Pure;
// one thread at a time.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "arbiter/core/lease_book.h"
#include "arbiter/core/snapshot.h"
#include "arbiter/ledger/figures.h"

namespace sharedgpu {

class FigureBook {
 public:
  // A step of a tenant; StepName{}: all of the tenant.
  using Key = std::pair<TenantId, StepName>;

  // As the ledger tells it.
  void carry(const Key& key, const Figures& figures) { figures_[key] = written_[key] = figures; }
  // A session of that step has come, and has this backend. That alone is no news: it is told with what comes
  // next.
  void came(TenantId tenant, StepName step, Backend backend);
  // A session of that step has moved so much more.
  void add(TenantId tenant, StepName step, Traffic moved);
  void observe(const Snapshot& state, const LeaseBook& leases, Nanoseconds now);
  // What is to be written down: all that has changed, once a lease was given up or the last session is gone;
  // of bytes moved at most once a second, as an eviction is told of in many parts; and what grows meanwhile
  // every 15 seconds, for hosts that go down.
  std::vector<std::pair<Key, Figures>> take_news(Nanoseconds now);
  // Everything is to be told now: the arbiter ends.
  void hasten();

  // As observed last, or up to `now`.
  Figures of(TenantId tenant, StepName step = {}, Nanoseconds now = {}) const;
  const std::map<Key, Figures>& all() const { return figures_; }
  void forget(TenantId tenant);

 private:
  // What a step's sessions, or a tenant's, do since the last look.
  struct Watch {
    bool waits = false;
    bool leaves = false;
    Nanoseconds turn_ends{};  // of a turn that was given back
    Bytes footprint;
    Bytes resident;
  };
  static Nanoseconds overuse(const Watch& watch, Nanoseconds since, Nanoseconds now);

  std::map<Key, Figures> figures_;
  std::map<Key, Watch> watched_;
  std::set<Key> changed_;
  std::map<Key, Figures> written_;  // as they were told last
  bool due_ = false;                // they are to be told now
  Nanoseconds told_{};
  Nanoseconds swept_{};  // when those that wait were last written down
  Nanoseconds looked_{};
};

}  // namespace sharedgpu
