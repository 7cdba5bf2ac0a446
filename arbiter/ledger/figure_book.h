// SPDX-License-Identifier: Apache-2.0
// Keeps the figures of tenants and their steps: bytes moved, time waited, handoffs, the most memory.
//
// It watches the core from outside: observe() sees a snapshot of the state after each event. Pure; one thread
// at a time.
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

  // Sets figures as the ledger has them.
  void carry(const Key& key, const Figures& figures) { figures_[key] = written_[key] = figures; }
  // A session of that step has come, and has this backend. That alone is no news: it is reported with the
  // next change.
  void came(TenantId tenant, StepName step, Backend backend);
  // A session of that step has moved so many more bytes.
  void add(TenantId tenant, StepName step, Traffic moved);
  void observe(const Snapshot& state, const LeaseBook& leases, Nanoseconds now);
  // The figures to be written down: all that have changed, once a lease was given up or the last session is
  // gone; for bytes moved at most once a second, as an eviction is reported in many parts; and those that
  // grow meanwhile every 15 seconds, for hosts that go down.
  std::vector<std::pair<Key, Figures>> take_news(Nanoseconds now);
  // Makes everything news: the arbiter ends.
  void hasten();

  // The figures as observed last, or up to `now`.
  Figures of(TenantId tenant, StepName step = {}, Nanoseconds now = {}) const;
  const std::map<Key, Figures>& all() const { return figures_; }
  void forget(TenantId tenant);

 private:
  // The state of the sessions of a step or a tenant since the last observe().
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
  std::map<Key, Figures> written_;  // as they were reported last
  bool due_ = false;                // they are news at once
  Nanoseconds told_{};
  Nanoseconds swept_{};  // when those that wait were last written down
  Nanoseconds looked_{};
};

}  // namespace sharedgpu
