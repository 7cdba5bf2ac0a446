// SPDX-License-Identifier: Apache-2.0
// Writes the ledger: appends records, flushes them before the actions that depend on them, keeps records in
// memory while the disk is full, and limits how much each user may add.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "arbiter/core/core.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/token_bucket.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/ledger.h"
#include "config/settings.h"
#include "protocol/status.h"

namespace sharedgpu {

// Actions of the core that the journal has recorded. Only a Journal creates objects of this class, and the
// daemon performs only actions in such objects. So the next arbiter knows each lease that was granted before
// a crash of the arbiter, except leases that a full disk kept out of the file.
class RecordedActions {
 public:
  const Actions& all() const { return actions_; }

 private:
  friend class Journal;
  explicit RecordedActions(Actions actions) : actions_(std::move(actions)) {}
  Actions actions_;
};

class Journal {
 public:
  // `figures`: the times and sizes of tenants. observe() updates them and records their changes.
  Journal(asio::io_context& loop, const System& system, FigureBook& figures, const Settings& settings,
          std::unique_ptr<FileCalls> files = std::make_unique<FileCalls>());

  // Opens the ledger and passes its records to `past`, oldest first.
  Status open(const std::function<void(const Record&)>& past);

  // Call when LedgerSize= or LedgerFiles= may have changed.
  void set_limits(const Settings& settings);

  void record(const Record& record);
  template <class What>
  void record(const What& what) {
    record(Record{.at = system_.now(), .what = what});
  }
  // Writes the buffered records to the file. If this fails, for example because the disk is full, keeps the
  // records in memory and retries.
  void flush();
  // Records the leases that these actions begin or end, and flushes.
  RecordedActions write_down(Actions actions);

  // Updates the times and sizes of tenants after a change in the core.
  void observe(const Sighting& seen, Nanoseconds at);
  // Takes a reading of the GPU's energy counter, and records the energies of tenants.
  void read_energy(const GpuUuid& gpu, Energy counter);
  // While a lease is open, updates the times and sizes of tenants once a second, and writes a SeenRecord if
  // the last record is at least a second old. If no session confirms a lease after a crash, the lease counts
  // as held until the last record. `core` must outlive this object.
  void watch_leases(const Core& core);
  // Records the latest times, sizes and energies of tenants, and flushes. Call when the arbiter ends.
  void end(const Core& core);

  // Returns true if the user may cause a record now, and counts the record. Root always may.
  bool may_write(uid_t uid);
  // The number of users whose rate of records is tracked. Entries of users that have caused no record for a
  // while are dropped at some later time.
  std::size_t writers() const { return writers_.size(); }

 private:
  void record_energy(Nanoseconds at);
  void retry_later();

  const System& system_;
  FigureBook& figures_;
  const std::string path_;
  Ledger ledger_;
  TokenBuckets<uid_t> writers_{1024, 50};  // the burst suffices for a record of each process of a large node
  asio::steady_timer retry_timer_;
  asio::steady_timer seen_timer_;
  Nanoseconds last_record_{};
  bool watches_leases_ = false;
  bool failing_ = false;
};

}  // namespace sharedgpu
