// SPDX-License-Identifier: Apache-2.0
// The handlers of events. Each handler stores the event's data in the part of the core that owns the data.
#include "arbiter/core/core.h"

#include <algorithm>
#include <utility>

#include "arbiter/core/placement.h"

namespace sharedgpu {
namespace {

// If an event is handled this long after the time for which the timer was set, or later, the arbiter itself
// did not run for a while.
constexpr std::chrono::milliseconds kStandstill{100};

}  // namespace

Core::Core(const Tuning& tuning, const Policy& policy, Recovered recovered, Nanoseconds now)
    : tuning_(tuning),
      model_({.policy = &policy, .turns = tuning.turns}),
      placements_(std::move(recovered.placements)),
      recovery_(tuning, recovered, now),
      presence_(tuning_, effects_),
      memory_(tuning_, effects_),
      turns_(tuning_, presence_, gangs_, memory_, effects_, std::move(recovered.leases), recovered.last_epoch,
             now),
      scheduler_(tuning_, model_, presence_, memory_, turns_, gangs_, effects_),
      overuse_(tuning_, presence_, memory_, turns_, gangs_, effects_) {
  effects_.begin(now);
  for (const auto& [key, lease] : leases().open()) {
    const auto [tenant, known] = model_.add(key.tenant);
    if (!known) {
      presence_.add(*tenant);
      gangs_.add(*tenant);
      scheduler_.add(*tenant);
      overuse_.add(*tenant);
    }
    turns_.recover(*tenant, key, lease, recovered.last_record);
  }
}

Actions Core::handle(const Event& event, Nanoseconds now) {
  effects_.begin(now);
  if (now - std::min(now, next_advance_) >= kStandstill) pass_over(now - next_advance_);
  std::visit([this](const auto& what) { on(what); }, event);
  if (recovery_.over(now)) end_recovery();
  advance_all();
  return effects_.take();
}

// Call if the arbiter did not run for `standstill`, because the host was suspended or the process was
// stopped. The arbiter may not have read the answers of tenants yet, so this time does not count in the
// timeouts of restores and requests for memory, and not as overuse.
void Core::pass_over(Nanoseconds standstill) {
  memory_.pass_over(model_, standstill);
  turns_.pass_over(model_, standstill);
  overuse_.pass_over(model_, standstill);
}

Session* Core::find(SessionId id) {
  Session* session = model_.find(id);
  if (session != nullptr) model_.touch(*session->tenant);
  return session;
}

Session* Core::find_reporting(SessionId id) {
  Session* session = find(id);
  if (session != nullptr) resume(*session);
  return session;
}

void Core::resume(Session& session) {
  if (!presence_.resume(session)) return;
  model_.touch(*session.tenant);
  memory_.note_progress(session);
  turns_.on_resumed(session);
}

// ---- GPUs and rules ----

void Core::on(const GpuFound& event) {
  const auto known = model_.gpus().size();
  const auto found = std::count_if(model_.gpus().begin(), model_.gpus().end(),
                                   [](const auto& other) { return !other.second.learned; });
  const auto [gpu, is_known] = model_.add(event.gpu);
  // If the arbiter itself finds a GPU, its data replaces earlier data that sessions reported on the GPU.
  if (is_known && (event.learned || !gpu->learned)) return;
  gpu->number = static_cast<unsigned>(event.learned ? known : found);
  gpu->minor = event.minor;
  gpu->total = event.total;
  gpu->capacity = event.capacity;
  gpu->learned = event.learned;
  model_.make_stale();
  if (is_known) return;
  memory_.add(*gpu);
  turns_.add(*gpu);
  scheduler_.add(*gpu);
}

// A lost GPU has lost its contents, and its sessions can neither evict nor restore. So these sessions are
// removed from the memory accounting, like the sessions of dead processes. The processes of these sessions
// get the driver's error, as without sharedgpu.
void Core::on(const GpuChanged& event) {
  Gpu* gpu = model_.find(event.gpu);
  if (gpu == nullptr || gpu->learned) return;
  gpu->condition = event.condition;
  if (event.condition != GpuCondition::lost) return;
  for (Session* session : std::vector<Session*>(gpu->sessions)) {
    model_.touch(*session->tenant);
    effects_.drop(*session, "the GPU is lost");
    remove(*session);
  }
}

void Core::on(const GpuDrained& event) {
  if (Gpu* gpu = model_.find(event.gpu)) gpu->drained = event.drained;
}

void Core::on(const Surveyed& event) {
  const Gpu* gpu = model_.find(event.gpu);
  if (gpu == nullptr) return;
  memory_.survey(*gpu, event.found);
  for (const Session* session : gpu->sessions) model_.touch(*session->tenant);
}

// The new rules apply from this event on, also to turns that have begun.
void Core::on(const RulesSet& event) {
  model_.set_rules(event.node, event.own);
  for (const auto& [uuid, gpu] : model_.gpus()) scheduler_.set_rules(gpu);
}

// If OnOveruse= has changed to or from cancel, a tenant that exceeds MaxOveruse gets the new response, even
// if it has had the old one.
void Core::on(const TuningSet& event) {
  const bool cancelled = tuning_.overuse && tuning_.overuse->cancel;
  tuning_.set(event.node);
  if (tuning_.overuse && tuning_.overuse->cancel != cancelled) overuse_.forget_responses(model_);
  for (const auto& [id, tenant] : model_.tenants()) model_.touch(tenant);
}

void Core::on(const CapacitySet& event) {
  Gpu* gpu = model_.find(event.gpu);
  if (gpu == nullptr) return;
  gpu->capacity = event.capacity;
  for (const Session* session : gpu->sessions) model_.touch(*session->tenant);
}

// A placed tenant stays on its GPUs, since its processes know these GPUs. If one of these GPUs is gone or has
// failed, the tenant's GPUs are chosen again; choose_gpus() prefers GPUs that the tenant's sessions use. If a
// step can open none of the tenant's GPUs, because the step's units are of another type than the units of
// earlier steps, the tenant gets additional GPUs.
void Core::on(const Place& event) {
  Placement& placement = placements_[event.tenant];
  std::vector<GpuUuid>& gpus = placement.gpus;
  const bool stays = std::all_of(gpus.begin(), gpus.end(), [this](const GpuUuid& uuid) {
    const Gpu* gpu = model_.find(uuid);
    return gpu != nullptr && gpu->condition == GpuCondition::healthy;
  });
  const Snapshot state = snapshot();
  if (!stays || gpus_seen(state, placement, event.demand).empty()) {
    const std::vector<GpuUuid> more = choose_gpus(state, event.tenant, event.demand);
    if (!stays && !more.empty()) gpus.clear();
    gpus.insert(gpus.end(), more.begin(), more.end());
  }
  placement.units = units_on_each(std::max(event.demand.units, 1u), gpus.size());
  if (gpus.empty()) placements_.erase(event.tenant);
}

void Core::on(const Unplace& event) { placements_.erase(event.tenant); }

void Core::on(const CapSet& event) {
  if (Tenant* tenant = model_.find(event.tenant))
    set_terms(*tenant, {.footprint = event.cap, .host = event.host_cap, .oversize = event.oversize},
              event.claims);
}

void Core::set_terms(Tenant& tenant, const Limits& limits, const Claims& claims) {
  model_.touch(tenant);
  scheduler_.restate(tenant, claims);
  model_.state(tenant, limits, claims);
}

// ---- sessions come and go ----

void Core::on(const SessionCame& event) {
  const auto [tenant, known_tenant] = model_.add(event.tenant);
  if (!known_tenant) {
    presence_.add(*tenant);
    gangs_.add(*tenant);
    turns_.add(*tenant);
    scheduler_.add(*tenant);
    overuse_.add(*tenant);
    scheduler_.on_waiting(*tenant);
  }
  if (event.job != 0 && tenant->job == 0) {
    tenant->job = event.job;
    tenant->gang = tenant->unsettled = true;
  }
  set_terms(*tenant, {.footprint = event.cap, .host = event.host_cap, .oversize = event.oversize},
            event.claims);

  const auto [session, known] = model_.add(event.session);
  if (known) return;
  session->step = event.step;
  session->backend = event.hello.backend;
  session->resumes = event.hello.resuming != 0;
  session->can_be_away = event.can_be_away && session->backend == Backend::swap;
  if (event.expected) recovery_.expect(session->id);
  const bool wants = session->resumes && event.hello.wants != 0;
  // The time that the tenant waited under the earlier arbiter is unknown, so its wait begins now.
  if (wants && !turns_.wants(*tenant)) scheduler_.on_waiting(*tenant);
  model_.join(*tenant, *session);
  presence_.add(*session);
  memory_.add(*session);
  memory_.expect_host_limits(*session, event.host_limit, event.job_host_limit);
  turns_.add(*session, wants);
  scheduler_.add(*session);

  // If the session holds the lease that the ledger knows, the lease continues without a pause. Otherwise the
  // tenant leaves, and the session gets a Revoke after its Attach.
  if (session->resumes && turns_.resuming(*tenant) && turns_.phase_of(*tenant) == Phase::running) {
    if (event.hello.held != 0 && event.hello.epoch == turns_.epoch(*tenant))
      turns_.keep_open(*session);
    else
      leave_or_ask(*tenant);
  }
  turns_.welcome(*session, event.hello.backend);
}

void Core::on(const SessionGone& event) {
  Session* session = find(event.session);
  if (session == nullptr) return;
  if (Session* heir = model_.find(event.heir); heir != nullptr && !attached(heir)) succeed(*session, *heir);
  remove(*session);
}

void Core::remove(Session& session) {
  Tenant& tenant = *session.tenant;
  turns_.note_end(session);
  overuse_.note_end(tenant);
  presence_.remove(session);
  recovery_.settle(session.id);
  const auto lease = attached(&session) ? std::optional(lease_of(session)) : std::nullopt;
  model_.remove(session);
  turns_.detach(tenant, lease);
  if (tenant.job != 0 && !tenant.attached() && !recovery_.active()) gangs_.publish(tenant, {});
  if (!turns_.resuming(tenant) && tenant.sessions.empty()) {
    scheduler_.on_end(tenant);
    model_.remove(tenant);
    return;
  }
  turns_.finish_leaving(tenant);
}

// The heir takes over the memory of `old` in one step, so the memory of the process is always counted, and
// never twice.
void Core::succeed(const Session& old, Session& heir) {
  if (&old == &heir) return;
  model_.touch(*heir.tenant);
  heir.resumes = heir.resumes || old.resumes;
  recovery_.hand_over(old.id, heir.id);
  turns_.set_wants(heir, turns_.wants(heir) || turns_.wants(old));
  memory_.hand_over(old, heir);
  if (!attached(&old)) return;
  attach(heir, *old.gpu);
  if (turns_.is_newcomer(old))
    turns_.attach(heir);
  else
    attach_returned(heir);
}

void Core::on(const From<Attach>& event) {
  Session* session = find(event.session);
  if (session == nullptr) return;
  Gpu* gpu = model_.find(event.body.gpu);
  if (gpu == nullptr) return effects_.drop(*session, "this GPU is not known to the arbiter");
  if (attached(session) && session->gpu != gpu)
    return effects_.drop(*session, "a session can use only one GPU");
  if (gpu->condition == GpuCondition::lost) return effects_.drop(*session, "the GPU is lost");
  const bool is_first = !attached(session);
  attach(*session, *gpu);
  if (!is_first) return;
  if (session->resumes)
    attach_returned(*session);
  else
    turns_.attach(*session);
}

void Core::attach(Session& session, Gpu& gpu) {
  session.may_be_away = session.can_be_away && session.tenant->limits.oversize;
  const Viewer viewer = viewer_of(session);
  effects_.send(
      session,
      Attached{.gpu = gpu.uuid, .capacity = memory_.shown_total(gpu, viewer), .oversize = viewer.oversize});
  if (attached(&session)) return;
  if (gpu.sessions.empty()) memory_.expect_survey(gpu);
  model_.attach(session, gpu);
  turns_.confirm_lease(session);
  memory_.note_progress(session);
}

// If the lease of a reconnected session does not continue, the session may still be at work on the GPU until
// it has answered a Revoke.
void Core::attach_returned(Session& session) {
  const Tenant& tenant = *session.tenant;
  if (turns_.gate_open(session)) return turns_.confirm(session);
  turns_.mark_returned(session);
  if (turns_.in_set(tenant)) {
    leave_or_ask(tenant);
    if (turns_.in_set(tenant)) return;  // the coordinator was asked to end the leases on all nodes of the job
    if (turns_.phase_of(tenant) == Phase::leaving)
      return;  // leave() has sent a Revoke to this session and to the tenant's other sessions
  }
  turns_.revoke_returned(session);
}

void Core::leave(const Tenant& tenant, Move::Leave how) {
  how.tenant = &tenant;
  scheduler_.before_leave(tenant);
  if (turns_.leave(tenant))
    for (const Session* session : tenant.sessions)
      if (attached(session) && !scheduler_.estimates().idle(*session)) memory_.defer_growth(*session);
  scheduler_.after_leave(how);
}

// A tenant of a gang leaves together with the gang's tenants on other nodes, so the coordinator is asked.
void Core::leave_or_ask(const Tenant& tenant) {
  if (gangs_.must_be_asked(tenant)) return gangs_.end_for_good(tenant);
  leave(tenant);
}

// ---- what sessions say ----

void Core::on(const From<Usage>& event) {
  Session* session = find_reporting(event.session);
  if (session == nullptr || !attached(session)) return;
  const bool first = memory_.of(*session).unreported;
  memory_.report(*session, event.body, turns_.residency(*session), recovery_.active());
  if (first && turns_.gate_open(*session)) recovery_.settle(session->id);
}

void Core::on(const From<Want>& event) {
  Session* session = find_reporting(event.session);
  if (session == nullptr || turns_.gate_open(*session))
    return;  // the message was sent before the session knew that its gate had opened
  scheduler_.on_want(*session, !turns_.wants(*session->tenant), event.body.host_short != 0);
  turns_.set_wants(*session, true);
  memory_.note_progress(*session);
}

// Sessions send Idle often, and an Idle has no effect until all sessions of the tenant are idle. So the
// tenant's domain is advanced only if all are idle.
void Core::on(const From<Idle>& event) {
  Session* session = model_.find(event.session);
  if (session == nullptr) return;
  resume(*session);
  if (!turns_.gate_open(*session) || event.body.epoch != turns_.epoch(*session)) return;
  scheduler_.on_idle(*session, event.body.idle);
  if (scheduler_.estimates().idle_enough(*session->tenant)) model_.touch(*session->tenant);
}

// The session yields its turn only to tenants that wait now, not to tenants that begin to wait later.
void Core::on(const From<GiveBack>& event) {
  const Session* session = find_reporting(event.session);
  if (session != nullptr && turns_.gate_open(*session) && event.body.epoch == turns_.epoch(*session))
    scheduler_.on_yield(*session);
}

void Core::on(const From<Ready>& event) {
  const Session* session = find_reporting(event.session);
  if (session == nullptr || !attached(session)) return;
  memory_.note_progress(*session);
  if (!turns_.accepts(*session, event.body)) return;
  memory_.report_residency(*session, event.body.use, turns_.residency(*session));
  memory_.on_ready(*session);
}

void Core::on(const From<Released>& event) {
  Session* session = find(event.session);
  if (session == nullptr || !attached(session)) return;
  memory_.note_progress(*session);
  if (!turns_.accepts(*session, event.body)) return;
  presence_.resume(*session);  // without on_resumed(), since a drained session needs no lease
  memory_.report_residency(*session, event.body.use, turns_.residency(*session));
  const bool wants = turns_.wants(*session) || event.body.wants != 0;
  scheduler_.on_drained(*session, event.body.submission, wants);
  turns_.on_drained(*session, wants);
  recovery_.settle(session->id);
  turns_.finish_leaving(*session->tenant);
}

void Core::on(const From<MemoryQuery>& event) {
  const Session* session = find_reporting(event.session);
  if (session == nullptr || !attached(session)) return;
  const Room seen = memory_.room(*session->gpu, viewer_of(*session));
  effects_.send(
      *session,
      MemoryView{.request = event.body.request, .total = seen.total, .free = seen.free, .away = seen.away});
}

void Core::on(const From<Deadlines>& event) {
  const Session* session = find_reporting(event.session);
  if (session == nullptr || !attached(session)) return;
  const Tenant& tenant = *session->tenant;
  const DeadlinesSeen seen{.met = event.body.met, .missed = event.body.missed};
  if (!scheduler_.on_deadlines(tenant, seen)) return;
  if (model_.stale()) find_domains();
  scheduler_.apply_deadlines(model_.domains()[*tenant.domain], tenant, seen);
}

// ---- processes that are stopped ----

void Core::on(const Looked& event) {
  Session* session = find(event.session);
  if (session == nullptr || !attached(session)) return;
  if (!event.stopped) return resume(*session);
  presence_.freeze(*session, event.suspended);
  if (turns_.residency(*session).drained) memory_.freeze(*session);
}

void Core::on(const Suspend& event) {
  const Tenant* tenant = model_.find(event.tenant);
  if (tenant == nullptr) return;
  model_.touch(*tenant);
  presence_.suspend(*tenant, event.suspended);
}

void Core::on(const GangOrdered& event) {
  Tenant* tenant = model_.find(event.tenant);
  if (tenant == nullptr || tenant->job == 0) return;
  model_.touch(*tenant);
  const bool waited = scheduler_.wants(*tenant);
  tenant->gang = event.order.has_value();
  tenant->unsettled = !event.order || !event.order->settled;
  gangs_.obey(*tenant, event);
  if (!waited && scheduler_.wants(*tenant)) scheduler_.on_waiting(*tenant);
  turns_.finish_leaving(*tenant);
}

// Nothing is left to do here: after each event, handle() advances all domains that are due.
void Core::on(const TimerFired& /*event*/) {}

// ---- the previous arbiter ----

// A session that has not reconnected by the end of the recovery period counts as having ended while no
// arbiter ran.
void Core::end_recovery() {
  recovery_.end();
  model_.touch_all();
  memory_.end_recovery(model_, turns_.residencies(model_));
  std::vector<Tenant*> resuming;
  for (const auto& [id, tenant] : model_.tenants())
    if (turns_.resuming(tenant)) resuming.push_back(model_.find(id));
  for (Tenant* tenant : resuming) {
    turns_.end_recovery(*tenant);
    turns_.end_lost_leases(*tenant);
    if (tenant->sessions.empty())
      model_.remove(*tenant);
    else
      turns_.finish_leaving(*tenant);
  }
}

Actions Core::forget(TenantId id) {
  Tenant* tenant = model_.find(id);
  if (tenant != nullptr && turns_.resuming(*tenant) && tenant->sessions.empty()) {
    turns_.end_lost_leases(*tenant);
    model_.remove(*tenant);
  }
  turns_.forget_leases(id);
  return effects_.take();
}

Core::Room Core::room(const GpuUuid& uuid, TenantId id, Bytes limit, const StepName& step,
                      bool can_be_away) const {
  const Gpu* gpu = model_.find(uuid);
  if (gpu == nullptr) return {};
  const Tenant* tenant = model_.find(id);
  if (tenant == nullptr) return memory_.room(*gpu, {.limit = limit});
  // A process of the tenant without a session, for example nvidia-smi, is to see the same values as the
  // tenant's sessions.
  if (uses(*tenant, *gpu))
    can_be_away =
        std::any_of(tenant->sessions.begin(), tenant->sessions.end(),
                    [gpu](const Session* session) { return session->gpu == gpu && session->may_be_away; });
  return memory_.room(*gpu, viewer_of(*tenant, limit, step, can_be_away));
}

Core::Viewer Core::viewer_of(const Session& session) const {
  return viewer_of(*session.tenant, session.tenant->limits.footprint, session.step, session.may_be_away);
}

Core::Viewer Core::viewer_of(const Tenant& tenant, Bytes limit, const StepName& step,
                             bool can_be_away) const {
  Viewer viewer{.tenant = &tenant, .limit = limit, .step = step};
  viewer.oversize = can_be_away && tenant.limits.oversize;
  if (const auto placed = placements_.find(tenant.id); placed != placements_.end())
    for (const GpuUuid& uuid : placed->second.gpus)
      if (const Gpu* gpu = model_.find(uuid)) viewer.gpus.push_back(gpu);
  return viewer;
}

double Core::threads_on(const Snapshot::Gpu& gpu, const Claims& claims) {
  const double part = claims.priority < gpu.threads_left_below ? gpu.threads_left : 1;
  return std::min(claims.limit, std::max(part, claims.request));
}

}  // namespace sharedgpu
