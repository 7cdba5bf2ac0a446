// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <utility>

#include "protocol/policy_names.h"
#include "world_client.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// Returns true if the core must have a timer for the action. Returns false for hints (Prepare), and for
// restores of a tenant that has not requested the GPU: these actions may come with the next event.
bool decides(const Action& action, const Snapshot& before) {
  if (const auto* send = std::get_if<Send>(&action)) {
    if (send->message.type == MessageType::prepare) return false;
    return send->message.type != MessageType::restore ||
           before.find(before.find(send->session)->tenant)->wants;
  }
  return std::holds_alternative<SetGate>(action) || std::holds_alternative<RecordLease>(action) ||
         std::holds_alternative<Drop>(action) || std::holds_alternative<Look>(action);
}

Tuning tuning_of(const Scenario& scenario) {
  Tuning tuning;
  tuning.evict_step = mebibytes(4);
  tuning.turns = scenario.turns;
  if (scenario.mutes > 0) tuning.overuse = OveruseRules{.most = kMostOveruse, .cancel = true};
  if (scenario.hostile > 0) {
    tuning.overuse = OveruseRules{.most = kMostOveruse, .cancel = true};
    tuning.patience = kPatience;
    tuning.crowd_patience = kCrowdPatience;
    tuning.first_surveys = std::chrono::seconds(5);
  }
  // Disables growth forecasts: they fall as time passes, and the core arms no timer for this.
  if (scenario.early_advances) tuning.surge_pause = {};
  return tuning;
}

}  // namespace

World::World(const Scenario& scenario, Listener listener, Watcher watcher)
    : scenario_(scenario),
      listener_(std::move(listener)),
      watcher_(std::move(watcher)),
      random_(scenario.seed) {
  policy_ = make_policy(scenario.policy);
  core_ = std::make_unique<Core>(tuning_of(scenario_), *policy_, Recovered{}, now());
  end_ = now() + scenario.length;
  for (unsigned i = 0; i < scenario.gpus; ++i) {
    GpuUuid uuid;
    uuid.bytes[0] = static_cast<std::uint8_t>(i + 1);
    uuids_.push_back(uuid);
    gpus_.emplace_back();
    if (!scenario.learned) find_gpu(i, false);
  }
  // Limits each honest tenant to the GPU's memory minus the memory that hostile clients really have.
  if (scenario.hostile > 0)
    for (unsigned t = 1; t <= scenario.tenants; ++t)
      caps_[TenantId{t}] = mebibytes(scenario.capacity) - held_by_hostile(scenario);
  for (unsigned t = 1; t <= scenario.tenants; ++t)
    for (unsigned s = random(1, scenario.most_sessions); s > 0; --s)
      at(now() + delay(3000), [this, t] { arrive(TenantId{t}, random(0, scenario_.gpus - 1)); });
  for (unsigned m = 1; m <= scenario.mutes; ++m)
    at(now() + delay(3000),
       [this, t = scenario_.tenants + m] { arrive(TenantId{t}, random(0, scenario_.gpus - 1)); });
  if (scenario.hostile > 0)
    hostile_.emplace(static_cast<HostileClients::Surroundings&>(*this),
                     TenantId{scenario.tenants + scenario.mutes + 1}, scenario.hostile, scenario.absurd);
  for (unsigned i = 0; i < scenario.restarts; ++i)
    at(now() + delay(static_cast<unsigned>(scenario.length / 1ms) / 2), [this] { restart(); });
  for (unsigned i = 0; i < scenario.switches; ++i) {
    const std::string_view name = kPolicies[random(0, std::size(kPolicies) - 1)];
    at(now() + delay(static_cast<unsigned>(scenario.length / 1ms)), [this, name] { switch_policy(name); });
  }
  if (scenario.stops) at(now() + delay(3000), [this] { stop_somebody(); });
  if (scenario.terms) at(now() + delay(3000), [this] { change_terms(); });
  if (scenario.early_advances) at(now() + delay(100), [this] { advance_early(); });
  if (scenario.surveys) at(now() + delay(1000), [this] { survey(); });
  if (hostile_) survey();  // without surveys, the core would believe all reports of memory
  if (scenario.losses) at(now() + delay(500), [this] { change_gpu(); });
  if (scenario.forgets) at(now() + delay(300), [this] { forget_somebody(); });
  if (scenario.learned) at(now() + scenario.length / 2, [this] { find_gpu(0, false); });
}

World::~World() = default;

void World::at(Nanoseconds time, std::function<void()> what) { timeline_.at(time, std::move(what)); }

