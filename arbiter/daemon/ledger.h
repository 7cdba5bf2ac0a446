// SPDX-License-Identifier: Apache-2.0
// The ledger: StateDir/ledger and the older files ledger.1, ledger.2..., an append-only record of who came
// and who held which lease. See docs/ledger.md.
//
// append() only fills memory; flush() hands it to the kernel in one write, so that it survives the arbiter;
// a thread of its own makes it survive the host with fdatasync. A full disk costs nothing but memory: what
// cannot be written waits for the next flush(). A file that has grown too large becomes ledger.1, and a new
// one goes on from a checkpoint. append() and flush() are for one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "arbiter/daemon/history.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/records.h"
#include "protocol/channel.h"

namespace sharedgpu {

// The calls that change files, so that tests can make each of them fail. They return -1 and set errno.
struct FileCalls {
  virtual ~FileCalls() = default;
  virtual int open(const std::string& path, int flags);
  virtual ssize_t write(int file, const void* bytes, std::size_t size);
  virtual int link(const std::string& from, const std::string& to);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
};

class Ledger {
 public:
  struct Limits {
    std::uint64_t size = 64u << 20;   // of a file, in bytes
    unsigned files = 16;              // at least two
    std::size_t waiting = 64u << 20;  // bytes that cannot be written; beyond them records are lost
  };
  struct Replay {
    unsigned records = 0;
    unsigned damaged = 0;  // lines passed over; a torn last line counts
  };

  Ledger() : Ledger(Limits{}) {}
  explicit Ledger(Limits limits, std::unique_ptr<FileCalls> calls = std::make_unique<FileCalls>(),
                  std::uint64_t (*starts)(pid_t) = start_time_of)
      : limits_(limits), calls_(std::move(calls)), starts_(starts) {}
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Opens or makes the file and hands every good record to `replayed` that is needed to know what was, oldest
  // first: those of the newest file, and of older ones as far as it does not begin with a whole checkpoint.
  // Returns an empty string or what is wrong.
  std::string open(const std::string& path, const std::function<void(const Record&)>& replayed,
                   Replay& replay);
  void append(const Record& record);
  // Returns 0, or the errno value with which writing failed; what was not written is kept.
  int flush();
  std::size_t unwritten() const { return pending_.size(); }
  // What else an administrator should hear of, since the last call.
  std::vector<std::string> take_complaints() { return std::exchange(complaints_, {}); }

 private:
  using File = std::shared_ptr<UniqueFd>;  // shared with the thread that syncs it

  int write_all(int file, std::string& text);
  void rotate();
  std::string make_room();
  std::string name(unsigned number) const { return path_ + "." + std::to_string(number); }
  void sync_loop();

  Limits limits_;
  std::unique_ptr<FileCalls> calls_;
  std::uint64_t (*starts_)(pid_t);
  std::string path_;
  History past_;  // what the records come to
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

// Feeds the lines of a ledger's text to `replayed`; what open() does, without the file.
Ledger::Replay replay_ledger(std::string_view text, const std::function<void(const Record&)>& replayed);

// The texts of a ledger's files, oldest first; also while an arbiter rotates them no record is missing or
// told twice. With `enough` only those that open() reads. Returns an empty string or what is wrong.
std::string read_ledger(const std::string& path, bool enough, std::vector<std::string>& texts);

}  // namespace sharedgpu
