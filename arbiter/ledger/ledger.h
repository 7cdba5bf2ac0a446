// SPDX-License-Identifier: Apache-2.0
// The ledger: StateDir/ledger and the older files ledger.1, ledger.2..., append-only files of records of
// tenants, sessions and leases. docs/ledger.md describes them.
//
// append() only fills memory; flush() hands it to the kernel in one write, so that it survives the arbiter;
// a thread of its own makes it survive the host with fdatasync. A full disk costs nothing but memory: what
// cannot be written waits for the next flush(). A file that has grown too large becomes ledger.1, and a new
// one goes on from a checkpoint. All methods are for one thread.
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
    std::uint64_t size = 64u << 20;   // of a file, in bytes
    unsigned files = 16;              // at least two
    std::size_t waiting = 64u << 20;  // bytes that cannot be written; beyond them records are lost
  };
  using Replay = LedgerReplay;

  // A checkpoint leaves out processes that `starts` does not find.
  Ledger(Limits limits, StartTimeOf starts, std::unique_ptr<FileCalls> calls = std::make_unique<FileCalls>())
      : limits_(limits), starts_(starts), calls_(std::move(calls)) {}
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Opens or makes the file and hands the records that are needed to know the state to `replayed`, oldest
  // first: those of the newest file, and of older ones as far as it does not begin with a whole checkpoint.
  // An older file that cannot be read is no failure but a complaint.
  Status open(const std::string& path, const std::function<void(const Record&)>& replayed, Replay& replay);
  void append(const Record& record);
  // Writes the records that wait. On a failure the rest waits for the next call.
  Status flush();
  std::size_t unwritten() const { return pending_.size(); }
  // Further messages for the administrator, since the last call.
  std::vector<std::string> take_complaints() { return std::exchange(complaints_, {}); }

 private:
  using File = std::shared_ptr<UniqueFd>;  // shared with the thread that syncs it

  Status write_all(int file, const std::string& path, std::string& text);
  void rotate();
  Status replace(const std::string& new_path, const File& file, std::string text);
  Status make_room();
  void sync_loop();

  const Limits limits_;
  const StartTimeOf starts_;
  const std::unique_ptr<FileCalls> calls_;
  std::string path_;
  History past_;  // of all records so far
  std::string pending_;
  std::uint64_t lost_ = 0;
  bool owes_checkpoint_ = false;  // records were lost since the last one
  std::uint64_t size_ = 0;
  std::uint64_t rotate_at_ = 0;
  std::vector<std::string> complaints_;

  std::thread syncer_;
  std::mutex mutex_;
  std::condition_variable wake_;
  File file_;      // changed by the one thread, with the mutex held
  File old_file_;  // became ledger.1; to be synced before the new one
  bool dirty_ = false;
  bool stop_ = false;
};

}  // namespace sharedgpu
