// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <utility>

#include "arbiter/ledger/records.h"
#include "protocol/channel.h"

namespace sharedgpu {
namespace {

// Returns true if the text begins with a whole checkpoint, so that the state can be read without older files.
bool begins_with_checkpoint(std::string_view text) {
  for (bool first = true;; first = false) {
    const std::size_t end = text.find('\n');
    if (!first && end != text.npos && is_of_unknown_kind(text.substr(0, end))) {
      text.remove_prefix(end + 1);
      continue;
    }
    const auto record = end == text.npos ? std::nullopt : parse_record(text.substr(0, end));
    if (!record || (first && !std::holds_alternative<CheckpointRecord>(record->what))) return false;
    if (std::holds_alternative<CompleteRecord>(record->what)) return true;
    text.remove_prefix(end + 1);
  }
}

// Appends the rest of the file to `text`. If a read fails, `text` contains the part that was read before.
Status read_all(int file, const std::string& path, std::string& text, FileCalls& calls) {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t size = calls.read(file, buffer, sizeof buffer);
    if (size == 0) return {};
    if (size > 0)
      text.append(buffer, static_cast<std::size_t>(size));
    else if (errno != EINTR)
      return Status::of_errno(errno, path);
  }
}

}  // namespace

int FileCalls::open(const std::string& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}
ssize_t FileCalls::read(int file, void* bytes, std::size_t size) { return ::read(file, bytes, size); }
ssize_t FileCalls::write(int file, const void* bytes, std::size_t size) { return ::write(file, bytes, size); }
int FileCalls::link(const std::string& from, const std::string& to) {
  return ::link(from.c_str(), to.c_str());
}
int FileCalls::rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str());
}
int FileCalls::unlink(const std::string& path) { return ::unlink(path.c_str()); }

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
    // Ignores files whose names older_file() never returns: these are copies made by a person.
    const bool ours = wrong == std::errc{} && rest == end && name[prefix.size()] != '0' && number < 1000;
    if (ours) numbers.insert(number);
  }
  return numbers;
}

// Reads from the newest file to the oldest. During the reading, a rotation may rename files to higher
// numbers. Because of the order, no file is missed, but a file may be met twice. The second time, the file is
// recognized by its inode and skipped.
Status read_ledger(const std::string& path, Extent extent, std::vector<std::string>& texts,
                   FileCalls& calls) {
  std::vector<std::string> newest_first;
  std::set<std::pair<dev_t, ino_t>> met;
  Status trouble;
  std::string name = path;
  for (unsigned number = 0;;) {
    const UniqueFd file(calls.open(name, O_RDONLY));
    struct stat status = {};
    Status read;
    if (!file || fstat(file.get(), &status) != 0) {
      read = Status::of_errno(errno, name);
    } else if (met.insert({status.st_dev, status.st_ino}).second) {
      std::string text;
      read = read_all(file.get(), name, text, calls);
      if (read.ok()) newest_first.push_back(std::move(text));
    }
    if (!read.ok() && number == 0) return read;
    if (!read.ok() && read.code() != ENOENT) trouble = read;
    if (extent == Extent::since_checkpoint && !newest_first.empty() &&
        begins_with_checkpoint(newest_first.back()))
      break;
    const std::set<unsigned> older =
        older_files(path);  // listed anew, since a rotation may have renamed files
    const auto next = older.upper_bound(number);
    if (next == older.end()) break;
    number = *next;
    name = older_file(path, number);
  }
  std::move(newest_first.rbegin(), newest_first.rend(), std::back_inserter(texts));
  return trouble;
}

Status read_ledger(const std::string& path, Extent extent, std::vector<std::string>& texts) {
  FileCalls calls;
  return read_ledger(path, extent, texts, calls);
}

Status read_file(const std::string& path, std::string& text) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Status::of_errno(errno, path);
  FileCalls calls;
  return read_all(file.get(), path, text, calls);
}

}  // namespace sharedgpu
