// SPDX-License-Identifier: Apache-2.0
// The well-behaved clients of the simulation: each has a session that obeys the protocol, and a program.
#include <algorithm>
#include <utility>

#include "world_client.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kPerMib = 100us;  // time to copy a MiB
constexpr unsigned kAhead =
    4;  // number of submissions that a program makes before it waits for the first of them
constexpr Bytes kChunk = mebibytes(4);  // evictions and restores report their progress after each chunk

}  // namespace

// ---- a session ----

void World::deliver(SessionId key, const Message& message) {
  auto entry = clients_.find(key);
  if (entry == clients_.end()) return;
  Client& client = *entry->second;
  if (client.puts_off([this, key, message, life = life_] {
        if (life == life_) deliver(key, message);
      }))
    return;
  if (client.mute) return hear_mutely(client, message);
  if (client.receive(message)) return next_order(client);
  switch (message.type) {
    case MessageType::welcome:
      break;
    case MessageType::attached:
      if (client.attached) break;
      client.attached = true;
      // Each working process has a context. Beside hostile clients, processes work for a long time, so the
      // size of their contexts is never 0.
      client.use.context = mebibytes(random(hostile_ ? 1 : 0, 3));
      client.use.host_limit = mebibytes(scenario_.host_limit);
      if (scenario_.host_short) watch_host(key);
      if (scenario_.deadlines) tell_of_deadlines(key);
      if (scenario_.queries) ask_for_memory(key);
      say(client, usage(client));
      live(client);
      break;
    case MessageType::verdict: {
      auto verdict = message.as<Verdict>();
      if (!client.asking || verdict.request != client.requests) break;
      client.asking = false;
      if (client.away > client.before_growth_away) ++(verdict.granted == 0 ? tally_.kept_home : tally_.away);
      const bool moved_in = client.away < client.before_growth_away;
      if (moved_in && verdict.granted != 0) ++tally_.moved_in;
      if (verdict.granted == 0) {
        ++tally_.refusals;
        tally_.host_refusals += verdict.host_most != Bytes{} ? 1 : 0;
        client.use.swappable = client.before_growth_swappable;
        client.use.pinned = client.before_growth_pinned;
        client.away = client.before_growth_away;
        client.use.settling = {};
        client.use.resident = std::min(client.use.resident, client.use.swappable);
        say(client, usage(client));
      } else {
        if (client.use.settling != Bytes{}) {
          ++tally_.settled;
          client.use.swappable -= client.use.settling;
          client.use.resident -= client.use.settling;
          client.use.settling = {};
        }
        if (client.in_turn && !client.page.open && client.missing() != Bytes{}) ++tally_.late;
        client.take(verdict);
        // Reports the new memory as allocated; the request was sent before the memory was allocated.
        // Sometimes another request comes before this report.
        const bool next = moved_in && random(0, 1) == 0;
        if (client.use.swappable != client.before_growth_swappable && !next) say(client, usage(client));
      }
      at(now() + delay(20), [this, key] {
        auto again = clients_.find(key);
        if (again != clients_.end()) live(*again->second);
      });
      break;
    }
    case MessageType::others_wait:
      break;
    case MessageType::memory_view:
      must(message.as<MemoryView>().free <= message.as<MemoryView>().total, "more is free than there is");
      ++tally_.answers;
      break;
    default:
      throw std::logic_error("a message that is not for sessions");
  }
}

void World::next_order(Client& client) {
  if (client.begin_order()) work(client);
}

// Does a part of the current order, and continues later.
void World::work(Client& client) {
  const auto again = [this, &client](Nanoseconds time) {
    at(now() + time, [this, key = client.key] {
      auto entry = clients_.find(key);
      if (entry != clients_.end()) work(*entry->second);
    });
  };
  if (client.stopped) return again(50ms);
  const bool evicts = client.orders.front().type == MessageType::evict;
  must(!evicts || !client.computing, "memory is taken from work that is not done");
  const simulation::Piece piece = carry_out(client, *this, kChunk);
  const bool copied = piece.copied != Bytes{};
  if (evicts && copied) {
    ++tally_.evictions;
    client.use.host = std::max(client.use.host, minus(client.granted(), client.use.resident));
  }
  tally_.stuck += piece.stuck ? 1 : 0;
  if (piece.report) std::visit([&](const auto& what) { report(client, what); }, *piece.report);
  if (piece.finished) return next_order(client);
  again(copied ? kPerMib * static_cast<long>((piece.copied.count >> 20) + 1) : piece.pause);
}