void World::run() {
  while (timeline_.next()) {
    const auto happen = timeline_.go_on();
    if (now() > end_ && !winding_down_) {
      // From now on, no program starts new work, so all programs end.
      winding_down_ = true;
      std::vector<SessionId> all;
      for (const auto& [key, client] : clients_) all.push_back(key);
      for (SessionId key : all) at(now() + delay(1000), [this, key] { die(key); });
      if (hostile_) at(now() + delay(1000), [this] { hostile_->end_all(); });
    }
    happen();
    if (scenario_.checked) check();
    if (winding_down_ && clients_.empty() && (!hostile_ || hostile_->size() == 0)) break;
  }
  check_end();
}

void World::tell(const Event& event) {
  note_request(event);
  const Actions actions = core_->handle(event, now());
  count(actions);
  if (watcher_) watcher_(now(), *core_, event, actions);
  perform(actions);
  note_request(event);  // after perform(): the event may also have ended the lease, which erases the request
  const auto* usage = std::get_if<From<Usage>>(&event);
  if (usage == nullptr) return;
  const auto session = core_->session(usage->session);
  if (session && usage->body.request != 0) tally_.host_waits += session->defers_growth ? 1 : 0;
}

void World::perform(const Actions& actions) {
  auto find = [this](SessionId id) -> Client* {
    for (auto& [key, client] : clients_)
      if (client->id == id) return client.get();
    return nullptr;
  };
  // If a lease was revoked while its session was stopped, the session holds the lease again after the session
  // resumes, until it has drained. An arbiter that was restarted may not know that the lease was revoked.
  // Then, too, the session holds the lease again.
  const Snapshot state = core_->snapshot();
  const auto taken = [&](TenantId id) {
    const Snapshot::Tenant* tenant = state.find(id);
    return tenant != nullptr && tenant->revoked;
  };
  const auto came_back = [&](TenantId id) {
    const std::vector<SessionId>& its = state.find(id)->sessions;
    return std::any_of(its.begin(), its.end(), [&](SessionId each) { return state.find(each)->returned; });
  };
  for (const Action& action : actions) {
    tally_.decisions.note(now(), action);
    if (listener_) listener_(now(), action);
    if (const auto* send = std::get_if<Send>(&action)) {
      if (hostile_ && hostile_->owns(send->session)) hostile_->hear(send->session, send->message);
      Client* client = find(send->session);
      if (client == nullptr) continue;
      if (send->message.type == MessageType::verdict && send->message.as<Verdict>().granted == 0)
        check_refusal(*client, state);
      if (send->message.type == MessageType::prepare) {
        client->prepared = send->message.as<Prepare>().host;
        continue;
      }
      // A Prepare must precede each Evict that the core can foresee. The core cannot foresee two cases: a
      // leaving session must evict because another session needs memory to drain, and hostile clients need
      // memory.
      const bool stuck = scenario_.host_runs_out || scenario_.host_short;
      if (scenario_.checked && send->message.type == MessageType::evict && !stuck && !hostile_ &&
          state.find(state.find(client->id)->tenant)->phase != Phase::leaving)
        must(client->prepared != Bytes{}, "an eviction that nobody foresaw");
      client->line_free = std::max(client->line_free, now() + delay(3));
      at(client->line_free, [this, key = client->key, life = life_, message = send->message] {
        if (life == life_) deliver(key, message);
      });
    } else if (const auto* gate = std::get_if<SetGate>(&action)) {
      if (hostile_ && hostile_->owns(gate->session)) continue;
      Client* client = find(gate->session);
      must(client != nullptr, "a gate of nobody");
      client->page.set(*gate);
      if (gate->open) gate_opened(*client);
    } else if (const auto* contended = std::get_if<SetContended>(&action)) {
      if (Client* client = find(contended->session)) {
        client->page.set(*contended);
        watch_idle(client->key, ++client->generation);
      }
    } else if (const auto* ends = std::get_if<SetTurnEnds>(&action)) {
      if (Client* client = find(ends->session)) client->page.set(*ends);
    } else if (const auto* lease = std::get_if<RecordLease>(&action)) {
      last_written_ = now();
      if (lease->grant) {
        ++tally_.turns;
        must(written_.grant(lease->key, lease->epoch, lease->at), "a lease granted twice");
        for (const auto& [key, client] : clients_)
          must(client->tenant != lease->key.tenant || client->use.resident >= client->granted() ||
                   requested_.count(client->tenant) != 0 || taken(client->tenant) ||
                   came_back(client->tenant),
               "a lease that nobody asked for, and that costs");
      } else {
        must(written_.release(lease->key, lease->at), "a lease released that was not granted");
        if (!taken(lease->key.tenant) && !core_->leases().holds(lease->key.tenant))
          requested_.erase(lease->key.tenant);
      }
    } else if (const auto* timer = std::get_if<ArmTimer>(&action)) {
      must(timer->at > now(), "a timer in the past");
      timeline_.set_alarm(timer->at, [this] { tell(TimerFired{}); });
    } else if (const auto* look = std::get_if<Look>(&action)) {
      at(now() + delay(3), [this, id = look->session, life = life_] {
        if (life != life_) return;
        for (const auto& [key, client] : clients_)
          if (client->id == id) return tell(Looked{.session = id, .stopped = client->stopped});
      });
    } else if (const auto* overstay = std::get_if<Overstay>(&action)) {
      must(overstay->tenant.value > scenario_.tenants || overstay->response == Overstay::Response::note,
           "a tenant that behaves is to be ended");
      if (overstay->response == Overstay::Response::cancel) end_mute(overstay->tenant);
      if (overstay->response == Overstay::Response::cancel && hostile_)
        hostile_->end_tenant(overstay->tenant);
    } else if (const auto* note = std::get_if<Note>(&action)) {
      tally_.given_up += note->text.starts_with("does not answer") ? 1 : 0;
    } else if (const auto* drop = std::get_if<Drop>(&action)) {
      if (Client* client = find(drop->session); client != nullptr && scenario_.losses) {
        lose(*client);
        continue;
      }
      must(hostile_ && hostile_->owns(drop->session), "a session that behaves was dropped");
      ++tally_.dropped;
      at(now() + delay(10), [this, id = drop->session] { hostile_->end_session(id); });
    }
  }
}

