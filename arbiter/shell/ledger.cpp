// SPDX-License-Identifier: Apache-2.0
#include "arbiter/shell/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace sharedgpu {
namespace {

constexpr std::size_t kMostPending = 64u << 20;
// How much of the ledger a power cut may cost. Lease times of a host that lost power are those of dead jobs.
constexpr std::chrono::seconds kSyncEvery{1};

std::string read_all(int fd, int& error) {
  std::string text;
  char buffer[1 << 16];
  ssize_t size;
  while ((size = read(fd, buffer, sizeof buffer)) != 0) {
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      error = errno;
      break;
    }
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace

Ledger::Replay replay_ledger(std::string_view text, const std::function<void(const Record&)>& replayed) {
  Ledger::Replay replay;
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    bool torn = end == text.npos;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(torn ? text.size() : end + 1);
    if (line.empty()) continue;
    auto record = torn ? std::nullopt : parse_record(line);
    if (record) {
      ++replay.records;
      replayed(*record);
    } else {
      ++replay.damaged;
    }
  }
  return replay;
}

Ledger::~Ledger() {
  flush();
  if (!syncer_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  syncer_.join();
}

std::string Ledger::open(const std::string& path, const std::function<void(const Record&)>& replayed,
                         Replay& replay) {
  file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) return path + ": " + std::strerror(errno);
  int error = 0;
  std::string text = read_all(file_.get(), error);
  if (error != 0) return path + ": " + std::strerror(error);
  replay = replay_ledger(text, replayed);
  // A torn line is left as it is, and ended, so that the next record starts a line of its own.
  if (!text.empty() && text.back() != '\n') pending_.push_back('\n');
  syncer_ = std::thread([this] { sync_loop(); });
  return {};
}

void Ledger::append(const Record& record) {
  if (pending_.size() >= kMostPending) {
    ++lost_;
    return;
  }
  pending_ += format_record(record);
}

int Ledger::flush() {
  while (!pending_.empty() && file_) {
    ssize_t size = write(file_.get(), pending_.data(), pending_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size < 0 ? errno : ENOSPC;
    pending_.erase(0, static_cast<std::size_t>(size));
    std::lock_guard lock(mutex_);
    if (!dirty_) wake_.notify_one();
    dirty_ = true;
  }
  return 0;
}

void Ledger::sync_loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    wake_.wait(lock, [this] { return dirty_ || stop_; });
    dirty_ = false;
    lock.unlock();
    fdatasync(file_.get());
    lock.lock();
    wake_.wait_for(lock, kSyncEvery, [this] { return stop_; });
  }
}

}  // namespace sharedgpu