void World::report(Client& client, const Released& what) {
  client.let_in = false;
  client.draining_since = {};
  client.passed = 0;
  say(client, what);
}

void World::report(Client& client, const Ready& what) {
  client.let_in = client.page.open;
  say(client, what);
}

void World::report(Client& client, const Usage& what) { say(client, usage(client, 0, what.stuck != 0)); }

Nanoseconds World::drain(simulation::Session& session, MessageType order) {
  auto& client = static_cast<Client&>(session);
  const bool stepping = order == MessageType::step;
  if (!stepping || client.has_stepped) let_through(client);
  if (!client.computing && !client.capturing) return {};
  return stepping ? 1ms : 5ms;
}

Nanoseconds World::submit_once(simulation::Session& session) {
  auto& client = static_cast<Client&>(session);
  if (client.waiting && !client.asking && client.missing() == Bytes{}) {
    ++tally_.steps;
    client.waiting = false;
    submit(client);
  }
  return 1ms;
}

bool World::can_evict(simulation::Session& session) {
  auto& client = static_cast<Client&>(session);
  if (scenario_.host_runs_out && random(0, 20) == 0) client.hoarding = !client.hoarding;
  return !client.hoarding && now() >= client.barred_until;
}

bool World::waits(const simulation::Session& session) const {
  return static_cast<const Client&>(session).waiting;
}

// Returns zero in scenarios with early_advances. With a longer time, turns would consist of whole
// submissions. A small change of an account could then move the end of a turn by a whole submission, and
// the core arms no timer for such a change.
Nanoseconds World::longest_submission(simulation::Session&) {
  return scenario_.early_advances ? Nanoseconds{} : random(0, 2) * 20ms;
}

// ---- a program ----

// Chooses what the program does next. The program does one thing at a time.
void World::live(Client& client) {
  if (client.puts_off([this, key = client.key] {
        auto entry = clients_.find(key);
        if (entry != clients_.end()) live(*entry->second);
      }))
    return;
  if (client.asking || client.waiting) return;
  client.full = client.submitted - client.done >= kAhead;
  if (client.full) return;
  if (client.computing && !scenario_.lockstep && !scenario_.entangled) return;
  if (winding_down_) return;
  if (scenario_.entangled) capture(client);
  unsigned what = random(0, 99);
  auto later = [this, key = client.key](Nanoseconds time) {
    at(now() + time, [this, key] {
      auto entry = clients_.find(key);
      if (entry != clients_.end()) live(*entry->second);
    });
  };
  if (scenario_.deaths && what == 0) {
    TenantId tenant = client.tenant;
    unsigned gpu = client.gpu;
    at(now() + delay(500), [this, tenant, gpu] { arrive(tenant, gpu); });
    return at(now(), [this, key = client.key] { die(key); });
  }
  // In lockstep, each process allocates only before it begins to work. If several tenants grew while they
  // drain, their memory could exceed the GPU.
  unsigned growth = 15;
  if (scenario_.lockstep) growth = client.begun ? 0 : 60;
  if (what < growth) return grow(client);
  if (what < 22 && !client.computing) {
    shrink(client);
    return later(delay(10));
  }
  if (what < 26) return later(delay(scenario_.longest_sleep));
  compute(client);
}

void World::capture(Client& client) {
  if (client.capturing)
    client.capturing = random(0, 3) != 0;
  else
    client.capturing = client.page.open && random(0, 9) == 0;
}

// At growing intervals, lets a session that waits at its closed gate submit once. Work on the GPU may wait
// for this submission.
void World::let_through(Client& client) {
  if (client.draining_since == Nanoseconds{}) client.draining_since = now();
  const Nanoseconds due = client.draining_since + 50ms + client.passed * client.passed * 5ms;
  if (!client.computing || !client.waiting || client.missing() != Bytes{} || now() < due) return;
  ++client.passed;
  client.waiting = false;
  submit(client);
}

