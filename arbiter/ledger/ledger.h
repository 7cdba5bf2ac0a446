// SPDX-License-Identifier: Apache-2.0
// The ledger: StateDir/ledger and the older files ledger.1, ledger.2..., append-only files of records of
// tenants, sessions and leases. docs/ledger.md describes them.
//
// append() only fills a buffer. flush() hands the buffer to the Linux kernel in one write, so that the
// records survive a crash of the arbiter. A background thread calls fdatasync, so that the records also
// survive a crash of the host. If the disk is full, records wait in the buffer for the next flush(). A file
// that has grown too large becomes ledger.1, and a new file begins with a checkpoint. Not thread-safe: all
// methods must be called from one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arbiter/ledger/files.h"
#include "arbiter/ledger/history.h"
#include "arbiter/ledger/reader.h"
#include "arbiter/ledger/records.h"
#include "protocol/channel.h"
#include "protocol/status.h"

namespace sharedgpu {

class Ledger {
 public:
  struct Limits {
    std::uint64_t size = 64u << 20;   // a file with at least this number of bytes is rotated
    unsigned files = 16;              // at least two
    std::size_t waiting = 64u << 20;  // greatest number of buffered bytes; records beyond it are lost
  };
  using Replay = LedgerReplay;

  // `starts` returns the start time of a process. Checkpoints omit placements whose processes have ended.
  Ledger(Limits limits, StartTimeOf starts, std::unique_ptr<FileCalls> calls = std::make_unique<FileCalls>())
      : limits_(limits), starts_(starts), calls_(std::move(calls)) {}
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Opens or creates the file. Calls `replayed` with each record since the beginning of the last whole
  // checkpoint, oldest first. Reads older files as far as necessary to find this checkpoint; if there is no
  // checkpoint, passes all records. If an older file is unreadable, adds a message for the administrator and
  // continues.
  Status open(const std::string& path, const std::function<void(const Record&)>& replayed, Replay& replay);
  void append(const Record& record);
  // Writes the buffered records. After a failure, records that were not written wait for the next call.
  Status flush();
  std::size_t unwritten() const { return pending_.size(); }
  // Sets the size and the number of files. A file that has at least the new size is rotated by the next
  // flush() that writes records. `limits.waiting` has no effect.
  void set_limits(const Limits& limits);
  // Returns the messages for the administrator since the last call, except the errors that open() and flush()
  // return.
  std::vector<std::string> take_complaints() { return std::exchange(complaints_, {}); }

 private:
  using File = std::shared_ptr<UniqueFd>;  // shared with the syncing thread

  Status write_all(int file, const std::string& path, std::string& text);
  void rotate();
  Status replace(const std::string& new_path, const File& file, std::string text);
  Status make_room();
  void sync_loop();

  Limits limits_;
  const StartTimeOf starts_;
  const std::unique_ptr<FileCalls> calls_;
  std::string path_;
  History past_;  // the state after all records so far
  std::string pending_;
  std::uint64_t lost_ = 0;
  bool owes_checkpoint_ = false;  // true if records were lost since the last checkpoint
  std::uint64_t size_ = 0;
  std::uint64_t rotate_at_ = 0;
  std::vector<std::string> complaints_;

  std::thread syncer_;
  std::mutex mutex_;
  std::condition_variable wake_;
  File file_;      // changed only by the owner's thread, with mutex_ held
  File old_file_;  // the file that has become ledger.1; it must be synced before the new file
  bool dirty_ = false;
  bool stop_ = false;
};

}  // namespace sharedgpu