void World::note_request(const Event& event) {
  const auto note = [this](SessionId id) {
    if (const auto session = core_->session(id)) requested_.insert(session->tenant);
  };
  if (const auto* came = std::get_if<SessionCame>(&event)) requested_.insert(came->tenant);
  if (const auto* want = std::get_if<From<Want>>(&event)) note(want->session);
  if (const auto* released = std::get_if<From<Released>>(&event))
    if (released->body.wants != 0) note(released->session);
  if (const auto* usage = std::get_if<From<Usage>>(&event))
    if (usage->body.request != 0) note(usage->session);
}

Claims World::claims_of(TenantId tenant) const {
  if (!scenario_.claims) return {};
  const auto changed = claims_changed_.find(tenant);
  const std::uint64_t kind = tenant.value + (changed == claims_changed_.end() ? 0 : changed->second);
  return {.units = 1 + static_cast<std::uint32_t>(kind % 3),
          .priority = static_cast<std::int32_t>(kind / 2 % 3),
          .request = 0.2 * static_cast<double>(kind % 3),
          .limit = kind % 4 == 3 ? 0.5 : 1,
          .timed = tenant.value % 2 == 1,
          .deadline = std::chrono::milliseconds(scenario_.deadlines ? tenant.value % 3 * 20 : 0)};
}

void World::switch_policy(std::string_view name) {
  std::unique_ptr<Policy> next = make_policy(name);
  RulesSet rules{.node = {.policy = next.get(), .turns = scenario_.turns}};
  for (const GpuUuid& gpu : uuids_)
    if (random(0, 2) == 0)
      rules.own[gpu] = {.policy = elastic_.get(), .turns = scenario_.turns, .all_timed = true};
  if (scenario_.terms) rules.node.queue = random(0, 1) * 5ms;
  if (scenario_.terms && random(0, 2) == 0)
    for (const GpuUuid& gpu : uuids_)
      rules.own[gpu] = {.policy = next.get(), .turns = scenario_.turns, .by_threads = true};
  tell(rules);
  policy_ = std::move(next);
}

// ---- arrival, end, and the arbiter's death ----

void World::arrive(TenantId tenant, unsigned gpu) {
  if (winding_down_) return;
  if (scenario_.losses) {
    const auto placed = place(tenant);
    if (!placed) return at(now() + delay(1000), [this, tenant, gpu] { arrive(tenant, gpu); });
    gpu = *placed;
  }
  auto client = std::make_unique<Client>();
  client->id = client->key = SessionId{++last_session_};
  client->tenant = tenant;
  client->gpu = gpu;
  Client& its = *client;
  its.mute = tenant.value > scenario_.tenants;
  its.step = its.mute ? 0 : random(0, 1);
  // The new session continues with the same submission number as the other sessions of its tenant.
  for (const auto& [key, other] : clients_)
    if (other->tenant == tenant) its.submitted = its.done = std::max(its.submitted, other->submitted);
  clients_[client->key] = std::move(client);
  tell(SessionCame{.session = its.id,
                   .tenant = tenant,
                   .step = {.job = static_cast<std::uint32_t>(tenant.value), .step = its.step},
                   .cap = caps_[tenant],
                   .host_cap = mebibytes(scenario_.host_cap),
                   .oversize = scenario_.oversize,
                   .claims = claims_of(tenant),
                   .expected = false,
                   .can_be_away = true,
                   .hello = {}});
  say(its, Attach{.gpu = uuids_[gpu], .total = {}, .name = {}});
}

