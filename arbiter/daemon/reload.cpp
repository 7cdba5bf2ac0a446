// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/reload.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "arbiter/daemon/log.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

std::string text_of(const Reload::Outcome& outcome) {
  nlohmann::json json;
  json["error"] = outcome.error.empty() ? nlohmann::json(nullptr) : nlohmann::json(outcome.error);
  json["changed"] = outcome.keys.live;
  json["need_restart"] = outcome.keys.restart;
  json["overridden"] = outcome.overridden;
  json["capacity_waits"] = outcome.waits;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Returns the given keys that administrators have set for the whole node with `sharedgpu set`.
std::vector<std::string> overridden(const Overrides& overrides, const std::vector<std::string>& keys) {
  std::vector<std::string> some;
  for (const std::string& key : keys)
    if (std::any_of(overrides.all().begin(), overrides.all().end(),
                    [&](const Overrides::Entry& each) { return each.section.empty() && each.key == key; }))
      some.push_back(key);
  return some;
}

void log_outcome(const Reload::Outcome& outcome, const std::string& who) {
  if (!outcome.error.empty()) return log::error(who + ": the settings stay as they are: " + outcome.error);
  const auto& [live, restart] = outcome.keys;
  log::info(who + ": the settings were read again: " +
            (live.empty() ? "no live key has changed" : "changed: " + join(live, ' ')));
  if (!outcome.overridden.empty())
    log::info("values that sharedgpu set has given stay in force: " + join(outcome.overridden, ' '));
  if (!restart.empty()) log::warning("keys that need a restart of the arbiter: " + join(restart, ' '));
  if (outcome.waits) log::info("a GPU gets its smaller capacity when no program uses it");
}

}  // namespace

Reload::Outcome Reload::reload(const std::string& who) {
  Outcome outcome;
  if (source_.begins) source_.begins();
  Settings file;
  outcome.error = source_.read ? source_.read(file) : "this arbiter has no file of settings";
  if (outcome.error.empty())
    if (const Status opened = source_.open_log(file); !opened.ok())
      outcome.error = "LogFile " + opened.message();
  if (outcome.error.empty()) {
    outcome.keys = its_.administration.reload(file);
    outcome.overridden = overridden(its_.administration.overrides(), outcome.keys.live);
    outcome.waits = its_.administration.capacity_is_due();
    its_.journal.set_limits(file);
    if (its_.administration.settings().tenants == TenantKind::jobs) its_.coordination.start();
  }
  log_outcome(outcome, who);
  if (source_.ends) source_.ends();
  return outcome;
}

void Reload::answer(Client& client, const ReloadSettings& /*request*/) {
  const Peer& peer = client.peer();
  const std::string text =
      text_of(reload("pid " + std::to_string(peer.pid) + ", uid " + std::to_string(peer.uid)));
  if (const Status made = files_.add(text); !made.ok()) return client.connection().refuse(made.message());
  client.send(ReloadReply{.done = 1, .size = text.size()}, files_.newest()->to_read.get());
}

}  // namespace sharedgpu
