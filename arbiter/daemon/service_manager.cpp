// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/service_manager.h"

#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

namespace sharedgpu {
namespace {

constexpr std::chrono::microseconds kSummaryEvery = std::chrono::seconds(10);

std::string take_out(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

// Returns the number in `text`; 0 if the text is not a number.
long number_of(std::string_view text) {
  long number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

ServiceManager::ServiceManager() {
  const std::string address = take_out("NOTIFY_SOCKET");
  const long interval = number_of(take_out("WATCHDOG_USEC"));
  const std::string pid = take_out("WATCHDOG_PID");
  if (make_address(address.c_str(), address_) != 0) return;
  if (address_.sun_path[0] == '@') address_.sun_path[0] = '\0';  // an abstract address
  address_size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  socket_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (interval > 0 && (pid.empty() || number_of(pid) == getpid()))
    interval_ = std::chrono::microseconds(interval);
}

// MONOTONIC_USEC belongs to the protocol of Type=notify-reload (systemd 253); other managers ignore it.
void ServiceManager::tell_reloading() const {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto microseconds = now.tv_sec * 1'000'000ll + now.tv_nsec / 1000;
  tell(("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds)).c_str());
}

void ServiceManager::keep_telling(asio::io_context& loop, std::function<std::string()> summary) const {
  if (!socket_ || (interval_.count() == 0 && !summary)) return;
  beat(std::make_shared<Beat>(
      Beat{.timer = asio::steady_timer(loop), .summary = std::move(summary), .told = {}}));
}

void ServiceManager::beat(const std::shared_ptr<Beat>& its) const {
  const bool watched = interval_.count() > 0;
  if (watched) tell("WATCHDOG=1");
  if (its->summary)
    if (std::string now_so = its->summary(); now_so != its->told) {
      tell(("STATUS=" + now_so).c_str());
      its->told = std::move(now_so);
    }
  its->timer.expires_after(watched ? interval_ / 2 : kSummaryEvery);
  its->timer.async_wait([this, its](const asio::error_code& failure) {
    if (!failure) beat(its);
  });
}

// Drops the report if the service manager does not read its socket.
void ServiceManager::tell(const char* state) const {
  if (socket_)
    sendto(socket_.get(), state, std::strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address_), address_size_);
}

}  // namespace sharedgpu