void World::die(SessionId key) {
  auto entry = clients_.find(key);
  if (entry == clients_.end()) return;
  SessionId id = entry->second->id;
  TenantId tenant = entry->second->tenant;
  clients_.erase(entry);
  tell(SessionGone{.session = id});
  // The other sessions of the tenant do not wait for a session that has ended.
  for (auto& [other, client] : clients_)
    if (client->tenant == tenant) complete(*client);
}

void World::end_mute(TenantId tenant) {
  ++tally_.cancelled;
  for (const auto& [key, client] : clients_) {
    if (client->tenant != tenant) continue;
    at(now() + delay(1000), [this, key = key, tenant, gpu = client->gpu] {
      die(key);
      at(now() + delay(1000), [this, tenant, gpu] { arrive(tenant, gpu); });
    });
  }
}

void World::restart() {
  if (winding_down_) return;
  ++life_;
  timeline_.set_alarm(std::nullopt, {});
  Recovered recovered;
  recovered.leases = written_;
  recovered.placements = core_->snapshot().placements;
  recovered.last_record = last_written_;
  for (const auto& [key, client] : clients_)
    if (client->attached) ++recovered.expected_sessions;
  for (const auto& [key, lease] : written_.open())
    recovered.last_epoch = std::max(recovered.last_epoch, lease.epoch);
  core_ = std::make_unique<Core>(tuning_of(scenario_), *policy_, std::move(recovered), now());
  for (unsigned gpu = 0; gpu < scenario_.gpus && !scenario_.learned; ++gpu) {
    if (gpus_[gpu].condition == GpuCondition::lost) continue;
    find_gpu(gpu, false);
    if (scenario_.losses) tell_of_gpu(gpu);
  }
  for (auto& [key, client] : clients_) {
    client->had_gate = client->page.open;
    client->id = {};
    client->line_free = now();
    at(now() + delay(1500), [this, key = key, life = life_] {
      auto entry = clients_.find(key);
      if (entry == clients_.end() || life != life_) return;
      Client& its = *entry->second;
      its.id = SessionId{++last_session_};
      its.came_back = now();
      its.page.open = false;  // the new lease page is closed until the arbiter opens it
      Hello hello;
      hello.resuming = 1;
      hello.held = its.had_gate;
      hello.wants = its.waiting;
      hello.epoch = its.epoch;
      auto job = static_cast<std::uint32_t>(its.tenant.value);
      tell(SessionCame{.session = its.id,
                       .tenant = its.tenant,
                       .step = {.job = job, .step = its.step},
                       .cap = caps_[its.tenant],
                       .host_cap = mebibytes(scenario_.host_cap),
                       .oversize = scenario_.oversize,
                       .claims = claims_of(its.tenant),
                       .expected = its.attached,
                       .can_be_away = true,
                       .hello = hello});
      if (!its.page.open && its.computing) its.in_turn = true;
      say(its, Attach{.gpu = uuids_[its.gpu], .total = {}, .name = {}});
      if (!its.attached) return;
      say(its, usage(its));
      if (its.asking) say(its, usage(its, its.requests));
    });
  }
}

void World::find_gpu(unsigned gpu, bool learned) {
  tell(GpuFound{.gpu = uuids_[gpu],
                .total = mebibytes(scenario_.capacity + kForContexts),
                .capacity = mebibytes(scenario_.capacity),
                .learned = learned});
}

// Checks that the core arms a timer for each decision that depends on time: if a domain is advanced before
// its timer fires, the core decides nothing.
void World::advance_early() {
  if (winding_down_) return;
  at(now() + delay(100), [this] { advance_early(); });
  // If a timer is due within a millisecond, an earlier decision may still have effects, and nothing is
  // checked.
  if (timeline_.alarm() && *timeline_.alarm() <= now() + 1ms) return;
  const Snapshot before = core_->snapshot();
  for (const Snapshot::Session& session : before.sessions) {
    if (session.frozen) continue;
    // The core knows that this process is not stopped, so the event only advances the domain of the process.
    const Actions actions = core_->handle(Looked{.session = session.id, .stopped = false}, now());
    for (const Action& action : actions)
      if (decides(action, before))
        throw std::logic_error("no timer was armed for " + describe(now(), action));
    perform(actions);
  }
}

