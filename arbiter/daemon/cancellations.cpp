// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/cancellations.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include "arbiter/daemon/log.h"

namespace sharedgpu {

void Cancellations::end(const std::shared_ptr<Client>& client, const std::string& reason) {
  const ProcessName process = client->peer().process();
  const auto [entry, added] =
      entries_.try_emplace(process, Entry{.client = client, .timer = asio::steady_timer(loop_)});
  if (!added) return;
  Cancelled cancelled;
  reason.copy(cancelled.reason, sizeof cancelled.reason - 1);
  client->send(cancelled);
  signal_after(pauses_.before_term, process, SIGTERM);
}

void Cancellations::signal_after(Nanoseconds pause, const ProcessName& process, int number) {
  asio::steady_timer& timer = entries_.at(process).timer;
  timer.expires_after(pause);
  timer.async_wait([this, process, number](const asio::error_code& error) {
    if (!error) signal(process, number);
  });
}

void Cancellations::signal(const ProcessName& process, int number) {
  const Client& client = *entries_.at(process).client;
  const int error = system_.send_signal(client.peer().pidfd.get(), number);
  const std::string who = client.label() + ", uid " + std::to_string(client.peer().uid);
  if (error == 0)
    log::warning(who + ": was sent " + (number == SIGTERM ? "SIGTERM" : "SIGKILL"));
  else if (error != ESRCH)
    log::error(who + ": cannot be sent a signal: " + std::strerror(error));
  if (error == 0 && number == SIGTERM) return signal_after(pauses_.before_kill, process, SIGKILL);
  entries_.erase(process);
}

}  // namespace sharedgpu
