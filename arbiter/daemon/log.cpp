// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/log.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace sharedgpu::log {
namespace {

spdlog::logger& logger() {
  static const auto kLogger = [] {
    auto made =
        std::make_shared<spdlog::logger>("sharedgpud", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e sharedgpud: %l: %v");
    made->flush_on(spdlog::level::trace);
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

}  // namespace

Status open(const std::string& level, const std::string& file) {
  logger().set_level(spdlog::level::from_str(level));
  try {
    if (file.empty()) {
      // Standard error is /dev/null if slurmd or another daemon started the arbiter.
      if (stderr_is_null())
        logger().sinks() = {
            std::make_shared<spdlog::sinks::syslog_sink_mt>("sharedgpud", 0, LOG_DAEMON, false)};
      return {};
    }
    spdlog::file_event_handlers handlers;
    handlers.after_open = [](const spdlog::filename_t&, std::FILE* stream) {
      fcntl(fileno(stream), F_SETFD, FD_CLOEXEC);
    };
    logger().sinks() = {std::make_shared<spdlog::sinks::basic_file_sink_mt>(file, false, handlers)};
    logger().set_pattern("%Y-%m-%dT%H:%M:%S.%e sharedgpud: %l: %v");
    return {};
  } catch (const spdlog::spdlog_ex& failure) {
    return {EIO, file + ": " + failure.what()};
  }
}

void error(std::string_view text) { logger().error(text); }
void warning(std::string_view text) { logger().warn(text); }
void info(std::string_view text) { logger().info(text); }
void debug(std::string_view text) { logger().debug(text); }

}  // namespace sharedgpu::log
