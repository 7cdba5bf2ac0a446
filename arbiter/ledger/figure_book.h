// SPDX-License-Identifier: Apache-2.0
// Maintains the figures of tenants and their steps: bytes moved, time waited, handoffs, memory maxima.
//
// It observes the core from outside: after each event, observe() gets the values that the event may have
// changed. The cost of observe() is proportional to the number of changed values, not to the number of
// sessions. Pure; not thread-safe.
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
  // A session of the step has come, and has this backend. The backend is written to the ledger only with the
  // next change of a figure.
  void came(TenantId tenant, StepName step, Backend backend);
  // A session of the step has moved `moved` more bytes.
  void add(TenantId tenant, StepName step, Traffic moved);
  // The control group of the tenant has used this much host memory at once. Returns true if that is a new
  // maximum, which the caller records.
  bool note_host(TenantId tenant, Bytes peak);
  void observe(const Sighting& seen, Nanoseconds now);
  // Returns the figures to be written to the ledger: all changed figures, at once when a lease has ended or a
  // tenant's last session is gone, otherwise at most once a second, since an eviction is reported in many
  // parts. Every 15 seconds, figures that grow with time are counted up to now and returned, too, so that a
  // crash of the host loses little.
  std::vector<std::pair<Key, Figures>> take_news(Nanoseconds now);
  // Makes all changed figures due at once. Call it before the arbiter ends.
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
