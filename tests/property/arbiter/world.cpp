// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "protocol/policy_names.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kQuantum = 500ms;
// Contexts are taken without asking; here they fit beside the capacity.
constexpr unsigned kForContexts = 60;
constexpr Nanoseconds kPerMib = 100us;  // of copying
constexpr unsigned kAhead = 4;          // submissions that a program gives before it waits for the first
constexpr Nanoseconds kSeen = 400ms;    // until it is noticed that a process goes on
constexpr Nanoseconds kMostOveruse = 5s;
constexpr Bytes kChunk = mebibytes(4);  // evictions and restores report as they go

void must(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Something is waited for: no hint, and no entry that nobody has asked for, which come with the next event.
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
  if (scenario.early_timers) tuning.surge_pause = {};  // a forecast falls as time passes, without a timer
  return tuning;
}

}  // namespace

// One process that behaves, with the memory that it really has. Its `id` is the arbiter's at hand.
struct World::Client : simulation::Session {
  SessionId key;  // what it is called here, whatever the arbiter
  TenantId tenant;
  unsigned gpu = 0;
  bool attached = false;
  bool had_gate = false;   // held a lease as the arbiter died
  bool let_in = false;     // the gate has been open since Ready
  bool begun = false;      // has ever submitted
  bool computing = false;  // has submitted what is not done yet
  unsigned submitted = 0;  // so many in all
  unsigned done = 0;
  bool busy = false;  // the GPU is at the first of those that are not done
  bool full = false;  // waits until some of it is done
  Bytes prepared;     // host memory that evictions need, as the arbiter says
  bool capturing = false;
  std::set<unsigned> holding;  // of what it submitted: ends only once there is more
  Nanoseconds draining_since{};
  unsigned passed = 0;         // threads, while it drained
  std::uint32_t step = 0;      // of its job
  bool mute = false;           // obeys no order
  bool waiting = false;        // at the gate
  bool asking = false;         // for a Verdict
  bool hoarding = false;       // its host memory is used up: cannot evict
  Nanoseconds barred_until{};  // it needs its host memory for itself: the same
  Nanoseconds waiting_since{};
  Nanoseconds idle_since{};
  std::uint64_t requests = 0;
  Bytes before_growth_swappable;
  Bytes before_growth_pinned;
  Nanoseconds line_free{};  // messages keep their order
  unsigned generation = 0;
  Nanoseconds restored_at{};
  bool stopped = false;
  Nanoseconds went_on{};
  Nanoseconds came_back{};                     // to an arbiter that had begun anew
  std::vector<std::function<void()>> put_off;  // until it goes on
  // Puts off what a stopped process cannot do.
  bool puts_off(std::function<void()> what) {
    if (stopped) put_off.push_back(std::move(what));
    return stopped;
  }

  Bytes granted() const { return asking ? std::min(use.swappable, before_growth_swappable) : use.swappable; }
};

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
    if (!scenario.learned) find_gpu(i, false);
  }
  for (unsigned t = 1; t <= scenario.tenants; ++t)
    for (unsigned s = random(1, scenario.most_sessions); s > 0; --s)
      at(now() + delay(3000), [this, t] { arrive(TenantId{t}, random(0, scenario_.gpus - 1)); });
  for (unsigned m = 1; m <= scenario.mutes; ++m)
    at(now() + delay(3000),
       [this, t = scenario_.tenants + m] { arrive(TenantId{t}, random(0, scenario_.gpus - 1)); });
  for (unsigned i = 0; i < scenario.restarts; ++i)
    at(now() + delay(static_cast<unsigned>(scenario.length / 1ms) / 2), [this] { restart(); });
  for (unsigned i = 0; i < scenario.switches; ++i) {
    const std::string_view name = kPolicies[random(0, std::size(kPolicies) - 1)];
    at(now() + delay(static_cast<unsigned>(scenario.length / 1ms)), [this, name] { switch_policy(name); });
  }
  if (scenario.stops) at(now() + delay(3000), [this] { stop_somebody(); });
  if (scenario.terms) at(now() + delay(3000), [this] { change_terms(); });
  if (scenario.early_timers) at(now() + delay(100), [this] { fire_early(); });
  if (scenario.surveys) at(now() + delay(1000), [this] { survey(); });
  if (scenario.forgets) at(now() + delay(300), [this] { forget_somebody(); });
  if (scenario.learned) at(now() + scenario.length / 2, [this] { find_gpu(0, false); });
}

