// SPDX-License-Identifier: Apache-2.0
// Keeps the figures of tenants and their steps: bytes moved, time waited, handoffs, the most memory.
//
// It watches the core from outside: observe() sees after each event what may have changed with it. Its work
// is in proportion to what has changed, and not to the number of sessions. Pure; one thread at a time.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "arbiter/core/sighting.h"
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
  void observe(const Sighting& seen, Nanoseconds now);
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
  // The sessions of a step, or of a tenant as a whole, as observed last.
  struct Watch {
    unsigned sessions = 0;
    unsigned wanting = 0;
    Bytes footprint;
    Bytes resident;
    Nanoseconds counted{};  // time waited and overuse are in the figures up to here
  };
  struct Watched {
    Sighting::Tenant state;
    std::map<StepName, Watch> steps;
  };

  void count(TenantId tenant, const Watched& watched, StepName step, Watch& watch, Nanoseconds now);
  static void add_time(const Sighting::Tenant& state, const Watch& watch, Nanoseconds now, Figures& figures);
  void drop_gone(const std::vector<Sighting::Session>& left, Nanoseconds now);
  bool look_at(const Sighting::Session& session, Nanoseconds now);
  void look_at(const Sighting::Tenant& tenant, Nanoseconds now);
  void take_out(const Sighting::Session& session, Nanoseconds now);
  void note_maxima(const Sighting::Session& session);
  void count_all(Nanoseconds now);

  std::map<Key, Figures> figures_;
  std::map<SessionId, Sighting::Session> sessions_;  // as observed last
  std::map<TenantId, Watched> watched_;              // the tenants of these
  std::set<Key> changed_;
  std::map<Key, Figures> written_;  // as they were reported last
  bool due_ = false;                // they are news at once
  Nanoseconds told_{};
  Nanoseconds swept_{};  // when those that wait were last written down
  Nanoseconds looked_{};
};

}  // namespace sharedgpu
