// SPDX-License-Identifier: Apache-2.0
// Maintains the figures of tenants and their steps: bytes moved, time waited, handoffs, memory maxima.
//
// A FigureBook observes the core: after each event, observe() gets the values that the event may have
// changed. The cost of observe() is proportional to the number of these values, not to the number of
// sessions. Pure; not thread-safe.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "arbiter/core/sighting.h"
#include "arbiter/ledger/energy_book.h"
#include "arbiter/ledger/figures.h"

namespace sharedgpu {

class FigureBook {
 public:
  // A step of a tenant; StepName{}: the whole tenant.
  using Key = std::pair<TenantId, StepName>;

  // Sets the figures of `key` to values read from the ledger.
  void carry(const Key& key, const Figures& figures) { figures_[key] = written_[key] = figures; }
  // Notes the backend of a new session of the step. take_news() returns the backend with the next change of a
  // figure, or with the figures that grow with time.
  void came(TenantId tenant, StepName step, Backend backend);
  // Adds `moved`, bytes that a session of the step has copied, to the figures of the step (see Traffic).
  void add(TenantId tenant, StepName step, Traffic moved);
  // Adds `more` to the step's cost of away memory (see Exchanges).
  void add_exchanges(TenantId tenant, StepName step, const Exchanges& more);
  // Notes the highest use of host memory in the tenant's control group. Returns true if `peak` is a new
  // maximum, which the caller records.
  bool note_host(TenantId tenant, Bytes peak);
  void observe(const Sighting& seen, Nanoseconds now);
  // Returns the changed figures, which the caller writes to the ledger. After the end of a lease, of an
  // eviction or of a step's last session, returns changes at once. At other times, returns changes at most
  // once a second, since an eviction is reported in many parts. Every 15 seconds, also returns the figures
  // that grow with time, counted up to the last observation. So a crash of the arbiter or of the host loses
  // about 15 seconds of these figures.
  std::vector<std::pair<Key, Figures>> take_news(Nanoseconds now);
  // Makes the next take_news() return all changed figures. Call it before the arbiter ends.
  void hasten();

  // The figures as of the last observation, or counted up to `now` if `now` is later.
  Figures of(TenantId tenant, StepName step = {}, Nanoseconds now = {}) const;
  const std::map<Key, Figures>& all() const { return figures_; }
  void forget(TenantId tenant);

  // The energy of tenants. Leases and readings of energy counters change it; observe() does not.
  EnergyBook& energy() { return energy_; }
  const EnergyBook& energy() const { return energy_; }

 private:
  // The sessions of a step, or of a whole tenant, as of the last observation.
  struct Watch {
    unsigned sessions = 0;
    unsigned wanting = 0;
    Bytes footprint;
    Bytes resident;
    Nanoseconds counted{};  // the figures that grow with time are counted up to this time
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

  EnergyBook energy_;
  std::map<Key, Figures> figures_;
  std::map<SessionId, Sighting::Session> sessions_;  // the sessions as last observed
  std::map<TenantId, Watched> watched_;              // the tenants of `sessions_`
  std::set<Key> changed_;
  std::map<Key, Figures> written_;  // as last returned by take_news(), or read from the ledger
  bool due_ = false;                // take_news() returns the changed figures at once
  Nanoseconds told_{};
  Nanoseconds swept_{};  // when take_news() last looked at the figures that grow with time
  Nanoseconds looked_{};
};

}  // namespace sharedgpu
