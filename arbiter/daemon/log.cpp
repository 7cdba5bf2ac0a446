// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/log.h"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "protocol/channel.h"
#include "protocol/write_all.h"

namespace sharedgpu::log {
namespace {

enum class Place : std::uint8_t { standard_error, journal, syslog, file };

// The priority of a line, by syslog(3); the journal uses the same numbers.
int priority_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
    case spdlog::level::err:
      return LOG_ERR;
    case spdlog::level::warn:
      return LOG_WARNING;
    case spdlog::level::info:
      return LOG_INFO;
    default:
      return LOG_DEBUG;
  }
}

UniqueFd open_file(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640));
}

// Returns true if `path` still names the open file.
bool names(const std::string& path, int file) {
  struct stat now = {};
  struct stat ours = {};
  return stat(path.c_str(), &now) == 0 && fstat(file, &ours) == 0 && now.st_dev == ours.st_dev &&
         now.st_ino == ours.st_ino;
}

// Writes each line to standard error, the journal, syslog or a file. move() changes the place.
class Output : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void move(Place place, std::string path = {}, UniqueFd file = {}) {
    const std::lock_guard lock(mutex_);
    place_ = place;
    path_ = std::move(path);
    file_ = std::move(file);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (place_ == Place::syslog) {
      const std::string text(message.payload.data(), message.payload.size());
      return ::syslog(LOG_DAEMON | priority_of(message.level), "%s", text.c_str());
    }
    std::string line;
    if (place_ == Place::journal) {
      line = "<" + std::to_string(priority_of(message.level)) + ">";
      line.append(message.payload.data(), message.payload.size());
      line += '\n';
    } else {
      spdlog::memory_buf_t formatted;
      formatter_->format(message, formatted);
      line.assign(formatted.data(), formatted.size());
    }
    if (place_ == Place::file) reopen_if_moved();
    static_cast<void>(
        write_all(place_ == Place::file ? file_.get() : STDERR_FILENO, line.data(), line.size()));
  }
  void flush_() override {}

 private:
  // If logrotate has moved the file away, the next line begins a new file. If that fails, the lines continue
  // in the moved file.
  void reopen_if_moved() {
    if (names(path_, file_.get())) return;
    if (UniqueFd file = open_file(path_)) file_ = std::move(file);
  }

  Place place_ = Place::standard_error;
  std::string path_;
  UniqueFd file_;
};

const std::shared_ptr<Output>& output() {
  static const auto kOutput = std::make_shared<Output>();
  return kOutput;
}

spdlog::logger& logger() {
  static const auto kLogger = [] {
    auto made = std::make_shared<spdlog::logger>("sharedgpud", output());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e sharedgpud: %l: %v");
    return made;
  }();
  return *kLogger;
}

bool stderr_is_null() {
  struct stat error = {};
  struct stat null = {};
  return fstat(STDERR_FILENO, &error) != 0 ||
         (stat("/dev/null", &null) == 0 && error.st_rdev == null.st_rdev);
}

// JOURNAL_STREAM has the device and inode numbers of the stream to the journal, see systemd.exec(5). A
// process may inherit the variable and have another standard error, so the numbers are compared.
bool stderr_is_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat error = {};
  return stream != nullptr && fstat(STDERR_FILENO, &error) == 0 &&
         stream == std::to_string(error.st_dev) + ":" + std::to_string(error.st_ino);
}

}  // namespace

Status open(const std::string& level, const std::string& file) {
  if (file.empty()) {
    // Standard error is /dev/null if slurmd or another daemon started the arbiter.
    const bool null = stderr_is_null();
    if (null) openlog("sharedgpud", 0, LOG_DAEMON);
    output()->move(null ? Place::syslog : stderr_is_journal() ? Place::journal : Place::standard_error);
  } else {
    UniqueFd opened = open_file(file);
    if (!opened) return Status::of_errno(errno, file);
    output()->move(Place::file, file, std::move(opened));
  }
  logger().set_level(spdlog::level::from_str(level));
  return {};
}

void error(std::string_view text) { logger().error(text); }
void warning(std::string_view text) { logger().warn(text); }
void info(std::string_view text) { logger().info(text); }
void debug(std::string_view text) { logger().debug(text); }

}  // namespace sharedgpu::log
