// SPDX-License-Identifier: Apache-2.0
#include "simulation/session.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace sharedgpu::simulation {
namespace {

Piece finished(Session& session, std::optional<Report> report = {}) {
  session.orders.pop_front();
  session.obeying = false;
  return {.finished = true, .report = std::move(report)};
}

Piece released(Session& session, Process& process, Epoch epoch, std::uint64_t order) {
  session.in_turn = session.has_stepped = false;
  const Released answer{.epoch = epoch,
                        .order = order,
                        .wants = process.waits(session),
                        .overuse = {},
                        .use = session.use,
                        .submission = process.longest_submission(session)};
  return finished(session, answer);
}

// Returns nullopt if all memory within the limit is resident.
std::optional<Piece> restore(Session& session, Bytes limit, Bytes chunk) {
  session.resident_limit = limit;
  const Bytes copied = std::min({chunk, minus(limit, session.use.resident), session.missing()});
  if (copied == Bytes{}) return std::nullopt;
  session.use.resident += copied;
  return Piece{.copied = copied};
}

Piece carry_out(const Revoke& revoke, Session& session, Process& process, Bytes) {
  const Nanoseconds pause = process.drain(session, MessageType::revoke);
  if (pause != Nanoseconds{}) return {.pause = pause};
  return released(session, process, revoke.epoch, revoke.order);
}

Piece carry_out(const Step& step, Session& session, Process& process, Bytes chunk) {
  const Nanoseconds pause = process.drain(session, MessageType::step);
  if (pause != Nanoseconds{}) return {.pause = pause};
  if (session.has_stepped) return released(session, process, step.epoch, step.order);
  if (const auto piece = restore(session, step.allowed, chunk)) return *piece;
  if (session.page.open)
    return finished(session);  // the gate is open, so this order is from before a restart of the arbiter
  session.has_stepped = session.in_turn = true;
  return {.pause = process.submit_once(session)};
}

Piece carry_out(const Restore& order, Session& session, Process&, Bytes chunk) {
  if (const auto piece = restore(session, order.allowed, chunk)) return *piece;
  if (session.missing() != Bytes{}) return finished(session);
  session.in_turn = true;
  return finished(session, Ready{.epoch = order.epoch, .use = session.use});
}

Piece carry_out(const Evict& order, Session& session, Process& process, Bytes chunk) {
  session.resident_limit = order.allowed;
  MemoryUse& use = session.use;
  const Bytes excess = minus(use.resident, order.allowed);
  const Bytes copied = std::min({chunk, excess, use.resident - use.settling});
  const bool stuck = (!process.can_evict(session) || copied == Bytes{}) && excess != Bytes{};
  if (stuck || copied == Bytes{}) {
    Piece last = finished(session, Usage{.request = 0, .use = use, .stuck = stuck});
    last.stuck = stuck;
    return last;
  }
  use.resident -= copied;
  return {.copied = copied, .report = Usage{.request = 0, .use = use, .stuck = 0}};
}

}  // namespace

bool Session::receive(const Message& message) {
  switch (message.type) {
    case MessageType::welcome:
      epoch = message.as<Welcome>().epoch;
      return false;
    case MessageType::restore:
      epoch = message.as<Restore>().epoch;
      break;
    case MessageType::revoke:
      epoch = message.as<Revoke>().epoch;
      order = message.as<Revoke>().order;
      break;
    case MessageType::step:
      order = message.as<Step>().order;
      break;
    case MessageType::evict:
      break;
    default:
      return false;
  }
  orders.push_back(message);
  return true;
}

void Session::take(const Verdict& granted) {
  resident_limit = granted.allowed;
  if (in_turn) use.resident = std::max(use.resident, std::min(use.swappable, resident_limit));
}

Piece carry_out(Session& session, Process& process, Bytes chunk) {
  const Message order = session.orders.front();
  switch (order.type) {
    case MessageType::revoke:
      return carry_out(order.as<Revoke>(), session, process, chunk);
    case MessageType::step:
      return carry_out(order.as<Step>(), session, process, chunk);
    case MessageType::restore:
      return carry_out(order.as<Restore>(), session, process, chunk);
    case MessageType::evict:
      return carry_out(order.as<Evict>(), session, process, chunk);
    default:
      throw std::logic_error("the core sent a message that is not an order");
  }
}

}  // namespace sharedgpu::simulation
