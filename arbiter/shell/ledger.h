// SPDX-License-Identifier: Apache-2.0
// The ledger: StateDir/ledger, an append-only record of who came and who held which lease. See
// docs/ledger.md.
//
// append() only fills memory; flush() hands it to the kernel in one write, so that it survives the arbiter;
// a thread of its own makes it survive the host with fdatasync. A full disk costs nothing but memory: what
// cannot be written waits for the next flush(). append() and flush() are for one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "arbiter/shell/records.h"
#include "protocol/channel.h"

namespace sharedgpu {

class Ledger {
 public:
  struct Replay {
    unsigned records = 0;
    unsigned damaged = 0;  // lines passed over; a torn last line counts
  };

  Ledger() = default;
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Opens or makes the file and hands every good record to `replayed`, oldest first. Returns an empty string
  // or what is wrong.
  std::string open(const std::string& path, const std::function<void(const Record&)>& replayed,
                   Replay& replay);
  void append(const Record& record);
  // Returns 0, or the errno value with which writing failed; what was not written is kept.
  int flush();
  std::size_t unwritten() const { return pending_.size(); }
  // Records that were lost because too much was waiting.
  std::uint64_t lost() const { return lost_; }

 private:
  void sync_loop();

  UniqueFd file_;
  std::string pending_;
  std::uint64_t lost_ = 0;

  std::thread syncer_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool dirty_ = false;
  bool stop_ = false;
};

// Feeds the lines of a ledger's text to `replayed`; what open() does, without the file.
Ledger::Replay replay_ledger(std::string_view text, const std::function<void(const Record&)>& replayed);

}  // namespace sharedgpu
