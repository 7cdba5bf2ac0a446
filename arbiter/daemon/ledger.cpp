// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/ledger.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "arbiter/daemon/read_all.h"

namespace sharedgpu {
namespace {

// How much of the ledger a power cut may cost. Lease times of a host that lost power are those of dead jobs.
constexpr std::chrono::seconds kSyncEvery{1};

std::string error_of(const std::string& path) { return path + ": " + std::strerror(errno); }

// The numbers of the older files that there are, the newest first.
std::set<unsigned> older_files(const std::string& path) {
  std::set<unsigned> numbers;
  const std::filesystem::path file(path);
  const std::string prefix = file.filename().string() + ".";
  std::error_code error;
  std::filesystem::directory_iterator entry(file.parent_path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    unsigned number = 0;
    const char* end = name.data() + name.size();
    const auto [rest, wrong] = std::from_chars(name.data() + prefix.size(), end, number);
    // Only names that are given here: others are somebody's copies.
    const bool ours = wrong == std::errc{} && rest == end && name[prefix.size()] != '0' && number < 1000;
    if (ours) numbers.insert(number);
  }
  return numbers;
}

// Whether nothing older is needed to know what was.
bool begins_with_checkpoint(std::string_view text) {
  for (bool first = true;; first = false) {
    const std::size_t end = text.find('\n');
    const auto record = end == text.npos ? std::nullopt : parse_record(text.substr(0, end));
    if (!record || (first && !std::holds_alternative<CheckpointRecord>(record->what))) return false;
    if (std::holds_alternative<CompleteRecord>(record->what)) return true;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

int FileCalls::open(const std::string& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}
ssize_t FileCalls::write(int file, const void* bytes, std::size_t size) { return ::write(file, bytes, size); }
int FileCalls::link(const std::string& from, const std::string& to) {
  return ::link(from.c_str(), to.c_str());
}
int FileCalls::rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str());
}
int FileCalls::unlink(const std::string& path) { return ::unlink(path.c_str()); }

Ledger::Replay replay_ledger(std::string_view text, const std::function<void(const Record&)>& replayed) {
  Ledger::Replay replay;
  Nanoseconds last{};
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    bool torn = end == text.npos;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(torn ? text.size() : end + 1);
    if (line.empty()) continue;
    auto record = torn ? std::nullopt : parse_record(line);
    if (record) {
      ++replay.records;
      last = record->at;
      replayed(*record);
    } else {
      ++replay.damaged;
      replayed({.at = last, .what = LostRecord{}});  // it may have been a lease's end
    }
  }
  return replay;
}

// From the newest to the oldest, as files move to higher numbers: so one that moves meanwhile is met twice at
// most, and then known by its inode.
std::string read_ledger(const std::string& path, bool enough, std::vector<std::string>& texts) {
  std::set<std::pair<dev_t, ino_t>> met;
  std::string trouble;
  std::string name = path;
  for (unsigned number = 0;;) {
    const UniqueFd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat status = {};
    int error = file && fstat(file.get(), &status) == 0 ? 0 : errno;
    if (error == 0 && met.insert({status.st_dev, status.st_ino}).second) {
      std::string text = read_all(file.get(), error);
      if (error == 0) texts.push_back(std::move(text));
    }
    if (error != 0 && (error != ENOENT || number == 0)) {
      trouble = name + ": " + std::strerror(error);
      if (number == 0) return trouble;
    }
    if (enough && !texts.empty() && begins_with_checkpoint(texts.back())) break;
    const std::set<unsigned> older = older_files(path);  // anew: they move up meanwhile
    const auto next = older.upper_bound(number);
    if (next == older.end()) break;
    number = *next;
    name = path + "." + std::to_string(number);
  }
  std::reverse(texts.begin(), texts.end());
  return trouble;
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
  path_ = path;
  file_ = std::make_shared<UniqueFd>(calls_->open(path, O_RDWR | O_CREAT | O_APPEND));
  if (!*file_) return error_of(path);
  std::vector<std::string> texts;
  if (std::string error = read_ledger(path, true, texts); !error.empty()) {
    if (texts.empty()) return error;
    complaints_.push_back(error + "; what is in it is not known here");
  }
  replay = {};
  for (const std::string& text : texts) {
    const Replay part = replay_ledger(text, [&](const Record& record) {
      past_.add(record);
      replayed(record);
    });
    replay.records += part.records;
    replay.damaged += part.damaged;
  }
  // A torn line is left as it is, and ended, so that the next record starts a line of its own.
  const std::string& newest = texts.back();
  if (!newest.empty() && newest.back() != '\n') pending_.push_back('\n');
  size_ = newest.size();
  rotate_at_ = limits_.size;
  syncer_ = std::thread([this] { sync_loop(); });
  return {};
}

void Ledger::append(const Record& record) {
  past_.add(record);
  if (pending_.size() >= limits_.waiting) {
    if (lost_++ == 0)
      complaints_.push_back("records are lost from now on: " + std::to_string(limits_.waiting >> 20) +
                            " MiB wait to be written");
    return;
  }
  if (lost_ > 0) {
    complaints_.push_back(std::to_string(lost_) +
                          " records were lost, as they could not be written for long");
    pending_ += format_record({.at = record.at, .what = LostRecord{.records = lost_}});
    lost_ = 0;
    rotate_at_ = 0;  // the next checkpoint knows what they told
    owes_checkpoint_ = true;
  }
  pending_ += format_record(record);
}

// Returns 0 or an errno value; what was written is taken from `text`.
int Ledger::write_all(int file, std::string& text) {
  while (!text.empty()) {
    const ssize_t size = calls_->write(file, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size < 0 ? errno : ENOSPC;
    text.erase(0, static_cast<std::size_t>(size));
  }
  return 0;
}

int Ledger::flush() {
  if (pending_.empty() || !file_ || !*file_) return 0;
  const std::size_t before = pending_.size();
  const int error = write_all(file_->get(), pending_);
  size_ += before - pending_.size();
  if (pending_.size() < before) {
    std::lock_guard lock(mutex_);
    if (!dirty_) wake_.notify_one();
    dirty_ = true;
  }
  if (error == 0 && size_ >= rotate_at_) rotate();
  return error;
}

// Every step leaves files from which all is read: the old file keeps its name until the new one, whole, takes
// it.
void Ledger::rotate() {
  std::string text;
  for (const Record& record : past_.checkpoint(starts_)) text += format_record(record);
  const std::uint64_t size = text.size();
  const std::string new_path = path_ + ".new";
  std::string what;
  calls_->unlink(new_path);  // of an arbiter that died here
  auto file = std::make_shared<UniqueFd>(calls_->open(new_path, O_RDWR | O_CREAT | O_EXCL | O_APPEND));
  if (!*file)
    what = error_of(new_path);
  else if (const int error = write_all(file->get(), text))
    what = new_path + ": " + std::strerror(error);
  else if (what = make_room(); what.empty() && calls_->rename(new_path, path_) != 0) {
    what = error_of(path_);
    calls_->unlink(name(1));
  }
  if (!what.empty()) {
    calls_->unlink(new_path);
    rotate_at_ = size_ + limits_.size / (owes_checkpoint_ ? 1024 : 8);
    complaints_.push_back(what + "; the ledger's file is not replaced by a new one yet, and grows");
    return;
  }
  std::lock_guard lock(mutex_);
  owes_checkpoint_ = false;
  old_file_ = std::exchange(file_, file);
  dirty_ = true;
  wake_.notify_one();
  size_ = size;
  // A checkpoint that is large itself is not to be written all the time.
  rotate_at_ = std::max(limits_.size, 2 * size);
}

// Moves older files up by one as far as needed, and gives the current one the name ledger.1 as well. Returns
// an empty string or what is wrong.
std::string Ledger::make_room() {
  std::set<unsigned> numbers = older_files(path_);
  struct stat current = {};
  struct stat first = {};
  if (stat(path_.c_str(), &current) == 0 && stat(name(1).c_str(), &first) == 0 &&
      current.st_ino == first.st_ino) {  // of an arbiter that died here
    if (calls_->unlink(name(1)) != 0) return error_of(name(1));
    numbers.erase(1);
  }
  const unsigned last = limits_.files - 1;
  unsigned free = 1;
  while (free < last && numbers.count(free) > 0) ++free;
  // The oldest goes, and those that a lower limit leaves over.
  for (auto it = numbers.lower_bound(free); it != numbers.end(); ++it)
    if ((*it == free || *it > last) && calls_->unlink(name(*it)) != 0) return error_of(name(*it));
  for (; free > 1; --free)
    if (calls_->rename(name(free - 1), name(free)) != 0) return error_of(name(free));
  return calls_->link(path_, name(1)) == 0 ? std::string() : error_of(name(1));
}

void Ledger::sync_loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    wake_.wait(lock, [this] { return dirty_ || stop_; });
    dirty_ = false;
    const File file = file_;
    const File old_file = std::exchange(old_file_, nullptr);
    lock.unlock();
    if (old_file) fdatasync(old_file->get());
    fdatasync(file->get());
    if (old_file) {
      const std::string folder = std::filesystem::path(path_).parent_path().string();
      if (const UniqueFd names(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); names)
        fsync(names.get());
    }
    lock.lock();
    wake_.wait_for(lock, kSyncEvery, [this] { return stop_; });
  }
}

}  // namespace sharedgpu