World::~World() = default;

void World::at(Nanoseconds time, std::function<void()> what) { timeline_.at(time, std::move(what)); }

void World::run() {
  while (timeline_.next()) {
    const auto happen = timeline_.go_on();
    if (now() > end_ && !winding_down_) {
      // Nobody starts anything new; then everybody ends.
      winding_down_ = true;
      std::vector<SessionId> all;
      for (const auto& [key, client] : clients_) all.push_back(key);
      for (SessionId key : all) at(now() + delay(1000), [this, key] { die(key); });
    }
    happen();
    if (scenario_.checked) check();
    if (winding_down_ && clients_.empty()) break;
  }
  check_end();
}

void World::tell(const Event& event) {
  note_request(event);
  const Actions actions = core_->handle(event, now());
  if (watcher_) watcher_(now(), *core_, event, actions);
  perform(actions);
  note_request(event);  // the same event may have ended the lease before
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
  // Whose lease was taken while stopped has it again as it goes on, until it has drained, also from an
  // arbiter that knows nothing of that.
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
      Client* client = find(send->session);
      if (client == nullptr) continue;
      if (send->message.type == MessageType::prepare) {
        client->prepared = send->message.as<Prepare>().host;
        continue;
      }
      // Who gives up memory on its way out, so that another can leave, was not to be foreseen.
      const bool stuck = scenario_.host_runs_out || scenario_.host_short;
      if (scenario_.checked && send->message.type == MessageType::evict && !stuck &&
          state.find(state.find(client->id)->tenant)->phase != Phase::leaving)
        must(client->prepared != Bytes{}, "an eviction that nobody foresaw");
      client->line_free = std::max(client->line_free, now() + delay(3));
      at(client->line_free, [this, key = client->key, life = life_, message = send->message] {
        if (life == life_) deliver(key, message);
      });
    } else if (const auto* gate = std::get_if<SetGate>(&action)) {
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
    } else if (const auto* note = std::get_if<Note>(&action)) {
      tally_.given_up += note->text.starts_with("does not answer") ? 1 : 0;
    } else if (std::get_if<Drop>(&action) != nullptr) {
      throw std::logic_error("a session that behaves was dropped");
    }
  }
}

// What must hold at every moment.
void World::check() {
  std::vector<Bytes> there(uuids_.size());
  std::vector<Bytes> contexts(uuids_.size());
  for (const auto& [key, client] : clients_) {
    there[client->gpu] += client->use.resident + client->use.pinned;
    if (client->asking) there[client->gpu] -= minus(client->use.pinned, client->before_growth_pinned);
    contexts[client->gpu] += client->use.context;
    must(client->use.resident <= client->use.swappable, "more resident than allocated");
    if (client->page.open && client->attached) {
      must(client->asking || client->missing() == Bytes{} || !client->computing,
           "work on memory that is not there");
      must(core_->leases().holds(client->tenant), "an open gate without a lease");
    }
    // What a process that is stopped had submitted goes on, and when it goes on itself is seen a little
    // later, by an arbiter that knows it.
    const bool known = client->id != SessionId{} && !core_->in_grace();
    const bool overlaps =
        client->stopped || !known || now() - std::max(client->went_on, client->came_back) < kSeen;
    must(!client->computing || overlaps || core_->leases().holds(client->tenant), "work without a lease");
  }
  const Snapshot state = core_->snapshot();
  check_together(state);
  check_alone(state);
  check_host();
  check_parts(state);
  for (std::size_t i = 0; i < uuids_.size(); ++i) {
    must(there[i] + contexts[i] <= mebibytes(scenario_.capacity + kForContexts), "the GPU is out of memory");
    const Snapshot::Gpu* found = state.find(uuids_[i]);
    if (found == nullptr) {
      must(scenario_.learned, "a GPU that the arbiter found is gone");
      continue;
    }
    const Snapshot::Gpu& gpu = *found;
    must(there[i] <= gpu.usable || core_->in_grace(), "more on the GPU than is usable");
    // An arbiter that begins anew counts growth as promised that its predecessor had not granted yet.
    const bool kept = gpu.promised <= gpu.usable;
    if (core_->in_grace())
      begun_anew_.insert(uuids_[i]);
    else if (kept)
      begun_anew_.erase(uuids_[i]);
    must(kept || begun_anew_.count(uuids_[i]) != 0, "memory promised twice");
  }
  // Far more than a round of turns: somebody starves.
  const Nanoseconds patience = (scenario_.tenants + 2) * (kQuantum + 2s) + 30s + scenario_.patience;
  for (const auto& [key, client] : clients_) {
    if (!client->waiting) continue;
    tally_.longest_wait = std::max(tally_.longest_wait, now() - client->waiting_since);
    const bool stuck = scenario_.host_runs_out || scenario_.host_short;
    must(stuck || now() - client->waiting_since < patience, "starved");
  }
}

