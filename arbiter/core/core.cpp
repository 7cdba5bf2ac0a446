// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/core.h"

#include <algorithm>
#include <utility>

#include "arbiter/core/actions.h"

namespace sharedgpu {
namespace {

constexpr std::size_t kMostRequests = 4096;  // one per thread of the session
constexpr std::uint64_t kContextPart = 4;
constexpr std::chrono::milliseconds kSoon{1};
constexpr std::chrono::minutes kNotePause{1};  // between two notes of the same

// What a session has once it is granted what it asks for.
MemoryUse settled(MemoryUse use, Bytes settling) {
  use.swappable = minus(use.swappable, settling);
  use.resident = minus(use.resident, settling);
  use.pinned += settling;
  return use;
}

}  // namespace

Core::Core(const Tuning& tuning, const Policy& policy, Recovered recovered, Nanoseconds now)
    : tuning_(tuning),
      rules_{.policy = &policy, .turns = tuning.turns},
      leases_(std::move(recovered.leases)),
      last_epoch_(recovered.last_epoch),
      last_order_(static_cast<std::uint64_t>(now.count())),  // beyond all that a predecessor gave
      in_grace_(!leases_.open().empty() || recovered.expected_sessions > 0),
      grace_until_(now + tuning.grace),
      still_expected_(recovered.expected_sessions) {
  state_.placements = std::move(recovered.placements);
  for (const auto& [key, lease] : leases_.open()) {
    leases_.doubt(key, recovered.last_record);
    Tenant& tenant = state_.tenants[key.tenant];
    tenant.id = key.tenant;
    tenant.rules = rules_;
    tenant.phase = Phase::running;
    tenant.resuming = true;
    tenant.epoch = lease.epoch;
    tenant.opened = tenant.turn_began = lease.since;
    tenant.credit_kept = now;
    last_epoch_ = std::max(last_epoch_, lease.epoch);
  }
}

Actions Core::step(const Event& event, Nanoseconds now) {
  now_ = now;
  std::visit([this](const auto& what) { on(what); }, event);
  if (in_grace_ && (now_ >= grace_until_ || still_expected_ == 0)) end_grace();
  settle();
  return std::exchange(actions_, {});
}

void Core::settle() {
  if (domains_changed_) find_domains();
  Nanoseconds next = in_grace_ && grace_until_ > now_ ? grace_until_ : Nanoseconds::max();
  for (Domain& domain : domains_) {
    const bool is_due = domain.due <= now_;
    wake_ = is_due ? Nanoseconds::max() : domain.due;
    moved_ = false;
    if (is_due) settle(domain);
    // Where a tenant has gone in or out, more may follow from that: with the next event, whatever it is
    // about, or soon.
    next = std::min({next, wake_, moved_ ? now_ + kSoon : wake_});
    domain.due = moved_ ? Nanoseconds{} : wake_;
  }
  if (next != Nanoseconds::max()) actions_.emplace_back(ArmTimer{.at = next});
}

void Core::settle(Domain& domain) {
  lift_bounds(domain);
  for (Gpu* gpu : domain.gpus) notice_stuck(*gpu);
  if (!in_grace_) {
    for (Gpu* gpu : domain.gpus) {
      look_at_held_back(*gpu);
      gpu->usable = usable(*gpu);
    }
    for (Tenant* tenant : domain.tenants) take_from_stopped(*tenant);
    plan(domain);
    for (Tenant* tenant : domain.tenants) tenant->gives_back = false;
    for (Gpu* gpu : domain.gpus) {
      expect_evictions(*gpu);
      make_room(*gpu);
      evict_before_the_stop(*gpu);
      refuse_the_last(*gpu);
    }
    for (Tenant* tenant : domain.tenants) {
      lend_to_who_came_back(*tenant);
      step_laggards(*tenant);
    }
    open_ready(domain);
    const bool contended = others_wait(domain);
    tell_contended(domain, contended);
    note_standing(domain, contended, tell_oversubscribed(domain));
    watch_turn(domain);
    for (Gpu* gpu : domain.gpus) answer_requests(*gpu);
  }
  for (Gpu* gpu : domain.gpus) look_for_stopped(*gpu);
}

void Core::wake_at(Nanoseconds at) {
  if (at > now_) wake_ = std::min(wake_, at);
}

void Core::set_gate(Session& session, bool open) {
  if (session.gate_open == open) return;
  session.gate_open = open;
  actions_.emplace_back(SetGate{.session = session.id, .open = open});
}

Session* Core::find(SessionId id) {
  auto entry = state_.sessions.find(id);
  if (entry == state_.sessions.end()) return nullptr;
  touch(*entry->second.tenant);
  return &entry->second;
}

// Something about it changes: its domain is looked at in this step.
void Core::touch(const Tenant& tenant) {
  if (!domains_changed_ && attached(tenant)) domains_[tenant.domain].due = {};
}

void Core::join(Gpu& gpu, Session& session) {
  const auto by_number = [](const Session* a, const Session* b) { return a->id < b->id; };
  gpu.sessions.insert(std::upper_bound(gpu.sessions.begin(), gpu.sessions.end(), &session, by_number),
                      &session);
}

void Core::part(Gpu& gpu, Session& session) { std::erase(gpu.sessions, &session); }

// Of a session that has just said something.
Session* Core::hear(SessionId id) {
  Session* session = find(id);
  if (session != nullptr) goes_on(*session);
  return session;
}

void Core::on(const GpuFound& event) {
  const auto known = state_.gpus.size();
  const auto found = std::count_if(state_.gpus.begin(), state_.gpus.end(),
                                   [](const auto& other) { return !other.second.learned; });
  auto [entry, is_new] = state_.gpus.try_emplace(event.gpu);
  Gpu& gpu = entry->second;
  // What the arbiter finds itself, be it late, replaces what sessions told.
  if (!is_new && (event.learned || !gpu.learned)) return;
  domains_changed_ = true;
  if (is_new) {
    gpu.rules = rules_of(event.gpu);
    gpu.turn = gpu.rules.policy->length(gpu.rules.turns, {}, 1);
  }
  gpu.number = static_cast<unsigned>(event.learned ? known : found);
  gpu.uuid = event.gpu;
  gpu.minor = event.minor;
  gpu.total = event.total;
  gpu.capacity = event.capacity;
  gpu.learned = event.learned;
}

void Core::on(const SessionCame& event) {
  auto [place, is_new_tenant] = state_.tenants.try_emplace(event.tenant);
  Tenant& tenant = place->second;
  if (is_new_tenant) {
    tenant.id = event.tenant;
    tenant.rules = rules_;
    tenant.epoch = Epoch{++last_epoch_.value};
    tenant.credit_kept = tenant.waiting_since = now_;
    take_account(tenant, *rules_.policy);
  }
  touch(tenant);
  tenant.cap = event.cap;
  tenant.host_cap = event.host_cap;
  take_claims(tenant, event.claims);

  auto [entry, is_new] = state_.sessions.try_emplace(event.session);
  if (!is_new) return;
  Session& session = entry->second;
  session.id = event.session;
  session.tenant = &tenant;
  session.step = event.step;
  session.surge = Surge(tuning_.surge_pause);
  session.resumed = event.hello.resuming != 0;
  // For how long it has waited nobody remembers.
  if (session.resumed && event.hello.wants != 0 && !tenant.wants()) tenant.waiting_since = now_;
  session.wants = session.resumed && event.hello.wants != 0;
  session.epoch = tenant.epoch;
  session.expected = event.expected;
  session.told_sharers = session.resumed ? 0 : 1;  // it may have been told anything
  session.news = now_;
  tenant.sessions.push_back(&session);

  // A lease that the ledger knows goes on without a pause: the page is open before the session maps it. Any
  // other claim to one is settled after Attach, by a Revoke that the session must answer.
  bool continues = session.resumed && tenant.resuming && tenant.phase == Phase::running &&
                   event.hello.held != 0 && event.hello.epoch == tenant.epoch;
  if (continues)
    set_gate(session, true);
  else if (session.resumed && tenant.resuming && tenant.phase == Phase::running)
    leave(tenant);
  send(
      session,
      Welcome{
          .session = session.id, .tenant = tenant.id, .epoch = tenant.epoch, .backend = event.hello.backend});
}

void Core::on(const SessionGone& event) {
  Session* session = find(event.session);
  if (session == nullptr) return;
  Tenant& tenant = *session->tenant;
  Gpu* gpu = session->gpu;
  if (gpu != nullptr && tenant.phase == Phase::leaving && !session->released) gpu->drained = now_;
  no_longer_expected(*session);
  std::erase(tenant.sessions, session);
  // Others of the tenant may still come back, so the lease is given back when the grace is over.
  if (tenant.resuming && gpu != nullptr && !anybody_for(lease_of(*session), tenant))
    leases_.doubt(lease_of(*session), now_);
  if (gpu != nullptr) part(*gpu, *session);
  domains_changed_ = true;
  state_.sessions.erase(event.session);
  if (gpu != nullptr && gpu->learned && gpu->sessions.empty()) state_.gpus.erase(gpu->uuid);
  if (!tenant.resuming) {
    sync_leases(tenant);
    if (tenant.sessions.empty()) {
      keep_account(tenant);
      state_.tenants.erase(tenant.id);
      return;
    }
  }
  if (tenant.phase == Phase::leaving) finish_leaving(tenant);
}

void Core::on(const CapSet& event) {
  auto tenant = state_.tenants.find(event.tenant);
  if (tenant == state_.tenants.end()) return;
  touch(tenant->second);
  tenant->second.cap = event.cap;
  tenant->second.host_cap = event.host_cap;
  take_claims(tenant->second, event.claims);
}

// What is due to the others follows from them, too.
void Core::take_claims(Tenant& tenant, const Claims& stated) {
  if (tenant.stated != stated) domains_changed_ = true;
  const double part = tenant.claims.limit < tenant.stated.limit ? tenant.claims.limit : stated.limit;
  tenant.stated = stated;
  tenant.claims = bounded(stated, tenant.rules.policy->part_after(part, stated, {}));
  tenant.timed = is_timed(tenant);
}

bool Core::is_timed(const Tenant& tenant) {
  Claims claims = tenant.stated;
  claims.timed = claims.timed || tenant.rules.all_timed;
  if (tenant.rules.by_threads) claims.deadline = {};
  return tenant.rules.policy->rules_time(claims);
}

// What one policy has made of a tenant's past and of its claims is nothing to another.
void Core::take_rules(Tenant& tenant, const Rules& rules) {
  if (rules.policy->name() != tenant.rules.policy->name()) {
    keep_credit(tenant);
    tenant.credit = {};
    take_account(tenant, *rules.policy);
    tenant.claims = tenant.stated;
  }
  tenant.rules = rules;
  tenant.timed = is_timed(tenant);
}

const Rules& Core::rules_of(const GpuUuid& gpu) const {
  const auto its = own_.find(gpu);
  return its == own_.end() ? rules_ : its->second;
}

// The running sets stay as they are; what follows from other rules shows as these end. Domains, which are
// found anew, hand them on to their tenants.
void Core::on(const RulesSet& event) {
  rules_ = event.node;
  own_ = event.own;
  for (auto& [uuid, gpu] : state_.gpus) {
    gpu.rules = rules_of(uuid);
    gpu.turn = gpu.rules.policy->length(gpu.rules.turns, gpu.turn.handoff, 1);
  }
  domains_changed_ = true;
}

// Once placed it stays there: its processes know where. Only a GPU that is gone is replaced. Where none is
// open to a step, whose units may be of another type than those of the steps before, it gets others beside
// them.
void Core::on(const Place& event) {
  Placement& placement = state_.placements[event.tenant];
  std::vector<GpuUuid>& its = placement.gpus;
  auto is_here = [this](const GpuUuid& gpu) { return state_.gpus.count(gpu) > 0; };
  const bool stays = std::all_of(its.begin(), its.end(), is_here);
  const Snapshot now_so = snapshot();
  if (!stays || gpus_seen(now_so, placement, event.demand).empty()) {
    const std::vector<GpuUuid> more = choose_gpus(now_so, event.tenant, event.demand);
    if (!stays && !more.empty()) its.clear();
    its.insert(its.end(), more.begin(), more.end());
  }
  placement.units = units_on_each(std::max(event.demand.units, 1u), its.size());
  if (its.empty()) state_.placements.erase(event.tenant);
}

void Core::on(const Unplace& event) { state_.placements.erase(event.tenant); }

void Core::on(const From<Attach>& event) {
  Session* session = find(event.session);
  if (session == nullptr) return;
  auto entry = state_.gpus.find(event.body.gpu);
  if (entry == state_.gpus.end()) {
    actions_.emplace_back(Drop{.session = session->id, .reason = "this GPU is not known to the arbiter"});
    return;
  }
  Gpu& gpu = entry->second;
  if (session->gpu != nullptr && session->gpu != &gpu) {
    actions_.emplace_back(Drop{.session = session->id, .reason = "a process can use one GPU only"});
    return;
  }
  Tenant& tenant = *session->tenant;
  Bytes capacity = tenant.cap == Bytes{} ? gpu.capacity : std::min(tenant.cap, gpu.capacity);
  send(*session, Attached{.gpu = gpu.uuid, .capacity = capacity});
  if (session->gpu == &gpu) return;
  session->gpu = &gpu;
  leases_.confirm(lease_of(*session));
  join(gpu, *session);
  domains_changed_ = true;
  session->news = now_;
  if (session->resumed) {
    attach_resumed(*session);
    return;
  }
  // A newcomer has nothing in memory yet, so it can share at once what its tenant holds.
  session->released = true;
  session->ready = session->epoch == tenant.epoch;
  if (tenant.phase == Phase::running) {
    set_gate(*session, true);
    sync_leases(tenant);
  }
}

// What a resumed session still does with the GPU is not known until it has answered a Revoke, unless its
// lease goes on.
void Core::attach_resumed(Session& session) {
  Tenant& tenant = *session.tenant;
  if (session.gate_open) {
    sync_leases(tenant);
    return;
  }
  session.released = false;
  session.unknown_since = now_;
  if (tenant.in_set()) {
    leave(tenant);
    if (tenant.phase == Phase::leaving) return;  // it was told with the others
  }
  if (tenant.phase == Phase::out) {
    for (Session* other : tenant.sessions) other->released = other != &session;
    begin_to_leave(tenant);
  }
  revoke(session);
}

void Core::on(const From<Usage>& event) {
  Session* session = hear(event.session);
  if (session == nullptr || session->gpu == nullptr) return;
  const Usage& usage = event.body;
  MemoryUse told = usage.use;
  const Bytes settling = std::min({told.settling, told.swappable, told.resident, told.pinned});
  if (usage.request != 0 || session->resumed) told.pinned -= settling;  // it is swappable until it is granted
  told.settling = {};
  session->told_swappable = told.swappable;
  session->job_host_limit = usage.job_host_limit;
  // While it restores, only what has come back counts as progress: words alone must not hold a turn.
  if (session->tenant->phase != Phase::entering || told.resident > session->use.resident)
    session->news = now_;
  if (session->resumed) {
    // What it has, it has: only the sum of what follows can be kept within the GPU.
    session->resumed = false;
    session->told_growth = true;
    session->use = told;
    session->use.swappable = std::min(session->use.swappable, session->gpu->total);
    session->use.pinned = std::min(session->use.pinned, session->gpu->total);
    session->allowed = session->use.swappable;
    session->pinned = session->use.pinned;
    if (session->gate_open) no_longer_expected(*session);
  }
  // In the grace others have not told what they have: end_grace() judges.
  const MemoryUse wanted = settled(told, settling);
  const bool told_before = usage.request != 0 && std::exchange(session->told_growth, false);
  const bool grows = told_before || wanted.swappable > session->use.swappable;  // less is always right
  if (usage.request != 0)
    session->growth_counted = told_before || (session->growth_counted && !session->requests.empty());
  const Bytes host_most = grows ? passed_host_bound(*session, wanted) : Bytes{};
  const bool judged = usage.request != 0 && !in_grace_;
  if (judged && (host_most != Bytes{} || !could_ever_fit(*session, wanted))) {
    send(
        *session,
        Verdict{.request = usage.request, .granted = 0, .allowed = session->allowed, .host_most = host_most});
  } else if (usage.request != 0 && session->requests.size() + session->held_back.size() >= kMostRequests) {
    actions_.emplace_back(Drop{.session = session->id, .reason = "too many requests at once"});
  } else if (judged && grows && waits_for_host(*session, wanted)) {
    told.swappable = session->use.swappable;
    take_use(*session, told, true);
    if (session->held_back.empty()) session->held_back_at = now_;
    session->held_back.push_back(usage.request);
  } else {
    take_use(*session, told, usage.request != 0);
    session->settling = usage.request != 0 ? settling : std::min(session->settling, settling);
    if (usage.request != 0) begin_request(*session, usage.request);
  }
  // It could not say Ready for a growth that has come to nothing, or is there only now. Now it could.
  if (session->tenant->phase == Phase::entering && !session->ready && session->told_all &&
      session->use.resident >= session->use.swappable) {
    session->told_all = false;
    session->told_again = true;
  }
  if (!drained(*session)) return;
  session->stuck_until = {};
  if (usage.stuck != 0 && session->evicting) {
    session->stuck_until = now_ + tuning_.stuck_retry;
    session->allowed = session->use.resident;
    if (session->stuck_noted == Nanoseconds{} || now_ - session->stuck_noted >= kNotePause) {
      session->stuck_noted = now_;
      actions_.emplace_back(Note{.tenant = session->tenant->id,
                                 .text = "cannot evict what it was asked to, mostly for want of host memory; "
                                         "planning around it"});
    }
  }
}

void Core::begin_request(Session& session, std::uint64_t request) {
  if (session.requests.empty()) session.asked_to_grow = now_;
  session.requests.push_back(request);
}

// Their growth begins once the host memory is there, or comes to nothing.
void Core::look_at_held_back(Gpu& gpu) {
  for (Session* session : gpu.sessions) {
    if (session->held_back.empty()) continue;
    MemoryUse use = session->use;
    use.swappable = std::max(use.swappable, session->told_swappable);
    const Nanoseconds due = session->held_back_at + tuning_.host_patience;
    const bool waits = waits_for_host(*session, use);
    if (waits && now_ < due) {
      wake_at(due);
      continue;
    }
    const Bytes host_most = waits ? session->tenant->host_cap : passed_host_bound(*session, use);
    const bool granted = host_most == Bytes{} && could_ever_fit(*session, settled(use, session->settling));
    if (granted) take_use(*session, use, true);
    for (const std::uint64_t request : std::exchange(session->held_back, {})) {
      if (granted)
        begin_request(*session, request);
      else
        send(*session,
             Verdict{.request = request, .granted = 0, .allowed = session->allowed, .host_most = host_most});
    }
  }
}

// Enters what a session tells of its memory. Growth counts only where it was asked for: a session that could
// grow by saying so would starve others.
void Core::take_use(Session& session, MemoryUse told, bool may_grow) {
  told.settling = {};
  if (!may_grow) {
    told.swappable = std::min(told.swappable, session.use.swappable);
    told.pinned = std::min(told.pinned, session.use.pinned);
  }
  // A growth that is yet to be asked for may be filled already, with what was allowed for memory freed since.
  const Phase phase = session.tenant->phase;
  // Before it is told to, nothing comes back, and what it was let pin it may have told as resident once more.
  Bytes most = session.use.resident;
  if (!drained(session) && (phase != Phase::entering || session.asked))
    most = std::max({most, told.swappable, session.allowed, session.under_way});
  told.resident = std::min(told.resident, most);
  // What it says of its contexts lowers what others may have: a tenant is believed up to a part of the GPU.
  Bytes believed{session.gpu->total.count / kContextPart};
  for (const Session* other : session.tenant->sessions)
    if (other != &session && other->gpu == session.gpu) believed = minus(believed, other->use.context);
  told.context = std::min(told.context, believed);
  // A Restore for what is new comes only now, however long ago it was told of the rest.
  if (told.swappable > session.use.swappable && std::exchange(session.ready, false)) session.pressed = now_;
  if (told.swappable > session.use.swappable) session.surge.grew(session.use.swappable, told.swappable, now_);
  if (told.swappable < session.use.swappable) session.surge.fell();
  session.use = told;
  session.peak = std::max(session.peak, told.footprint());
  session.pinned = std::min(session.pinned, told.pinned);
  // What a session has freed it cannot fill again without asking, unless it is restoring: then it may fill
  // what it was allowed, for a growth that it is just about to ask for.
  if (has_arrived(session)) session.allowed = std::min(session.allowed, told.swappable);
  if (phase == Phase::out) session.allowed = std::min(session.allowed, told.resident);
}

// Ready and Released tell what is where. How much there is they may tell as it was before a growth that has
// been granted meanwhile.
void Core::take_residency(Session& session, MemoryUse told) {
  told.swappable = session.use.swappable;
  told.pinned = session.use.pinned;
  take_use(session, told, false);
}

void Core::on(const From<Want>& event) {
  Session* session = hear(event.session);
  if (session == nullptr || session->gate_open) return;  // it crossed the opening of the gate
  Tenant& tenant = *session->tenant;
  if (!tenant.wants()) {
    tenant.waiting_since = now_;
    begin_burst(tenant);
  }
  end_pause(tenant);
  session->wants = true;
  if (event.body.host_short != 0) session->host_short = now_;
  session->news = now_;
}

void Core::on(const From<Idle>& event) {
  Session* session = hear(event.session);
  if (session == nullptr || !session->gate_open || event.body.epoch != session->epoch) return;
  session->idle_told = now_;
  session->idle = event.body.idle;
}

// An offer to those that wait now, and not to those that come later.
void Core::on(const From<GiveBack>& event) {
  Session* session = hear(event.session);
  if (session == nullptr || !session->gate_open || event.body.epoch != session->epoch) return;
  session->tenant->gives_back = session->turn_ends != Nanoseconds{};
  session->tenant->given_back = session->turn_ends;
}

void Core::on(const From<Ready>& event) {
  Session* session = hear(event.session);
  if (session == nullptr || session->gpu == nullptr) return;
  session->news = now_;
  Tenant& tenant = *session->tenant;
  if (event.body.epoch != tenant.epoch || tenant.phase != Phase::entering) return;  // it crossed a Revoke
  take_residency(*session, event.body.use);
  session->ready = session->use.resident >= session->use.swappable;
  if (!session->ready) return;
  session->evicting = false;
  // It may have freed memory on the way, and then another Restore is still to come to it.
  bool more_to_come = session->told_again || session->told_allowed > session->use.resident;
  session->under_way = more_to_come ? session->told_allowed : Bytes{};
}

void Core::on(const From<Released>& event) {
  Session* session = find(event.session);
  if (session == nullptr || session->gpu == nullptr) return;
  session->news = now_;
  Tenant& tenant = *session->tenant;
  if (event.body.epoch != tenant.epoch || event.body.order != session->order) return;
  if (tenant.phase != Phase::leaving) return;
  session->stopped = false;  // and nothing is left for which it would need its lease again
  take_residency(*session, event.body.use);
  session->submission = event.body.submission;
  note_drained(*session);
  session->released = true;
  session->unknown_since = {};
  no_longer_expected(*session);
  session->under_way = {};
  session->allowed = session->use.resident;
  session->wants = session->wants || event.body.wants != 0;
  if (session->wants) end_pause(tenant);
  finish_leaving(tenant);
}

void Core::on(const From<MemoryQuery>& event) {
  Session* session = hear(event.session);
  if (session == nullptr || session->gpu == nullptr) return;
  Room seen = room(*session->gpu, session->tenant->id, session->tenant->cap, session->step);
  send(*session, MemoryView{.request = event.body.request, .total = seen.total, .free = seen.free});
}

Core::Room Core::room(const GpuUuid& gpu, TenantId tenant, Bytes cap, const StepName& step) const {
  const auto found = state_.gpus.find(gpu);
  return found == state_.gpus.end() ? Room{} : room(found->second, tenant, cap, step);
}

Core::Room Core::room(const Gpu& gpu, TenantId tenant, Bytes cap, const StepName& step) const {
  Bytes own;
  Bytes others_pinned;
  for (const Session* session : gpu.sessions) {
    if (session->tenant->id == tenant)
      own += session->use.footprint();
    else
      others_pinned += session->use.pinned;
  }
  Bytes total = gpu.capacity;
  Bytes limit = minus(usable(gpu), others_pinned);
  if (cap != Bytes{}) {
    total = std::min(total, cap);
    limit = std::min(limit, cap);
  }
  Bytes free = minus(limit, own);
  const auto known = state_.tenants.find(tenant);
  if (known != state_.tenants.end()) free = std::min(free, host_room(known->second, step));
  return {.total = total, .free = free};
}

// As time passes more may change than what asked to be woken for.
void Core::on(const TimerFired& /*event*/) { look_at_all(); }

void Core::look_at_all() {
  for (Domain& domain : domains_) domain.due = {};
}

// Whether `session` with `use` could be resident beside what can never leave the GPU, and leave the others as
// able to run as they are.
bool Core::could_ever_fit(const Session& session, const MemoryUse& use) const {
  const Gpu& gpu = *session.gpu;
  // What others ask to pin of it is as good as pinned.
  const auto its = [&](const Session* other) {
    return other == &session ? use : settled(other->use, other->settling);
  };
  Bytes footprint;
  Bytes own_pinned;
  Bytes pinned;
  for (const Session* other : gpu.sessions) {
    const MemoryUse has = its(other);
    pinned += has.pinned;
    if (other->tenant != session.tenant) continue;
    footprint += has.footprint();
    own_pinned += has.pinned;
  }
  const Bytes room = usable(gpu);
  if (session.tenant->cap != Bytes{} && footprint > session.tenant->cap) return false;
  if (footprint + (pinned - own_pinned) > room) return false;
  if (use.pinned <= session.use.pinned) return true;

  const Bytes growth = use.pinned - session.use.pinned;
  std::map<const Tenant*, Bytes> needs;  // of the others, beside what all have pinned
  for (const Session* other : gpu.sessions)
    if (other->tenant != session.tenant)
      needs[other->tenant] += minus(its(other).footprint(), its(other).pinned);
  return std::all_of(needs.begin(), needs.end(), [&](const auto& entry) {
    const Bytes need = entry.second + pinned;
    return need <= room || minus(need, growth) > room;
  });
}

Core::Evictable Core::evictable(const Tenant& tenant, const StepName& step, const Session* but) {
  Evictable sum;
  for (const Session* session : tenant.sessions) {
    if (session == but) continue;
    sum.of_all += session->use.swappable;
    sum.held += std::max(session->use.swappable, session->use.host);
    if (session->step == step) sum.of_step += session->use.swappable;
  }
  return sum;
}

// The same where `session` has `use`.
Core::Evictable Core::evictable_with(const Session& session, const MemoryUse& use) {
  Evictable sum = evictable(*session.tenant, session.step, &session);
  sum.of_step += use.swappable;
  sum.of_all += use.swappable;
  sum.held += std::max(use.swappable, use.host);
  return sum;
}

// The bound on host memory that a tenant passes where `session` has `use`; zero: none. A step's memory holds
// what its own processes evict, the job's what those of all its steps do, and each session tells the limits;
// the site's bound is on all of the tenant.
Bytes Core::passed_host_bound(const Session& session, const MemoryUse& use) {
  const Evictable sum = evictable_with(session, use);
  const Bytes site = session.tenant->host_cap;
  if (use.host_limit != Bytes{} && sum.of_step > use.host_limit) return use.host_limit;
  if (session.job_host_limit != Bytes{} && sum.of_all > session.job_host_limit) return session.job_host_limit;
  if (site != Bytes{} && sum.of_all > site) return site;
  return {};
}

// Whether the tenant passes the site's bound only as long as its processes hold what they have freed.
bool Core::waits_for_host(const Session& session, const MemoryUse& use) {
  const Bytes site = session.tenant->host_cap;
  return site != Bytes{} && evictable_with(session, use).held > site;
}

// How much more a process of `step` may allocate as far as host memory goes.
Bytes Core::host_room(const Tenant& tenant, const StepName& step) {
  const Evictable sum = evictable(tenant, step);
  Bytes room{~0ull};
  if (tenant.host_cap != Bytes{}) room = minus(tenant.host_cap, sum.held);
  for (const Session* session : tenant.sessions) {
    if (session->step == step && session->use.host_limit != Bytes{})
      room = std::min(room, minus(session->use.host_limit, sum.of_step));
    if (session->job_host_limit != Bytes{}) room = std::min(room, minus(session->job_host_limit, sum.of_all));
  }
  return room;
}

std::optional<Bytes> Core::host_budget(const Tenant& tenant) {
  Bytes most = tenant.host_cap == Bytes{} ? Bytes{~0ull} : tenant.host_cap;
  Bytes limit;  // steps may have smaller ones than the job
  for (const Session* session : tenant.sessions) limit = std::max(limit, session->use.host_limit);
  if (limit != Bytes{}) most = std::min(most, limit);
  return most == Bytes{~0ull} ? std::nullopt : std::optional(most);
}

void Core::no_longer_expected(Session& session) {
  if (session.expected && still_expected_ > 0) --still_expected_;
  session.expected = false;
}

Actions Core::forget(TenantId id) {
  const auto found = state_.tenants.find(id);
  if (found != state_.tenants.end() && found->second.resuming && found->second.sessions.empty()) {
    end_lost_leases(found->second);
    state_.tenants.erase(found);
  }
  leases_.forget(id);
  return std::exchange(actions_, {});
}

// Whoever has not come back by now has died while nobody watched.
void Core::end_grace() {
  in_grace_ = false;
  look_at_all();
  // A running session may have told of growth that was never granted.
  for (const auto& [uuid, gpu] : state_.gpus) {
    if (promised(gpu) <= usable(gpu)) continue;
    for (Session* session : gpu.sessions)
      if (session->tenant->phase == Phase::running)
        session->allowed = std::min(session->allowed, session->use.resident);
  }
  for (auto& [id, session] : state_.sessions) {
    if (session.requests.empty()) continue;
    const MemoryUse wanted = settled(session.use, session.settling);
    const Bytes host_most = passed_host_bound(session, wanted);
    if (host_most != Bytes{} || !could_ever_fit(session, wanted)) refuse(session, host_most);
  }
  for (auto it = state_.tenants.begin(); it != state_.tenants.end();) {
    Tenant& tenant = (it++)->second;
    if (!tenant.resuming) continue;
    tenant.resuming = false;
    end_lost_leases(tenant);
    if (tenant.sessions.empty())
      state_.tenants.erase(tenant.id);
    else if (tenant.phase == Phase::leaving)
      finish_leaving(tenant);
  }
}

// Those that none of the tenant's sessions has come back for, or whose last one has gone again.
void Core::end_lost_leases(const Tenant& tenant) {
  std::vector<std::pair<LeaseKey, OpenLease>> lost;
  for (const auto& [key, lease] : leases_.open())
    if (key.tenant == tenant.id && lease.doubted) lost.emplace_back(key, lease);
  for (const auto& [key, lease] : lost) {
    leases_.release(key, *lease.doubted);
    actions_.emplace_back(
        RecordLease{.grant = false, .key = key, .epoch = lease.epoch, .at = *lease.doubted});
  }
}

}  // namespace sharedgpu
