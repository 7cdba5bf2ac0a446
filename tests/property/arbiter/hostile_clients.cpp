// SPDX-License-Identifier: Apache-2.0
#include "hostile_clients.h"

#include <algorithm>
#include <array>
#include <utility>

#include "arbiter/daemon/validity.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kDeeds = 9;  // number of kinds of clients; the last kind mixes the other kinds

}  // namespace

HostileClients::HostileClients(Surroundings& world, TenantId first, unsigned tenants, bool absurd)
    : world_(world), first_(first), absurd_(absurd) {
  for (unsigned i = 0; i < tenants; ++i)
    world_.at(world_.now() + 1ms * world_.random(1, 3000), [this, i] { come(TenantId{first_.value + i}); });
}

HostileClients::Deed HostileClients::deed_of(unsigned number) {
  constexpr std::array<Deed, kDeeds> kAll{
      &HostileClients::claim_memory, &HostileClients::keep_the_turn, &HostileClients::answer_wrongly,
      &HostileClients::ask_much,     &HostileClients::come_and_go,   &HostileClients::keep_memory,
      &HostileClients::hide_memory,  &HostileClients::alternate,     &HostileClients::do_anything};
  return kAll[number % kAll.size()];
}

// ---- start and end of clients ----

void HostileClients::come(TenantId tenant) {
  if (world_.winding_down()) return;
  const auto its_own = [&](const auto& entry) { return entry.second.tenant == tenant; };
  if (std::count_if(clients_.begin(), clients_.end(), its_own) >= kMostSessions) return;
  const SessionId session = connect(tenant);
  if (owns(session)) say(session, Attach{.gpu = clients_[session].gpu, .total = {}, .name = {}});
  begin(session);
}

void HostileClients::come_back(SessionId session) {
  if (world_.winding_down()) return;
  const Client old = clients_.at(session);
  const SessionId heir = connect(old.tenant);
  if (!owns(heir)) return;
  clients_[heir].gpu = old.gpu;
  clients_[heir].there = old.there;
  clients_[heir].hidden = old.hidden;
  world_.tell(SessionGone{.session = session, .heir = heir});
  clients_.erase(session);
  say(heir, Attach{.gpu = old.gpu, .total = {}, .name = {}});
  say(heir, Usage{.request = 0, .use = everything()});
  begin(heir);
}

SessionId HostileClients::connect(TenantId tenant) {
  const SessionId session = world_.new_session();
  clients_[session].tenant = tenant;
  clients_[session].gpu = world_.any_gpu();
  clients_[session].there = world_.random(0, 1) == 0 ? Bytes{} : kContext;
  Hello hello;
  hello.held = hello.wants = 1;
  hello.epoch = Epoch{world_.random(0, 1000)};
  world_.tell(SessionCame{.session = session,
                          .tenant = tenant,
                          .step = {.job = static_cast<std::uint32_t>(tenant.value), .step = 0},
                          .cap = {},
                          .host_cap = {},
                          .oversize = world_.random(0, 1) == 0,
                          .claims = claims(),
                          .expected = false,
                          .can_be_away = world_.random(0, 3) != 0,
                          .hello = hello});
  return session;
}

void HostileClients::begin(SessionId session) {
  world_.at(world_.now() + 1ms * world_.random(1, 50), [this, session] { live(session); });
}

void HostileClients::end_session(SessionId session) {
  const auto found = clients_.find(session);
  if (found == clients_.end()) return;
  const TenantId tenant = found->second.tenant;
  clients_.erase(found);
  world_.tell(SessionGone{.session = session});
  world_.at(world_.now() + 1ms * world_.random(1, 1000), [this, tenant] { come(tenant); });
}

void HostileClients::end_tenant(TenantId tenant) {
  for (const auto& [session, client] : clients_)
    if (client.tenant == tenant)
      world_.at(world_.now() + 1ms * world_.random(1, 1000),
                [this, session = session] { end_session(session); });
}

void HostileClients::end_all() {
  while (!clients_.empty()) end_session(clients_.begin()->first);
}

void HostileClients::show(const GpuUuid& gpu, GpuSurvey& survey) const {
  for (const auto& [session, client] : clients_) {
    if (client.gpu != gpu) continue;
    survey.sessions[session] = client.there + client.hidden;
    survey.hidden += client.hidden;
    if (client.hidden != Bytes{}) survey.unreported[session] = client.hidden;
  }
}