// A tenant holds its leases on all its GPUs or on none.
void World::check_together(const Snapshot& state) {
  if (state.recovering) return;
  for (const Snapshot::Tenant& tenant : state.tenants) {
    std::set<bool> gates;
    for (const SessionId each : tenant.sessions) {
      const Snapshot::Session* session = state.find(each);
      if (!session->gpu) continue;
      gates.insert(session->gate_open);
      const auto held =
          core_->leases().open({.tenant = tenant.id, .gpu = *session->gpu, .step = session->step});
      must(held || !session->gate_open, "an open gate on a GPU without a lease there");
    }
    must(gates.size() <= 1, "a tenant's gates are open on some of its GPUs only");
  }
}

// Whose time is ruled has the GPU for itself.
void World::check_alone(const Snapshot& state) {
  if (state.recovering) return;
  for (const Snapshot::Gpu& gpu : state.gpus) {
    std::set<TenantId> open;
    bool ruled = false;
    for (const SessionId each : gpu.sessions) {
      const Snapshot::Session* session = state.find(each);
      if (!session->gate_open) continue;
      open.insert(session->tenant);
      ruled = ruled || state.find(session->tenant)->exclusive;
    }
    must(!ruled || open.size() == 1, "two on a GPU whose time one of them has for itself");
  }
}

// What could have to be evicted never passes what host memory can hold, nor does what holds it.
void World::check_host() {
  std::map<TenantId, Bytes> of_job;
  std::map<std::pair<TenantId, std::uint32_t>, Bytes> of_step;
  std::map<TenantId, Bytes> held;
  for (const auto& [key, client] : clients_) {
    // What it asks to pin may be pinned already, and the answer on its way, before any order to evict.
    const Bytes evictable = minus(client->granted(), client->use.settling);
    of_job[client->tenant] += evictable;
    of_step[{client->tenant, client->step}] += evictable;
    held[client->tenant] += std::max(client->use.host, evictable);
  }
  const auto within = [](const auto& sums, unsigned limit, const char* what) {
    for (const auto& [whose, sum] : sums) must(limit == 0 || sum <= mebibytes(limit), what);
  };
  within(of_step, scenario_.host_limit, "a step has more than its host memory can hold");
  within(of_job, scenario_.job_host_limit, "a job has more than its host memory can hold");
  // What is asked again after a restart is not told from what there is: it does not wait.
  if (scenario_.restarts == 0) within(held, scenario_.host_cap, "a tenant holds more than the site lets it");
}

// What deadlines leave of a tenant's part lies between the least that the policy promises and what it stated.
void World::check_parts(const Snapshot& state) {
  for (const Snapshot::Tenant& tenant : state.tenants) {
    const Claims stated = claims_of(tenant.id);
    const double least = std::min(std::max(0.05, stated.request), stated.limit);
    const double part = tenant.claims.limit;
    if (tenant.stated != stated) continue;  // known from the ledger alone
    must(part <= stated.limit && part >= least, "a part that the policy does not give");
    must(part == stated.limit || tenant.policy->name() == "deadline", "a part that nobody rules");
    tally_.bounded += part < stated.limit ? 1 : 0;
  }
}