// Surveys all GPUs. A survey does not show memory for which a request waits: this memory does not exist yet.
void World::survey() {
  if (winding_down_) return;
  at(now() + 500ms + delay(1000), [this] { survey(); });
  for (std::size_t i = 0; i < uuids_.size(); ++i) {
    GpuSurvey found{.unmanaged = {}, .limit = mebibytes(scenario_.capacity), .reserve = {}};
    for (const auto& [key, client] : clients_) {
      if (client->gpu != i || client->id == SessionId{}) continue;
      const Bytes asked = client->asking ? minus(client->use.pinned, client->before_growth_pinned) : Bytes{};
      // A margin for contexts: an allocation needs a context, even if the client has reported none.
      constexpr Bytes kLeast = mebibytes(1);
      found.sessions[client->id] =
          client->use.resident + client->use.pinned + client->use.context - asked + kLeast;
    }
    const auto honest = found.sessions;
    if (hostile_) hostile_->show(uuids_[i], found);
    at(now() + delay(20), [this, i, found, honest, life = life_] {
      if (life != life_ || core_->in_grace()) return;
      check_allowed(honest);
      tell(Surveyed{.gpu = uuids_[i], .found = found});
      check_reports();
    });
  }
}

void World::change_terms() {
  if (winding_down_) return;
  at(now() + delay(5000), [this] { change_terms(); });
  const TenantId tenant{random(1, scenario_.tenants)};
  caps_[tenant] = random(0, 1) == 0 ? Bytes{} : mebibytes(random(20, scenario_.capacity));
  claims_changed_[tenant] += random(0, 1);
  tell(CapSet{.tenant = tenant,
              .cap = caps_[tenant],
              .host_cap = mebibytes(scenario_.host_cap),
              .oversize = scenario_.oversize,
              .claims = claims_of(tenant)});
}

// Ends the tenant as if its job had ended. A later tenant with the same number starts without the history of
// the ended tenant.
void World::forget_somebody() {
  if (winding_down_) return;
  at(now() + delay(300), [this] { forget_somebody(); });
  const TenantId tenant{random(1, scenario_.tenants)};
  for (const auto& [key, client] : clients_)
    if (client->tenant == tenant) return;
  perform(core_->forget(tenant));
  must(!written_.holds(tenant), "a lease of a tenant that is forgotten");
  written_.forget(tenant);
  ++tally_.forgotten;
}

// Stops one process of a tenant, or all of them. Some stops are suspensions by Slurm, which announces them.
void World::stop_somebody() {
  if (winding_down_) return;
  at(now() + delay(5000), [this] { stop_somebody(); });
  const TenantId tenant{random(1, scenario_.tenants)};
  const bool slurm = random(0, 1) == 0;
  const bool one = !slurm && random(0, 2) == 0;
  if (slurm) tell(Suspend{.tenant = tenant, .suspended = true});
  const Nanoseconds stopping = now() + (slurm ? delay(300) : Nanoseconds{});
  const Nanoseconds going_on = stopping + delay(4000);
  unsigned count = 0;
  for (const auto& [key, client] : clients_) {
    if (client->tenant != tenant || client->stopped || (one && count > 0)) continue;
    ++count;
    at(stopping, [this, key = key] {
      auto entry = clients_.find(key);
      if (entry != clients_.end()) stop(*entry->second);
    });
    at(going_on, [this, key = key] { go_on(key); });
  }
  if (slurm) at(going_on, [this, tenant] { tell(Suspend{.tenant = tenant, .suspended = false}); });
}

void World::stop(Client& client) {
  if (std::exchange(client.stopped, true)) return;
  ++tally_.stops;
}

void World::go_on(SessionId key) {
  auto entry = clients_.find(key);
  if (entry == clients_.end() || !entry->second->stopped) return;
  Client& client = *entry->second;
  const Snapshot state = core_->snapshot();
  const Snapshot::Session* session = state.find(client.id);
  const bool taken = session != nullptr && state.find(session->tenant)->revoked;
  tally_.taken += taken ? 1 : 0;
  client.stopped = false;
  client.went_on = client.waiting_since = now();
  // A thread may have been stopped between the check of the gate and the submission.
  const bool free = client.let_in && !client.waiting && !client.asking && client.missing() == Bytes{};
  if (free && client.begun && random(0, 1) == 0) {
    tally_.late_work += taken ? 1 : 0;
    submit(client);
  }
  for (const auto& what : std::exchange(client.put_off, {})) what();
}

}  // namespace sharedgpu::test
