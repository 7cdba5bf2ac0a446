// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/performer.h"

#include <algorithm>

#include "arbiter/daemon/log.h"
#include "protocol/gpu_names.h"

namespace sharedgpu {
namespace {

constexpr std::size_t kMostNamed = 8;  // maximum number of processes named in one log line

}  // namespace

Performer::Performer(asio::io_context& loop, Schedule& schedule, const System& system, SessionTable& sessions,
                     const Tenants& tenants, Complaints& complaints, Callbacks callbacks)
    : schedule_(schedule),
      system_(system),
      sessions_(sessions),
      tenants_(tenants),
      complaints_(complaints),
      callbacks_(std::move(callbacks)),
      timer_(loop),
      cancellations_(loop, system) {}

void Performer::perform(const RecordedActions& actions) {
  for (const Action& action : actions.all()) std::visit([this](const auto& one) { perform(one); }, action);
}

void Performer::perform(const Send& send) {
  if (auto* session = sessions_.find(send.session))
    session->client->connection().send(send.message,
                                       send.message.type == MessageType::welcome ? session->page.fd() : -1);
}

void Performer::perform(const SetGate& gate) {
  if (auto* session = sessions_.find(gate.session)) session->page.set_open(gate.open);
}

void Performer::perform(const SetContended& contended) {
  if (auto* session = sessions_.find(contended.session)) session->page.set_contended(contended.contended);
}

void Performer::perform(const SetOversubscribed& oversubscribed) {
  if (auto* session = sessions_.find(oversubscribed.session))
    session->page.set_oversubscribed(oversubscribed.oversubscribed, oversubscribed.queue);
}

void Performer::perform(const SetTurnEnds& ends) {
  if (auto* session = sessions_.find(ends.session)) session->page.set_turn_ends(ends.at);
}

// Only logs: the Journal has recorded the lease.
void Performer::perform(const RecordLease& lease) {
  log::debug(tenants_.label(lease.key.tenant) + (lease.grant ? ": lease on " : ": released ") +
             format_gpu(lease.key.gpu));
}

void Performer::perform(const Drop& drop) {
  if (auto* session = sessions_.find(drop.session)) session->client->connection().refuse(drop.reason);
}

// Polls the process in its user's turn (schedule.h), since reading the state of a process with hundreds of
// threads takes long. At most one poll is queued for each session, because polls are delayed while the user
// has used up its time.
void Performer::perform(const Look& look) {
  auto* session = sessions_.find(look.session);
  if (session == nullptr || std::exchange(session->look_is_due, true)) return;
  schedule_.add(session->client->peer().account, [this, id = look.session] {
    if (auto* its = sessions_.find(id)) its->look_is_due = false;
    callbacks_.poll_process(id);
    return false;
  });
}

void Performer::perform(const ArmTimer& timer) {
  if (armed_ == timer.at) return;
  armed_ = timer.at;
  timer_.expires_after(std::max(timer.at - system_.now(), Nanoseconds{}));
  timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    armed_.reset();
    callbacks_.timer_fired();
  });
}

void Performer::perform(const Note& note) {
  const TenantInfo* tenant = tenants_.find(note.tenant);
  if (tenant == nullptr) return;
  const std::string line = tenant->label() + ": " + note.text;
  if (note.routine) return log::debug(line);
  complaints_.add(tenant->account, Cause::note, line);
}

void Performer::perform(const Overstay& overstay) {
  const auto seconds = std::chrono::round<std::chrono::seconds>(overstay.lasted).count();
  const std::string gpu = "GPU " + std::to_string(overstay.number);
  const std::string time = std::to_string(seconds) + " s";
  std::string what =
      overstay.evicts
          ? "has kept memory on " + gpu + " that others wait for, " + time + " since its turn ended"
          : "has not released " + gpu + " for " + time + " since its turn ended, and others wait";
  if (overstay.response != Overstay::Response::note) what += " (MaxOveruse)";
  std::vector<const SessionTable::Entry*> there;
  for (const auto& [id, session] : sessions_.all())
    if (session.client->tenant() == overstay.tenant && session.gpu == overstay.gpu) there.push_back(&session);
  log_overstay(overstay, what, there);
  if (overstay.response == Overstay::Response::cancel)
    for (const SessionTable::Entry* session : there) cancellations_.end(session->client, "its job " + what);
}

void Performer::perform(const TellGang& told) { callbacks_.tell_gang(told); }

void Performer::log_overstay(const Overstay& overstay, const std::string& what,
                             const std::vector<const SessionTable::Entry*>& there) {
  const TenantInfo* tenant = tenants_.find(overstay.tenant);
  if (tenant == nullptr) return;
  std::string pids;
  for (std::size_t i = 0; i < std::min(there.size(), kMostNamed); ++i)
    pids += " " + std::to_string(there[i]->client->peer().pid);
  const bool answers = std::all_of(there.begin(), there.end(),
                                   [](const SessionTable::Entry* session) { return session->reads(); });
  complaints_.add(tenant->account, Cause::overstay,
                  tenant->label() + ", uid " + std::to_string(tenant->uid) + ", pid" + pids + ": " + what +
                      ": " +
                      (overstay.stopped  ? "it is stopped"
                       : !answers        ? "it does not answer"
                       : overstay.evicts ? "it has not evicted its memory"
                                         : "work on the GPU is not finished"));
}

}  // namespace sharedgpu