void World::check_end() {
  must(clients_.empty(), "somebody is left");
  const Snapshot state = core_->snapshot();
  must(state.sessions.empty() && state.tenants.empty(), "the books are not empty");
  must(core_->leases().open().empty() && written_.open().empty(), "a lease is left open");
  for (unsigned t = 1; t <= scenario_.tenants; ++t)
    must(core_->leases().of_tenant(TenantId{t}, now()) == written_.of_tenant(TenantId{t}, now()),
         "the ledger and the books differ");
  for (const Snapshot::Gpu& gpu : state.gpus) must(gpu.promised == Bytes{}, "memory is lost");
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

// ---- coming, going, and the arbiter's death ----

void World::arrive(TenantId tenant, unsigned gpu) {
  if (winding_down_) return;
  auto client = std::make_unique<Client>();
  client->id = client->key = SessionId{++last_session_};
  client->tenant = tenant;
  client->gpu = gpu;
  Client& its = *client;
  its.mute = tenant.value > scenario_.tenants;
  its.step = its.mute ? 0 : random(0, 1);
  // It joins those who are there in what they do next.
  for (const auto& [key, other] : clients_)
    if (other->tenant == tenant) its.submitted = its.done = std::max(its.submitted, other->submitted);
  clients_[client->key] = std::move(client);
  tell(SessionCame{.session = its.id,
                   .tenant = tenant,
                   .step = {.job = static_cast<std::uint32_t>(tenant.value), .step = its.step},
                   .cap = caps_[tenant],
                   .host_cap = mebibytes(scenario_.host_cap),
                   .claims = claims_of(tenant),
                   .expected = false,
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
  // Who is gone is not waited for.
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
  recovered.last_record = last_written_;
  for (const auto& [key, client] : clients_)
    if (client->attached) ++recovered.expected_sessions;
  for (const auto& [key, lease] : written_.open())
    recovered.last_epoch = std::max(recovered.last_epoch, lease.epoch);
  core_ = std::make_unique<Core>(tuning_of(scenario_), *policy_, std::move(recovered), now());
  for (unsigned gpu = 0; gpu < scenario_.gpus && !scenario_.learned; ++gpu) find_gpu(gpu, false);
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
      its.page.open = false;  // the new page's, until the arbiter says otherwise
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
                       .claims = claims_of(its.tenant),
                       .expected = its.attached,
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

// A decision that follows from the passing of time has a timer: one that fires before then leads to nothing.
void World::fire_early() {
  if (winding_down_) return;
  at(now() + delay(100), [this] { fire_early(); });
  // The consequences of a decision may follow a moment later.
  if (timeline_.alarm() && *timeline_.alarm() <= now() + 1ms) return;
  const Snapshot before = core_->snapshot();
  const Actions actions = core_->handle(TimerFired{}, now());
  for (const Action& action : actions)
    if (decides(action, before)) throw std::logic_error("no timer was armed for " + describe(now(), action));
  perform(actions);
}

// Memory that is asked for is not there yet.
void World::survey() {
  if (winding_down_) return;
  at(now() + 500ms + delay(1000), [this] { survey(); });
  for (std::size_t i = 0; i < uuids_.size(); ++i) {
    GpuSurvey found{.unmanaged = {}, .capacity = mebibytes(scenario_.capacity)};
    for (const auto& [key, client] : clients_) {
      if (client->gpu != i || client->id == SessionId{}) continue;
      const Bytes asked = client->asking ? minus(client->use.pinned, client->before_growth_pinned) : Bytes{};
      // Where anything can be allocated there is a context.
      constexpr Bytes kLeast = mebibytes(1);
      found.sessions[client->id] =
          client->use.resident + client->use.pinned + client->use.context - asked + kLeast;
    }
    at(now() + delay(20), [this, i, found, life = life_] {
      if (life == life_ && !core_->in_grace()) tell(Surveyed{.gpu = uuids_[i], .found = found});
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
              .claims = claims_of(tenant)});
}

// As where its job has ended; another of that name begins at zero.
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

// One process of a tenant, or all of them, perhaps as Slurm does it.
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
  // A thread may have been stopped between its look at the gate and its submission.
  const bool free = client.let_in && !client.waiting && !client.asking && client.missing() == Bytes{};
  if (free && client.begun && random(0, 1) == 0) {
    tally_.late_work += taken ? 1 : 0;
    submit(client);
  }
  for (const auto& what : std::exchange(client.put_off, {})) what();
}

// ---- a session ----

template <class Body>
void World::say(Client& client, const Body& body) {
  client.line_free = std::max(client.line_free, now() + delay(2));
  at(client.line_free, [this, key = client.key, life = life_, body] {
    auto entry = clients_.find(key);
    if (entry == clients_.end() || life != life_) return;
    if (std::is_same_v<Body, Attach> && scenario_.learned) find_gpu(entry->second->gpu, true);
    tell(From<Body>{.session = entry->second->id, .body = body});
  });
}

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
      client.use.context = mebibytes(random(0, 3));
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
      if (verdict.granted == 0) {
        ++tally_.refusals;
        tally_.host_refusals += verdict.host_most != Bytes{} ? 1 : 0;
        client.use.swappable = client.before_growth_swappable;
        client.use.pinned = client.before_growth_pinned;
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
        // Leave was asked before anything was there: what is there now is told.
        if (client.use.swappable != client.before_growth_swappable) say(client, usage(client));
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

// Does a piece of the order at hand and comes back for the next.
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

// Turns are of whole submissions: their ends leap where accounts move, and no timer foresees that.
Nanoseconds World::longest_submission(simulation::Session&) {
  return scenario_.early_timers ? Nanoseconds{} : random(0, 2) * 20ms;
}

// ---- a program ----

// Chooses what the program does next. It does one thing at a time.
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
  // Where several tenants get more while they drain, that can be more than can ever be there at once: they
  // allocate before they work.
  unsigned growth = 15;
  if (scenario_.lockstep) growth = client.begun ? 0 : 60;
  if (what < growth) return grow(client);
  if (what < 22 && !client.computing) {
    shrink(client);
    return later(delay(10));
  }
  if (what < 26) return later(delay(2000));  // sleeps
  compute(client);
}

void World::capture(Client& client) {
  if (client.capturing)
    client.capturing = random(0, 3) != 0;
  else
    client.capturing = client.page.open && random(0, 9) == 0;
}

// Who waits at the gate passes now and then, ever more rarely: the GPU may be waiting for it.
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
  const unsigned what = scenario_.pins ? random(0, 5) : 2;
  if (what == 0) {
    client.use.pinned += mebibytes(random(1, 5));
  } else if (what == 1) {
    client.use.settling = std::min(client.use.resident, mebibytes(random(1, 5)));
    client.use.pinned += client.use.settling;
  } else {
    client.use.swappable += mebibytes(random(1, scenario_.largest_growth));
  }
  client.asking = true;
  ++client.requests;
  // Other messages may go before the question, and tell of the growth already.
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
  say(client, usage(client));
  // Host memory is given back later.
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

// Begins with the first of what is not done, once all others have given as much.
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

// A thread that waited at the gate goes on. It finds it closed again, if it was stopped meanwhile.
void World::pass(SessionId key) {
  auto entry = clients_.find(key);
  if (entry != clients_.end() && entry->second->puts_off([this, key] { pass(key); })) return;
  if (entry == clients_.end() || entry->second->asking || entry->second->waiting) return;
  if (!entry->second->computing || scenario_.lockstep || scenario_.entangled) compute(*entry->second);
}

Usage World::usage(const Client& client, std::uint64_t request, bool stuck) const {
  return {.request = request,
          .use = client.use,
          .stuck = stuck,
          .job_host_limit = mebibytes(scenario_.job_host_limit)};
}

// Now and then the program takes so much host memory that what was evicted is in its way.
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

// Twenty times a second, or not for a while; and it tells of deadlines also where it has none.
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

// Every second one has a context and the memory that it was granted; the others have nothing on the GPU.
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
  // What it is about to submit would not end in its turn: so it thinks.
  if (client.page.open && client.page.turn_ends != Nanoseconds{} && random(0, 3) == 0) {
    ++tally_.given_back;
    say(client, GiveBack{.epoch = client.epoch});
  }
  at(now() + 40ms, [this, key, generation] { watch_idle(key, generation); });
}

}  // namespace sharedgpu::test
