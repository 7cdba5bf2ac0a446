// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/summary.h"

#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "arbiter/cli/ask_status.h"
#include "arbiter/cli/commands.h"
#include "arbiter/cli/stand_in.h"
#include "config/job_summary.h"

namespace sharedgpu::cli {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kMostWait{1};
constexpr int kLook = 20;  // milliseconds between two checks of whether the child has ended

Nanoseconds time_of(const Json& tenant, const char* field) { return from_seconds(tenant.value(field, 0.0)); }

Bytes size_of(const Json& tenant, const char* field) { return {tenant.value(field, std::uint64_t{0})}; }

// The status does not contain `copied` and `fastest`, which describe the speed of copies.
Exchanges exchanges_of(const Json& json) {
  return {.moved = {.evicted = size_of(json, "evicted_bytes"), .restored = size_of(json, "restored_bytes")},
          .moving = time_of(json, "moving_seconds"),
          .waited = time_of(json, "waited_seconds"),
          .copied = {},
          .fastest = {},
          .slowed = time_of(json, "slowed_seconds")};
}

// Writes nothing if the write would block.
void write_summary(const Json& tenant) {
  Json exchanges = tenant.value("exchanges", Json());
  if (!exchanges.is_object()) exchanges = Json::object();
  const std::string line = "sharedgpu: " +
                           format_summary_line({.job = tenant.value("name", ""),
                                                .place = {},
                                                .lease = time_of(tenant, "lease_seconds"),
                                                .waited = time_of(tenant, "waited_seconds"),
                                                .moved = {.evicted = size_of(tenant, "evicted_bytes"),
                                                          .restored = size_of(tenant, "restored_bytes")},
                                                .exchanges = exchanges_of(exchanges),
                                                .at_best = time_of(exchanges, "best_seconds")}) +
                           "\n";
  pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

int run_with_summary(const std::function<int()>& execute, const std::string& socket, TenantId id) {
  StandIn child;
  if (const int error = child.start(execute)) {
    complain(std::string("cannot create a process: ") + std::strerror(error));
    return 1;
  }
  while (!child.child_has_ended()) poll(nullptr, 0, kLook);
  std::string text;
  if (ask_status(socket, kMostWait, text).empty()) {
    const Json status = Json::parse(text, nullptr, false);
    const Json tenants = status.is_object() ? status.value("tenants", Json::array()) : Json::array();
    for (const Json& tenant : tenants)
      if (tenant.value("id", std::uint64_t{0}) == id.value) write_summary(tenant);
  }
  return child.end();
}

}  // namespace sharedgpu::cli