// ---- messages and actions of clients ----

void HostileClients::hear(SessionId session, const Message& message) {
  const auto found = clients_.find(session);
  if (found == clients_.end()) return;
  Client& client = found->second;
  if (message.type == MessageType::attached) client.attached = true;
  if (message.type == MessageType::welcome) client.epoch = message.as<Welcome>().epoch;
  if (message.type == MessageType::restore) client.epoch = message.as<Restore>().epoch;
  if (message.type == MessageType::step) client.order = message.as<Step>().order;
  if (message.type != MessageType::revoke) return;
  client.epoch = message.as<Revoke>().epoch;
  client.order = message.as<Revoke>().order;
}

void HostileClients::live(SessionId session) {
  const auto found = clients_.find(session);
  if (found == clients_.end() || world_.winding_down()) return;
  // The number of a tenant selects its action: each tenant repeats one action. do_anything() is an action
  // that chooses another one at random each time.
  const auto kind = static_cast<unsigned>(found->second.tenant.value);
  world_.at(world_.now() + 1ms * world_.random(1, 300), [this, session] { live(session); });
  (this->*deed_of(kind))(session, found->second);
}

template <class Body>
void HostileClients::say(SessionId session, const Body& body) {
  if constexpr (std::is_same_v<Body, Usage>) requests_ += body.request != 0 ? 1 : 0;
  if (owns(session)) world_.tell(From<Body>{.session = session, .body = body});
}

Claims HostileClients::claims() {
  if (!absurd_) return {};
  constexpr std::array<std::int64_t, 4> kDeadlines{0, 1, 20'000'000, std::int64_t{1} << 55};
  return {.units = world_.random(0, 1) == 0 ? 1 : JobOptions::kMostUnits,
          .priority = 0,
          .request = 0.5 * world_.random(0, 2),
          .limit = world_.random(0, 1) == 0 ? 0.01 : 1,
          .timed = world_.random(0, 1) == 0,
          .deadline = Nanoseconds{kDeadlines[world_.random(0, 3)]}};
}

Bytes HostileClients::any_size() {
  const unsigned kind = world_.random(0, 4);
  if (kind == 0) return {};
  if (kind == 1) return kLargest;
  return mebibytes(world_.random(1, kind == 2 ? 200 : 20));
}

MemoryUse HostileClients::everything() {
  MemoryUse use{};
  use.swappable = use.resident = use.pinned = use.context = kLargest;
  return use;
}

MemoryUse HostileClients::any_use() {
  MemoryUse use{.swappable = any_size(),
                .resident = any_size(),
                .pinned = any_size(),
                .context = any_size(),
                .host = any_size(),
                .settling = any_size(),
                .host_limit = world_.random(0, 3) == 0 ? any_size() : Bytes{}};
  use.settling = std::min({use.settling, use.swappable, use.resident, use.pinned});
  return use;
}

// Requests memory that the GPU does not have, or reports it without a request.
void HostileClients::claim_memory(SessionId session, Client&) {
  say(session, Usage{.request = world_.random(0, 1) == 0 ? 0 : requests_ + 1,
                     .use = any_use(),
                     .stuck = static_cast<std::uint8_t>(world_.random(0, 1)),
                     .job_host_limit = {},
                     .away = any_size()});
  if (world_.random(0, 9) == 0) say(session, Want{.host_short = 1});
}

// A client that requests the GPU and never drains. One half of these clients report a very slow restore: one
// more resident byte in each report. The other half report at once that all their memory is resident.
void HostileClients::keep_the_turn(SessionId session, Client& client) {
  MemoryUse use{};
  use.swappable = mebibytes(60);
  use.resident = session.value % 2 == 0 ? Bytes{++client.resident} : use.swappable;
  use.context = kContext;
  say(session, Usage{.request = world_.random(0, 9) == 0 ? requests_ + 1 : 0, .use = use});
  if (session.value % 2 != 0) say(session, Ready{.epoch = client.epoch, .use = use, .moved = {}});
  say(session, Want{.host_short = static_cast<std::uint8_t>(world_.random(0, 1))});
}

