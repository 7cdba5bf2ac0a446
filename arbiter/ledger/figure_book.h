// SPDX-License-Identifier: Apache-2.0
// Maintains the figures of tenants and their steps: bytes moved, time waited, handoffs, memory maxima.
//
// It observes the core from outside: after each event, observe() gets what the event may have changed. Its
// cost is proportional to what has changed, not to the number of sessions. Pure; not thread-safe.
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
  // A step of a tenant; StepName{}: the whole tenant.
  using Key = std::pair<TenantId, StepName>;

  // Sets figures as the ledger has them.
  void carry(const Key& key, const Figures& figures) { figures_[key] = written_[key] = figures; }
  // A session of that step has come and has this backend. That alone is not reported, only with the next
  // change.
  void came(TenantId tenant, StepName step, Backend backend);
  // A session of that step has moved that many more bytes.
  void add(TenantId tenant, StepName step, Traffic moved);
  void observe(const Sighting& seen, Nanoseconds now);
  // Returns the figures to be written to the ledger. All changed figures are written when a lease has ended
  // or the last session is gone; moved bytes at most once a second, since an eviction is reported in many
  // parts; and figures that grow meanwhile every 15 seconds, in case the host goes down.
  std::vector<std::pair<Key, Figures>> take_news(Nanoseconds now);
  // Makes all figures due: the arbiter ends.
  void hasten();

  // The figures as last observed, or up to `now`.
  Figures of(TenantId tenant, StepName step = {}, Nanoseconds now = {}) const;
  const std::map<Key, Figures>& all() const { return figures_; }
  void forget(TenantId tenant);

 private:
  // The sessions of a step, or of a whole tenant, as last observed.
  struct Watch {
    unsigned sessions = 0;
    unsigned wanting = 0;
    Bytes footprint;
    Bytes resident;
    Nanoseconds counted{};  // time waited and overuse are counted up to here
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
  std::map<SessionId, Sighting::Session> sessions_;  // as last observed
  std::map<TenantId, Watched> watched_;              // the tenants of `sessions_`
  std::set<Key> changed_;
  std::map<Key, Figures> written_;  // as last reported
  bool due_ = false;                // the changed figures are due at once
  Nanoseconds told_{};
  Nanoseconds swept_{};  // when growing figures were last written
  Nanoseconds looked_{};
};

}  // namespace sharedgpu
