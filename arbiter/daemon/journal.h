// SPDX-License-Identifier: Apache-2.0
// Writes the ledger: appends records, flushes them in time, keeps them while the disk is full, and bounds how
// much each user may add.
//
// One thread, that of the event loop.
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

// Actions of the core whose leases have been recorded. Only a Journal makes them, and nothing else can be
// performed. So the next arbiter knows of each lease that was granted before a crash, except for those that a
// disk without space kept out of the file.
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
  // observe() keeps `figures` up to date and records their changes.
  Journal(asio::io_context& loop, const System& system, FigureBook& figures, const Settings& settings,
          std::unique_ptr<FileCalls> files = std::make_unique<FileCalls>());

  // Opens the ledger and passes its records to `past`, oldest first.
  Status open(const std::function<void(const Record&)>& past);

  void record(const Record& record);
  template <class What>
  void record(const What& what) {
    record(Record{.at = system_.now(), .what = what});
  }
  // Passes the records to the kernel. If that fails, they are kept in memory, and written as soon as
  // possible.
  void flush();
  // Records the leases that begin and end, and flushes.
  RecordedActions write_down(Actions actions);

  // The core has changed: brings the figures up to date.
  void observe(const Sighting& seen, Nanoseconds at);
  // While a lease is open, a record is written every second: after a crash, a lease that no session confirms
  // counts up to the last record. `core` lives as long as this.
  void watch_leases(const Core& core);
  // The arbiter ends: records and flushes everything.
  void end(const Core& core);

  // True if this user may add to the ledger at this moment, and counts it. Root always may.
  bool may_write(uid_t uid);
  // The users that have written lately, and some that have not.
  std::size_t writers() const { return writers_.size(); }

 private:
  void retry_later();

  const System& system_;
  FigureBook& figures_;
  const std::string path_;
  Ledger ledger_;
  TokenBuckets<uid_t> writers_{1024, 50};  // at first, enough for each process of a large node
  asio::steady_timer retry_timer_;
  asio::steady_timer seen_timer_;
  Nanoseconds last_record_{};
  bool watches_leases_ = false;
  bool failing_ = false;
};

}  // namespace sharedgpu