void World::grow(Client& client) {
  client.before_growth_swappable = client.use.swappable;
  client.before_growth_pinned = client.use.pinned;
  client.before_growth_away = client.away;
  const unsigned what = scenario_.pins ? random(0, 5) : 2;
  if (scenario_.oversize && random(0, 2) == 0) {
    client.away += mebibytes(random(1, scenario_.largest_growth));
  } else if (what == 0) {
    client.use.pinned += mebibytes(random(1, 5));
  } else if (what == 1) {
    client.use.settling = std::min(client.use.resident, mebibytes(random(1, 5)));
    client.use.pinned += client.use.settling;
  } else {
    const Bytes growth = mebibytes(random(1, scenario_.largest_growth));
    client.use.swappable += growth;
    // Sometimes away memory moves into the new memory on the GPU.
    if (client.away != Bytes{} && random(0, 1) == 0) client.away = minus(client.away, growth);
  }
  client.asking = true;
  client.asking_since = now();
  ++client.requests;
  // Messages that the session sends before this request already report the growth.
  at(now() + delay(2), [this, key = client.key, life = life_, request = client.requests] {
    auto entry = clients_.find(key);
    if (entry != clients_.end() && life == life_) say(*entry->second, usage(*entry->second, request));
  });
}

void World::shrink(Client& client) {
  Bytes freed = std::min(client.use.swappable, mebibytes(random(1, scenario_.largest_growth)));
  Bytes from_away = std::min(freed, client.missing());
  client.use.swappable -= freed;
  client.use.resident -= freed - from_away;
  if (scenario_.oversize) client.away = minus(client.away, mebibytes(random(0, scenario_.largest_growth)));
  say(client, usage(client));
  // The program frees the host memory of the freed device memory later.
  at(now() + delay(2000), [this, key = client.key] {
    auto entry = clients_.find(key);
    if (entry == clients_.end()) return;
    Client& its = *entry->second;
    if (std::exchange(its.use.host, std::min(its.use.host, its.granted())) != its.use.host)
      say(its, usage(its));
  });
}

void World::compute(Client& client) {
  if (!client.page.open && !(client.capturing && client.in_turn)) {
    client.waiting = true;
    client.waiting_since = now();
    say(client, Want{});
    return;
  }
  submit(client);
}

void World::submit(Client& client) {
  must(client.missing() == Bytes{}, "work was let in before all memory was there");
  ++tally_.kernels;
  if (scenario_.entangled && random(0, 3) == 0) client.holding.insert(client.submitted);
  ++client.submitted;
  client.begun = true;
  client.computing = true;
  client.in_turn = true;
  std::vector<Client*> tenants;
  for (auto& [key, other] : clients_)
    if (other->tenant == client.tenant) tenants.push_back(other.get());
  for (Client* other : tenants) complete(*other);
  if (scenario_.lockstep || scenario_.entangled) resume(client);
}

// Begins the first unfinished submission. In lockstep, begins it only if all other processes of the tenant
// have made the submission with the same number.
void World::complete(Client& client) {
  if (client.busy || client.submitted == client.done) return;
  if (scenario_.lockstep)
    for (const auto& [key, other] : clients_)
      if (other->tenant == client.tenant && other->submitted <= client.done) return;
  if (client.holding.count(client.done) != 0 && client.submitted == client.done + 1) return;
  client.busy = true;
  at(now() + delay(scenario_.lockstep ? 10 : 60), [this, key = client.key] {
    auto entry = clients_.find(key);
    if (entry == clients_.end()) return;
    Client& its = *entry->second;
    its.busy = false;
    ++its.done;
    its.computing = its.submitted != its.done;
    its.idle_since = now();
    complete(its);
    const bool goes_on = scenario_.lockstep || scenario_.entangled;
    if (!goes_on || std::exchange(its.full, false)) live(its);
  });
}

void World::resume(Client& client) {
  at(now() + delay(20), [this, key = client.key] {
    auto entry = clients_.find(key);
    if (entry != clients_.end()) live(*entry->second);
  });
}

void World::gate_opened(Client& client) {
  if (now() < client.barred_until) ++tally_.home;
  client.in_turn = client.let_in = true;
  client.idle_since = now();
  if (!client.waiting) return;
  client.waiting = false;
  at(now(), [this, key = client.key] { pass(key); });
}

// Lets a thread that waited at the gate continue. If the process was stopped before the thread could pass the
// gate, the thread finds the gate closed again.
void World::pass(SessionId key) {
  auto entry = clients_.find(key);
  if (entry != clients_.end() && entry->second->puts_off([this, key] { pass(key); })) return;
  if (entry == clients_.end() || entry->second->asking || entry->second->waiting) return;
  if (!entry->second->computing || scenario_.lockstep || scenario_.entangled) compute(*entry->second);
}

