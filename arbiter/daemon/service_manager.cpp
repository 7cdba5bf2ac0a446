// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/service_manager.h"

#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace sharedgpu {
namespace {

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

void ServiceManager::keep_telling(asio::io_context& loop) const {
  if (interval_.count() > 0) beat(std::make_shared<asio::steady_timer>(loop));
}

void ServiceManager::beat(const std::shared_ptr<asio::steady_timer>& timer) const {
  tell("WATCHDOG=1");
  timer->expires_after(interval_ / 2);
  timer->async_wait([this, timer](const asio::error_code& failure) {
    if (!failure) beat(timer);
  });
}

// Drops the report if the service manager does not read its socket.
void ServiceManager::tell(const char* state) const {
  if (socket_)
    sendto(socket_.get(), state, std::strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address_), address_size_);
}

}  // namespace sharedgpu
