// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/ledger.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>

namespace sharedgpu {
namespace {

// A power failure loses about the records of the last second. The jobs that these records describe end with
// the host anyway.
constexpr std::chrono::seconds kSyncEvery{1};

}  // namespace

Ledger::~Ledger() {
  (void)flush();  // ignores an error, since the destructor cannot report it
  if (!syncer_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  syncer_.join();
}

Status Ledger::open(const std::string& path, const std::function<void(const Record&)>& replayed,
                    Replay& replay) {
  path_ = path;
  file_ = std::make_shared<UniqueFd>(calls_->open(path, O_RDWR | O_CREAT | O_APPEND));
  if (!*file_) return Status::of_errno(errno, path);
  std::vector<std::string> texts;
  if (const Status read = read_ledger(path, Extent::since_checkpoint, texts, *calls_); !read.ok()) {
    if (texts.empty()) return read;
    complaints_.push_back(read.message() + "; its records are missing here");
  }
  replay = {};
  for (const std::string& text : texts)
    replay += replay_ledger(text, [&](const Record& record) {
      past_.add(record);
      replayed(record);
    });
  // Ends an incomplete last line, so that the next record starts on its own line.
  const std::string& newest = texts.back();
  if (!newest.empty() && newest.back() != '\n') pending_.push_back('\n');
  size_ = newest.size();
  rotate_at_ = limits_.size;
  syncer_ = std::thread([this] { sync_loop(); });
  return {};
}

void Ledger::set_limits(const Limits& limits) {
  limits_.size = limits.size;
  limits_.files = limits.files;
  rotate_at_ = limits.size;
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
                          " records were lost, because they could not be written for a long time");
    pending_ += format_record({.at = record.at, .what = LostRecord{.records = lost_}});
    lost_ = 0;
    rotate_at_ = 0;  // makes flush() write a checkpoint, which has the state that the lost records described
    owes_checkpoint_ = true;
  }
  pending_ += format_record(record);
}

// Removes the written part from `text`.
Status Ledger::write_all(int file, const std::string& path, std::string& text) {
  while (!text.empty()) {
    const ssize_t size = calls_->write(file, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Status::of_errno(size < 0 ? errno : ENOSPC, path);
    text.erase(0, static_cast<std::size_t>(size));
  }
  return {};
}

Status Ledger::flush() {
  if (pending_.empty() || !file_ || !*file_) return {};
  const std::size_t before = pending_.size();
  Status written = write_all(file_->get(), path_, pending_);
  size_ += before - pending_.size();
  if (pending_.size() < before) {
    std::lock_guard lock(mutex_);
    if (!dirty_) wake_.notify_one();
    dirty_ = true;
  }
  if (written.ok() && size_ >= rotate_at_) rotate();
  return written;
}

void Ledger::rotate() {
  std::string text;
  for (const Record& record : past_.checkpoint(starts_)) text += format_record(record);
  const std::uint64_t size = text.size();
  const std::string new_path = path_ + ".new";
  calls_->unlink(new_path);  // exists if an earlier arbiter died before rename()
  const auto file = std::make_shared<UniqueFd>(calls_->open(new_path, O_RDWR | O_CREAT | O_EXCL | O_APPEND));
  const Status replaced =
      *file ? replace(new_path, file, std::move(text)) : Status::of_errno(errno, new_path);
  if (!replaced.ok()) {
    calls_->unlink(new_path);
    rotate_at_ = size_ + limits_.size / (owes_checkpoint_ ? 1024 : 8);
    complaints_.push_back(replaced.message() +
                          "; no new ledger file can be started yet, and the current one grows");
    return;
  }
  std::lock_guard lock(mutex_);
  owes_checkpoint_ = false;
  old_file_ = std::exchange(file_, file);
  dirty_ = true;
  wake_.notify_one();
  size_ = size;
  // If the checkpoint is larger than half the limit, the next rotation waits until the file has doubled in
  // size.
  rotate_at_ = std::max(limits_.size, 2 * size);
}

// No step loses a record: the old file keeps its name until rename() replaces it by the new file, which is
// complete.
Status Ledger::replace(const std::string& new_path, const File& file, std::string text) {
  if (Status written = write_all(file->get(), new_path, text); !written.ok()) return written;
  if (Status room = make_room(); !room.ok()) return room;
  if (calls_->rename(new_path, path_) == 0) return {};
  Status failed = Status::of_errno(errno, path_);
  calls_->unlink(older_file(path_, 1));
  return failed;
}

// Renames ledger.1 to ledger.2 and so on, up to the first unused number, and links the current file as
// ledger.1.
Status Ledger::make_room() {
  std::set<unsigned> numbers = older_files(path_);
  const auto remove = [&](unsigned number) {
    const std::string name = older_file(path_, number);
    return calls_->unlink(name) == 0 ? Status() : Status::of_errno(errno, name);
  };
  const std::string newest = older_file(path_, 1);
  struct stat current = {};
  struct stat first = {};
  if (stat(path_.c_str(), &current) == 0 && stat(newest.c_str(), &first) == 0 &&
      current.st_ino == first.st_ino) {  // an earlier arbiter died between link() and rename()
    if (Status removed = remove(1); !removed.ok()) return removed;
    numbers.erase(1);
  }
  const unsigned last = limits_.files - 1;
  unsigned free = 1;
  while (free < last && numbers.count(free) > 0) ++free;
  // Removes the oldest file if no number is unused. Also removes files beyond limits_.files, since this limit
  // may have been lowered.
  for (auto it = numbers.lower_bound(free); it != numbers.end(); ++it) {
    if (*it != free && *it <= last) continue;
    if (Status removed = remove(*it); !removed.ok()) return removed;
  }
  for (; free > 1; --free)
    if (const std::string name = older_file(path_, free);
        calls_->rename(older_file(path_, free - 1), name) != 0)
      return Status::of_errno(errno, name);
  return calls_->link(path_, newest) == 0 ? Status() : Status::of_errno(errno, newest);
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
