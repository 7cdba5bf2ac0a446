// SPDX-License-Identifier: Apache-2.0
// Tenants whose processes are stopped: by Slurm's suspend, by Ctrl-Z, by a debugger.
//
// Such a process answers nothing, so the core has it looked at where an answer is missing. Its gate is closed
// without it, and when all that is still to be waited for is stopped the lease is taken. What the process has
// on the GPU stays there, since only the process could move it: others are planned around that, like around a
// tenant that cannot evict. When it goes on, it drains and says Released as if nothing had been; a thread
// that was past the gate already may submit once more before that. That costs others time and nothing else:
// all of the tenant's memory is where it was. Until it has said Released the lease is its own again.
//
// Slurm tells its slurmstepds of a suspension two seconds before it stops the processes, and they tell us. So
// a tenant has that time to drain and to evict all that it can.
#include <algorithm>
#include <utility>

#include "arbiter/core/actions.h"

namespace sharedgpu {

void Core::on(const Looked& event) {
  Session* session = find(event.session);
  if (session == nullptr || !on_gpu(session)) return;
  if (!event.stopped) return goes_on(*session);
  session->stopped = true;
  // What it was asked to evict stays for now.
  if (drained(*session)) session->allowed = session->use.resident;
}

void Core::on(const Suspend& event) {
  const auto tenant = state_.tenants.find(event.tenant);
  if (tenant == state_.tenants.end()) return;
  touch(tenant->second);
  tenant->second.suspended_until = event.suspended ? now_ + tuning_.suspend_notice : Nanoseconds{};
}

void Core::goes_on(Session& session) {
  if (!std::exchange(session.stopped, false)) return;
  session.news = now_;
  Tenant& tenant = *session.tenant;
  if (!tenant.taken || session.released) return;
  tenant.let_on = now_;
  tenant.step_at = now_ + tuning_.step_after;
  grant_lease(session);
}

// Has asked for the GPU, and could use it.
bool Core::waits(const Tenant& tenant) const {
  return tenant.phase == Phase::out && tenant.wants() && !absent(tenant);
}

bool Core::others_wait(const Domain& domain) const {
  return std::any_of(domain.tenants.begin(), domain.tenants.end(),
                     [this](const Tenant* tenant) { return waits(*tenant); });
}

bool Core::may_be_stopped(const Session& session) const {
  const Tenant& tenant = *session.tenant;
  if (!on_gpu(&session)) return false;
  if (absent(tenant)) return true;
  if (tenant.phase == Phase::running) return session.contended;
  if (tenant.phase == Phase::entering) return session.asked && !session.ready;
  return !drained(session) || session.allowed < session.use.resident;
}

// Most answers come before the first look.
void Core::look_for_stopped(Gpu& gpu) {
  for (Session* session : gpu.sessions) {
    if (suspended(*session->tenant)) wake_at(session->tenant->suspended_until);
    if (!may_be_stopped(*session)) {
      session->looked = {};
      continue;
    }
    if (session->looked == Nanoseconds{}) session->looked = now_;
    if (now_ - session->looked >= tuning_.look) {
      session->looked = now_;
      actions_.emplace_back(Look{.session = session->id});
    }
    wake_at(session->looked + tuning_.look);
  }
}

// Who is stopped as a whole, cannot become ready or is about to be stopped gives up its place.
void Core::drop_who_is_absent(Domain& domain) {
  for (Tenant* tenant : domain.tenants) {
    if (tenant->phase == Phase::out && absent(*tenant))
      tenant->waiting_since = now_;  // it does not wait meanwhile
    if (!tenant->in_set()) continue;
    const auto stopped = [](const Session* session) { return !on_gpu(session) || session->stopped; };
    const auto never_ready = [](const Session* session) { return session->stopped && !session->ready; };
    const bool all = std::all_of(tenant->sessions.begin(), tenant->sessions.end(), stopped);
    const bool any = std::any_of(tenant->sessions.begin(), tenant->sessions.end(), never_ready);
    if (suspended(*tenant) || all || (tenant->phase == Phase::entering && any)) leave(*tenant);
  }
}

void Core::take_from_stopped(Tenant& tenant) {
  if (tenant.phase != Phase::leaving || tenant.resuming || !leases_.holds(tenant.id)) return;
  if (still_drains(tenant)) return;
  const Nanoseconds due = std::max(tenant.left, tenant.let_on) + tuning_.stop_grace;
  wake_at(due);
  if (now_ < due) return;
  end_turn(tenant);
  if (std::exchange(tenant.taken, true)) return;
  actions_.emplace_back(Note{.tenant = tenant.id,
                             .text = "is stopped; its lease goes to others, what it has on the GPU stays"});
}

// Whoever comes while it is stopped may need the room, and could not get it any more. What another process of
// the tenant may need for its turn to end stays.
void Core::evict_before_the_stop(Gpu& gpu) {
  for (Session* session : gpu.sessions) {
    const Tenant& tenant = *session->tenant;
    if (!suspended(tenant) || !drained(*session) || session->stuck(now_)) continue;
    if (tenant.phase == Phase::leaving && session->wants && still_drains(tenant)) continue;
    if (std::min(session->allowed, session->use.resident) == Bytes{}) continue;
    session->news = now_;
    session->allowed = {};
    session->evicting = true;
    send(*session, Evict{.allowed = {}});
  }
}

}  // namespace sharedgpu