// Sends answers that nobody requested, answers to earlier orders, or answers out of order.
void HostileClients::answer_wrongly(SessionId session, Client& client) {
  const Epoch epoch{client.epoch.value + world_.random(0, 2) - 1};
  const std::uint64_t order = client.order + world_.random(0, 2) - 1;
  switch (world_.random(0, 4)) {
    case 0:
      return say(session, Ready{.epoch = epoch, .use = any_use(), .moved = {}});
    case 1:
      return say(session, Released{.epoch = epoch,
                                   .order = order,
                                   .wants = 1,
                                   .overuse = 1h * world_.random(0, 1000),
                                   .use = any_use(),
                                   .submission = 1h * world_.random(0, 1000)});
    case 2:
      return say(session, Idle{.epoch = epoch, .idle = 1h * world_.random(0, 1000)});
    case 3:
      return say(session, GiveBack{.epoch = epoch});
    default:
      return say(session, Want{});
  }
}

void HostileClients::ask_much(SessionId session, Client&) {
  for (unsigned i = world_.random(1, 20); i > 0 && owns(session); --i) {
    say(session, Usage{.request = requests_ + 1, .use = any_use(), .away = any_size()});
    say(session, MemoryQuery{.request = i});
    say(session, Deadlines{.met = world_.random(0, 1), .missed = std::uint64_t{1} << 32});
  }
}

void HostileClients::come_and_go(SessionId session, Client& client) {
  const TenantId tenant = client.tenant;
  switch (world_.random(0, 3)) {
    case 0:
      return say(session, Attach{.gpu = world_.any_gpu(), .total = {}, .name = {}});
    case 1:
      return come(tenant);
    case 2:
      return claim_memory(session, client);
    default:
      return come_back(session);
  }
}

// Takes and ends its turns correctly, but always reports that its memory is on the GPU and cannot be evicted.
void HostileClients::keep_memory(SessionId session, Client& client) {
  MemoryUse use{};
  use.swappable = use.resident = mebibytes(100);
  use.context = kContext;
  say(session, Usage{.request = client.resident++ % 20 == 0 ? requests_ + 1 : 0, .use = use, .stuck = 1});
  obey(session, use);
}

// Takes and ends its turns.
void HostileClients::obey(SessionId session, const MemoryUse& use) {
  const auto found = clients_.find(session);
  if (found == clients_.end()) return;
  const Epoch epoch = found->second.epoch;
  const std::uint64_t order = found->second.order;
  say(session, Ready{.epoch = epoch, .use = use, .moved = {}});
  say(session, Released{.epoch = epoch, .order = order, .wants = 1, .use = use});
  say(session, Want{});
}

// Allocates memory that the client never reports (`hidden`), and frees it now and then. Sometimes a further
// process of the tenant connects.
void HostileClients::hide_memory(SessionId session, Client& client) {
  const TenantId tenant = client.tenant;
  client.hidden = world_.random(0, 4) == 0 ? Bytes{} : kHidden;
  client.there = kContext;
  MemoryUse use{};
  if (world_.random(0, 1) == 0) use.context = kContext;
  if (world_.random(0, 3) == 0) use.swappable = use.resident = kContext;
  say(session, Usage{.request = world_.random(0, 9) == 0 ? requests_ + 1 : 0, .use = use});
  obey(session, use);
  if (world_.random(0, 9) == 0) come(tenant);
}

// Reports for a while that all its memory is on the GPU, and then for a while that none of it is. The
// tenant's processes change their reports at the same time, or in turn.
void HostileClients::alternate(SessionId session, Client& client) {
  const TenantId tenant = client.tenant;
  MemoryUse use{};
  use.swappable = mebibytes(world_.random(20, 100));
  use.context = kContext;
  use.host = any_size();
  const bool more = (client.resident++ + session.value) / world_.random(1, 20) % 2 == 0;
  use.resident = more ? use.swappable : Bytes{};
  say(session, Usage{.request = world_.random(0, 9) == 0 ? requests_ + 1 : 0,
                     .use = use,
                     .away = more ? Bytes{} : any_size()});
  obey(session, use);
  if (world_.random(0, 9) == 0) come(tenant);
}

void HostileClients::do_anything(SessionId session, Client& client) {
  (this->*deed_of(world_.random(0, kDeeds - 2)))(session, client);
}

}  // namespace sharedgpu::test