// While a request to move away memory to the GPU waits, reports without a request still count this memory as
// away, since it stays away if the request is refused.
Usage World::usage(const Client& client, std::uint64_t request, bool stuck) const {
  const bool stays = request == 0 && client.asking;
  return {.request = request,
          .use = client.use,
          .stuck = stuck,
          .job_host_limit = mebibytes(scenario_.job_host_limit),
          .away = stays ? std::max(client.away, client.before_growth_away) : client.away};
}

// Sometimes the program needs the host memory that holds evicted memory.
void World::watch_host(SessionId key) {
  auto entry = clients_.find(key);
  if (entry == clients_.end() || winding_down_) return;
  Client& client = *entry->second;
  if (client.puts_off([this, key] { watch_host(key); })) return;
  if (now() >= client.barred_until && random(0, 9) == 0) client.barred_until = now() + 5s;
  if (now() < client.barred_until && !client.page.open && client.use.resident < client.granted())
    say(client, Want{.host_short = 1});
  at(now() + 1s, [this, key] { watch_host(key); });
}

// Reports met and missed deadlines about twenty times a second, with pauses of 15 s.
void World::tell_of_deadlines(SessionId key) {
  auto entry = clients_.find(key);
  if (entry == clients_.end() || winding_down_) return;
  Client& client = *entry->second;
  if (client.puts_off([this, key] { tell_of_deadlines(key); })) return;
  say(client, Deadlines{.met = random(0, 9), .missed = random(0, 7) / 7});
  const Nanoseconds pause = random(0, 199) == 0 ? 15s : delay(100);
  at(now() + pause, [this, key] { tell_of_deadlines(key); });
}

void World::ask_for_memory(SessionId key) {
  auto entry = clients_.find(key);
  if (entry == clients_.end() || winding_down_) return;
  Client& client = *entry->second;
  if (client.puts_off([this, key] { ask_for_memory(key); })) return;
  say(client, MemoryQuery{.request = random(1, 1000)});
  at(now() + delay(1000), [this, key] { ask_for_memory(key); });
}

// A mute client is a client that obeys no order. Half of the mute clients use the GPU: they have a context,
// and the memory that they were granted. The other half have no memory on the GPU.
void World::hear_mutely(Client& client, const Message& message) {
  const bool has_memory = client.tenant.value % 2 == 0;
  if (message.type == MessageType::attached) {
    if (has_memory) client.use.context = mebibytes(1);
    say(client, usage(client));
    annoy(client.key);
  } else if (message.type == MessageType::verdict) {
    client.asking = false;
    if (message.as<Verdict>().granted == 0) client.use.swappable = client.before_growth_swappable;
    if (message.as<Verdict>().granted != 0 && client.page.open && has_memory)
      client.use.resident = client.use.swappable;
    say(client, usage(client));
  }
}

void World::annoy(SessionId key) {
  auto entry = clients_.find(key);
  if (entry == clients_.end() || winding_down_) return;
  Client& client = *entry->second;
  const unsigned what = random(0, 3);
  if (what == 0 && !client.asking) {
    client.before_growth_swappable = client.use.swappable;
    client.use.swappable += mebibytes(random(1, scenario_.largest_growth));
    client.asking = true;
    say(client, usage(client, ++client.requests));
  } else if (what == 1) {
    say(client, Want{.host_short = static_cast<std::uint8_t>(random(0, 1))});
  } else if (what == 2) {
    say(client, usage(client));
  }
  at(now() + delay(500), [this, key] { annoy(key); });
}

void World::watch_idle(SessionId key, unsigned generation) {
  auto entry = clients_.find(key);
  if (entry == clients_.end() || entry->second->mute || entry->second->generation != generation) return;
  Client& client = *entry->second;
  if (!client.page.contended || winding_down_) return;
  if (client.puts_off([this, key, generation] { watch_idle(key, generation); })) return;
  if (client.page.open && !client.computing && now() - client.idle_since >= 20ms)
    say(client, Idle{.epoch = client.epoch, .idle = now() - client.idle_since});
  // Pretends that the session's next submission would not end in its turn.
  if (client.page.open && client.page.turn_ends != Nanoseconds{} && random(0, 3) == 0) {
    ++tally_.given_back;
    say(client, GiveBack{.epoch = client.epoch});
  }
  at(now() + 40ms, [this, key, generation] { watch_idle(key, generation); });
}

}  // namespace sharedgpu::test
