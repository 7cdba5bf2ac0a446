// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/core_runner.h"

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/processes.h"

namespace sharedgpu {

CoreRunner::CoreRunner(asio::io_context& loop, Schedule& schedule, const System& system, Journal& journal,
                       SessionTable& sessions, const Tenants& tenants, Complaints& complaints)
    : system_(system),
      journal_(journal),
      sessions_(sessions),
      performer_(loop, schedule, system, sessions, tenants, complaints,
                 {.timer_fired = [this] { handle(TimerFired{}); },
                  .poll_process = [this](SessionId id) { poll_process(id); },
                  .tell_gang =
                      [this](const TellGang& told) {
                        if (tell_gang_) tell_gang_(told);
                      }}) {}

void CoreRunner::start(const Tuning& tuning, const Policy& policy, Recovered recovered) {
  core_.emplace(tuning, policy, std::move(recovered), system_.now());
}

void CoreRunner::handle(const Event& event) {
  const Nanoseconds at = system_.now();
  Actions actions = core_->handle(event, at);
  journal_.observe(core_->sighting(event, actions), at);
  carry_out(std::move(actions));
}

void CoreRunner::forget(TenantId tenant) { carry_out(core_->forget(tenant)); }

void CoreRunner::carry_out(Actions actions) {
  const RecordedActions recorded = journal_.write_down(std::move(actions));
  journal_.watch_leases(*core_);
  performer_.perform(recorded);
}

void CoreRunner::poll_process(SessionId id) {
  const auto* entry = sessions_.find(id);
  const auto session = core_->session(id);
  if (entry == nullptr || !session) return;
  const Peer& peer = entry->client->peer();
  const Stopped state = stopped_state(system_, peer.pid);
  const bool stopped = state != Stopped::no;
  const bool suspended = state == Stopped::by_root && peer.step;
  if (stopped == session->frozen && suspended == session->suspended) return;
  log::debug(entry->client->label() + (stopped ? ": is stopped" : ": goes on"));
  handle(Looked{.session = id, .stopped = stopped, .suspended = suspended});
}

}  // namespace sharedgpu
