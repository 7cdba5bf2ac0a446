// SPDX-License-Identifier: Apache-2.0
// Writes the ledger: what is recorded, when it is flushed, what happens while the disk is full, and how much
// each user may add.
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

// Actions of the core whose leases are in the ledger. Only a Journal makes them, and only they can be
// performed: nothing is granted that an arbiter after a crash would not know of.
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
  // `figures` are kept up to date by observe(), and recorded as they change.
  Journal(asio::io_context& loop, const System& system, FigureBook& figures, const Settings& settings,
          std::unique_ptr<FileCalls> files = std::make_unique<FileCalls>());

  // Opens the ledger, and hands the records of the past to `past`, oldest first.
  Status open(const std::function<void(const Record&)>& past);

  void record(const Record& record);
  template <class What>
  void record(const What& what) {
    record(Record{.at = system_.now(), .what = what});
  }
  // Hands to the kernel what was recorded. Where it fails, the records are kept and written as soon as that
  // is possible.
  void flush();
  // Records and flushes the leases that begin and end.
  RecordedActions write_down(Actions actions);

  // Figures follow the core, which has changed.
  void observe(const Core& core, Nanoseconds at);
  // While anybody holds a lease the ledger is written to every second: the leases that are open count up to
  // its last record where nobody comes to give them back. `core` lives as long as this.
  void watch_leases(const Core& core);
  // Everything is recorded: the arbiter ends.
  void end(const Core& core);

  // Whether this user may add to the ledger or the log now; where not, it may a moment later. Root always
  // may.
  bool may_write(uid_t uid);

 private:
  void retry_later();

  const System& system_;
  FigureBook& figures_;
  const std::string path_;
  Ledger ledger_;
  std::map<uid_t, TokenBucket> writes_;
  asio::steady_timer retry_timer_;
  asio::steady_timer seen_timer_;
  Nanoseconds last_record_{};
  bool watches_leases_ = false;
  bool failing_ = false;
};

}  // namespace sharedgpu
