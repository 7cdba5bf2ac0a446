// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/performer.h"

#include <algorithm>
#include <asio/post.hpp>

#include "arbiter/daemon/log.h"
#include "protocol/gpu_names.h"

namespace sharedgpu {

Performer::Performer(asio::io_context& loop, const System& system, SessionTable& sessions,
                     const Tenants& tenants, Callbacks callbacks)
    : loop_(loop),
      system_(system),
      sessions_(sessions),
      tenants_(tenants),
      callbacks_(std::move(callbacks)),
      timer_(loop) {}

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

// The Journal has recorded the lease.
void Performer::perform(const RecordLease& lease) {
  log::debug(tenants_.label(lease.key.tenant) + (lease.grant ? ": lease on " : ": released ") +
             format_gpu(lease.key.gpu));
}

void Performer::perform(const Drop& drop) {
  if (auto* session = sessions_.find(drop.session)) session->client->connection().refuse(drop.reason);
}

void Performer::perform(const Look& look) {
  asio::post(loop_, [this, session = look.session] { callbacks_.poll_process(session); });
}

void Performer::perform(const ArmTimer& timer) {
  timer_.expires_after(std::max(timer.at - system_.now(), Nanoseconds{}));
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) callbacks_.timer_fired();
  });
}

void Performer::perform(const Note& note) { log::warning(tenants_.label(note.tenant) + ": " + note.text); }

}  // namespace sharedgpu
