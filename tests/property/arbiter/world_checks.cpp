// SPDX-License-Identifier: Apache-2.0
// The invariants that World checks after each event, and the checks at the end of the simulation.
#include <algorithm>
#include <map>

#include "world_client.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kSeen = 400ms;  // time until the arbiter notices that a process has resumed

}  // namespace

// While it enters, a hostile tenant delays other tenants by its messages for up to six timeouts. While it
// leaves, it delays other tenants for up to the longest overuse, and then ends within a second. Three surveys
// disprove the reports of memory of hostile tenants; each survey comes within 1.5 s.
Nanoseconds progress_bound(const Scenario& scenario) {
  constexpr Nanoseconds kHonest = kQuantum + 2s;
  constexpr Nanoseconds kHostile = 6 * (kPatience + 1s) + kMostOveruse + 1s;
  return (scenario.tenants + 1) * kHonest + scenario.hostile * kHostile + 3 * 1500ms + kCrowdPatience;
}

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
    // The GPU continues work that a stopped process has submitted. The arbiter notices a moment later that
    // the process has resumed.
    const bool known = client->id != SessionId{} && !core_->in_grace();
    const bool overlaps =
        client->stopped || !known || now() - std::max(client->went_on, client->came_back) < kSeen;
    must(!client->computing || overlaps || core_->leases().holds(client->tenant), "work without a lease");
  }
  const Snapshot state = core_->snapshot();
  check_together(state);
  check_alone(state);
  check_host();
  check_counted(state);
  check_parts(state);
  for (std::size_t i = 0; i < uuids_.size(); ++i) {
    must(there[i] + contexts[i] <= mebibytes(scenario_.capacity + kForContexts), "the GPU is out of memory");
    const Snapshot::Gpu* found = state.find(uuids_[i]);
    if (found == nullptr) {
      must(scenario_.learned || gpus_[i].condition == GpuCondition::lost,
           "a GPU that the arbiter found is gone");
      continue;
    }
    const Snapshot::Gpu& gpu = *found;
    must(there[i] <= gpu.usable || core_->in_grace(), "more on the GPU than is usable");
    // A restarted arbiter counts requested growth as promised, even if the arbiter before it had not granted
    // the growth.
    const bool kept = hostile_ ? promised_to_honest(state, gpu) <= mebibytes(scenario_.capacity)
                               : gpu.promised <= gpu.usable;
    if (core_->in_grace())
      begun_anew_.insert(uuids_[i]);
    else if (kept)
      begun_anew_.erase(uuids_[i]);
    must(kept || begun_anew_.count(uuids_[i]) != 0, "memory promised twice");
  }
  check_waits();
  if (scenario_.losses) check_gpus(state);
}

// Returns the memory of the GPU that is promised to honest clients. Hostile clients are left out, since their
// reports may exceed the existing memory until surveys have disproved the reports.
Bytes World::promised_to_honest(const Snapshot& state, const Snapshot::Gpu& gpu) const {
  Bytes sum;
  for (const SessionId each : gpu.sessions) {
    const Snapshot::Session& session = *state.find(each);
    if (hostile_->owns(each)) continue;
    const bool out = state.find(session.tenant)->phase == Phase::out;
    sum += session.use.pinned + std::max(session.use.resident, out ? Bytes{} : session.resident_limit);
  }
  return sum;
}

// No survey shows more memory of a session than the arbiter has allowed since the previous survey.
void World::check_allowed(const std::map<SessionId, std::optional<Bytes>>& shown) const {
  const Snapshot state = core_->snapshot();
  for (const auto& [id, memory] : shown) {
    const Snapshot::Session* session = state.find(id);
    if (session == nullptr || !session->gpu) continue;
    if (session->claims_nothing) continue;  // the session's first report has not arrived
    const Bytes allowed = session->allowed.memory + session->allowed.context;
    must(*memory <= allowed + Bytes{allowed.count / 16} + mebibytes(1), "an honest session hides memory");
  }
}

// No survey disproves a report of an honest session.
void World::check_reports() const {
  const Snapshot state = core_->snapshot();
  for (const auto& [key, client] : clients_) {
    const Snapshot::Session* session = state.find(client->id);
    if (session == nullptr || client->mute) continue;
    must(session->disproved == Bytes{}, "an honest report is disproved");
    must(session->unreported == Bytes{}, "memory of an honest session counts as not reported");
  }
}

void World::check_waits() {
  // A tenant that waits for far longer than a round of turns counts as starved.
  const Nanoseconds patience = hostile_
                                   ? progress_bound(scenario_) + scenario_.patience
                                   : (scenario_.tenants + 2) * (kQuantum + 2s) + 30s + scenario_.patience;
  const bool stuck = scenario_.host_runs_out || scenario_.host_short;
  for (const auto& [key, client] : clients_) {
    must(!hostile_ || !client->asking || now() - client->asking_since < patience,
         "an allocation is not answered");
    if (!client->waiting) continue;
    tally_.longest_wait = std::max(tally_.longest_wait, now() - client->waiting_since);
    must(stuck || now() - client->waiting_since < patience, "starved");
  }
}

// False reports of hostile clients take no memory from honest clients: growth that fits beside the real
// memory of all clients is granted.
void World::check_refusal(const Client& client, const Snapshot& state) const {
  if (!hostile_) return;
  Bytes footprint = client.use.footprint();
  Bytes away = client.away;
  const Bytes cap = caps_.at(client.tenant);
  Bytes pinned = held_by_hostile(scenario_);
  Bytes contexts = pinned;
  for (const SessionId each : state.find(uuids_[client.gpu])->sessions) {
    if (hostile_->owns(each)) continue;
    const Snapshot::Session& other = *state.find(each);
    contexts += other.use.context;
    if (other.tenant != client.tenant)
      pinned += other.use.pinned;
    else if (each != client.id) {
      footprint += other.use.footprint();
      away += other.away;
    }
  }
  const Bytes lost = minus(contexts, mebibytes(kForContexts));
  const bool needs_gpu = client.away <= client.before_growth_away;
  const bool fits =
      footprint + away <= cap && (!needs_gpu || footprint + pinned + lost <= mebibytes(scenario_.capacity));
  must(!fits, "growth that fits is refused");
}

// The core sends hostile clients no more answers than they have sent requests. The number of all other
// actions after an event is bounded by the number of sessions.
void World::count(const Actions& actions) {
  constexpr double kForEachSession = 12;
  std::size_t others = 0;
  for (const Action& action : actions) {
    const auto* send = std::get_if<Send>(&action);
    const bool verdict = send != nullptr && send->message.type == MessageType::verdict;
    others += verdict ? 0 : 1;
    verdicts_ += verdict && hostile_ && hostile_->owns(send->session) ? 1 : 0;
  }
  const auto sessions = static_cast<double>(clients_.size() + (hostile_ ? hostile_->size() : 0) + 1);
  tally_.most_actions = std::max(tally_.most_actions, static_cast<double>(others) / sessions);
  must(tally_.most_actions <= kForEachSession, "an event costs more than it may");
  must(!hostile_ || verdicts_ <= hostile_->requests(), "a request is answered twice");
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

// A tenant with exclusive turns is alone on each of its GPUs.
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

// When no message is on its way, the arbiter counts the memory of a process as the process does.
void World::check_counted(const Snapshot& state) const {
  if (state.recovering) return;
  for (const auto& [key, client] : clients_) {
    const Snapshot::Session* session = state.find(client->id);
    const bool silent = !client->asking && !client->mute && client->line_free < now();
    if (session == nullptr || !client->attached || !silent || client->came_back == now()) continue;
    must(session->away == client->away, "away memory is counted wrongly");
    must(session->use.swappable == client->use.swappable, "memory is counted wrongly");
  }
}

// Evictable memory and away memory together never exceed the limits of a step, of a job, and of the site for
// a tenant. The site's limit also bounds the sum of away memory and the host memory that holds evicted
// memory.
void World::check_host() {
  std::map<TenantId, Bytes> of_job;
  std::map<std::pair<TenantId, std::uint32_t>, Bytes> of_step;
  std::map<TenantId, Bytes> held;
  for (const auto& [key, client] : clients_) {
    // Memory for which a pin request is open does not count. If the arbiter has granted the request, the
    // session receives this answer before any later Evict.
    const Bytes evictable = minus(client->granted(), client->use.settling) + client->granted_away();
    of_job[client->tenant] += evictable;
    of_step[{client->tenant, client->step}] += evictable;
    held[client->tenant] +=
        std::max(client->use.host, evictable - client->granted_away()) + client->granted_away();
  }
  const auto within = [](const auto& sums, unsigned limit, const char* what) {
    for (const auto& [whose, sum] : sums) must(limit == 0 || sum <= mebibytes(limit), what);
  };
  within(of_step, scenario_.host_limit, "a step has more than its host memory can hold");
  within(of_job, scenario_.job_host_limit, "a job has more than its host memory can hold");
  // If a session repeats a request for memory after a restart of the arbiter, the arbiter cannot distinguish
  // the requested memory from existing memory. So the request does not wait for host memory.
  if (scenario_.restarts == 0) within(held, scenario_.host_cap, "a tenant holds more than the site lets it");
}

// The part of the time that deadlines leave to a tenant lies between the policy's minimum and the tenant's
// limit.
void World::check_parts(const Snapshot& state) {
  for (const Snapshot::Tenant& tenant : state.tenants) {
    const Claims stated = claims_of(tenant.id);
    const double least = std::min(std::max(0.05, stated.request), stated.limit);
    const double part = tenant.claims.limit;
    if (tenant.stated != stated) continue;  // the core knows the tenant only from the ledger
    must(part <= stated.limit && part >= least, "a part that the policy does not give");
    must(part == stated.limit || tenant.policy->name() == "deadline", "a part that nobody rules");
    tally_.bounded += part < stated.limit ? 1 : 0;
  }
}

void World::check_end() {
  must(clients_.empty(), "the core still has clients");
  const Snapshot state = core_->snapshot();
  must(state.sessions.empty() && state.tenants.empty(), "the books are not empty");
  must(core_->leases().open().empty() && written_.open().empty(), "a lease is left open");
  for (unsigned t = 1; t <= scenario_.tenants; ++t)
    must(core_->leases().of_tenant(TenantId{t}, now()) == written_.of_tenant(TenantId{t}, now()),
         "the ledger and the books differ");
  for (const Snapshot::Gpu& gpu : state.gpus) must(gpu.promised == Bytes{}, "memory is lost");
}

}  // namespace sharedgpu::test
