// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/jobs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/terms.h"
#include "arbiter/ledger/history.h"
#include "protocol/step_names.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::hours kLookForOld{1};
constexpr std::size_t kForgottenAtOnce = Jobs::kMostKnown / 10;

Demand demand_of(const TenantInfo& tenant, std::uint32_t gpus, DeviceSet devices) {
  return {.units = std::max(tenant.options.units, 1u), .gpus = gpus, .devices = devices};
}

}  // namespace

Jobs::Jobs(asio::io_context& loop, const System& system, Tenants& tenants, FigureBook& figures,
           CoreRunner& core, Administration& administration, Journal& journal, Complaints& complaints,
           Coordination& coordination, RunGroups& groups)
    : system_(system),
      tenants_(tenants),
      figures_(figures),
      core_(core),
      administration_(administration),
      journal_(journal),
      complaints_(complaints),
      coordination_(coordination),
      groups_(groups),
      placements_(loop, system, core, administration, journal, tenants, complaints,
                  [this](TenantId tenant) { may_have_ended(tenant); }),
      looked_for_old_(system.now()) {}

void Jobs::restore(const std::map<TenantId, std::set<ProcessName>>& holders) {
  for (const auto& [tenant, processes] : holders) {
    for (const ProcessName& each : processes) placements_.restore(tenant, each);
    if (TenantInfo* info = tenants_.find(tenant)) info->kept = true;
    may_have_ended(tenant);
  }
}

// ---- the tenants of processes ----

TenantInfo& Jobs::known_or_new(const TenantName& name, uid_t uid) {
  TenantInfo* known = tenants_.find(name);
  if (known == nullptr && name.is_job()) forget_old_jobs();
  if (known != nullptr && known->sessions > 0) return *known;
  // A tenant without sessions is recorded again, because the ledger's newest file may not contain it.
  TenantInfo& tenant = known != nullptr ? *known : tenants_.get(name, uid);
  tenant.touched = system_.now();
  journal_.record(TenantRecord{.tenant = tenant.id, .name = name, .uid = tenant.uid});
  return tenant;
}

TenantInfo* Jobs::find_job(std::uint32_t number) { return tenants_.find(job_name(number)); }

bool Jobs::knows_job_of(const Peer& peer) const {
  const TenantInfo* job = peer.step ? tenants_.find(job_name(peer.step->job)) : nullptr;
  return job != nullptr && acts_for(peer, job->uid) && has_units(job->id);
}

TenantName Jobs::name_of(const Peer& peer, const RunToken& token) const {
  if (peer.step) {
    const TenantName name = job_name(peer.step->job);
    const TenantInfo* job = tenants_.find(name);
    if (job == nullptr || acts_for(peer, job->uid) || peer.uid == 0) return name;
    complaints_.add(peer.account, Cause::foreign,
                    "pid " + std::to_string(peer.pid) + ": in " + job->label() + ", but of another user");
  }
  if (token != RunToken{}) {
    TenantName name;
    name.run = token;
    const TenantInfo* run = tenants_.find(name);
    if (run != nullptr && acts_for(peer, run->uid)) return name;
    complaints_.add(peer.account, Cause::foreign,
                    "pid " + std::to_string(peer.pid) + ": its run token is unknown or another user's");
  }
  TenantName name;
  name.process = peer.process();
  return name;
}

const TenantInfo* Jobs::run_of(const Peer& peer, const RunToken& token) const {
  TenantName name;
  name.run = token;
  const TenantInfo* run = peer.step || token == RunToken{} ? nullptr : tenants_.find(name);
  return run != nullptr && acts_for(peer, run->uid) ? run : nullptr;
}

std::string Jobs::refusal(const Peer& peer, const RunToken& token, bool comes_back) const {
  if (administration_.settings().tenants != TenantKind::jobs) return {};
  const TenantName name = name_of(peer, token);
  const TenantInfo* tenant = tenants_.find(name);
  if (tenant != nullptr && has_units(tenant->id)) return {};
  if (comes_back && name.is_job() && lacks_ledger()) return {};
  if (name.is_job()) return "job " + std::to_string(name.job) + " holds no units of these GPUs here";
  return "the GPUs here are for jobs, and for runs that an administrator starts for a user (Tenants=jobs)";
}

TenantInfo& Jobs::join(const Peer& peer, const RunToken& token) {
  TenantInfo& tenant = known_or_new(name_of(peer, token), peer.uid);
  if (!tenant.name.is_job()) tenant.account = peer.account;
  ++tenant.sessions;
  return tenant;
}

void Jobs::leave(TenantId id) {
  if (TenantInfo* tenant = tenants_.find(id)) {
    --tenant->sessions;
    tenant->last_seen = system_.now();
  }
  may_have_ended(id);
}

bool Jobs::has_units(TenantId id) const {
  const TenantInfo* tenant = tenants_.find(id);
  return tenant != nullptr && tenant->options.units > 0;
}

bool Jobs::lives(const TenantInfo& tenant) const {
  return tenant.sessions > 0 || placements_.is_held(tenant.id) || core_.core().leases().holds(tenant.id);
}

// Ends the placement if no session or process holds it. Then forgets the tenant if it has ended.
void Jobs::may_have_ended(TenantId id) {
  if (TenantInfo* tenant = tenants_.find(id)) tenant->touched = system_.now();
  placements_.may_have_ended(id);
  forget_where_ended(id);
}

// ---- runs ----

void Jobs::run(Client& client, const RunRequest& request) {
  const bool vouched = request.vouched != 0;
  if (!vouched)
    if (const std::string why = refusal(client.peer(), {}, false); !why.empty())
      return client.connection().refuse(why);
  TenantName name;
  if (!system_.random(name.run.bytes, sizeof name.run.bytes))
    return client.connection().refuse("no random numbers");
  TenantInfo& tenant = known_or_new(name, vouched ? request.uid : client.peer().uid);
  tenant.account = vouched ? request.uid : client.peer().account;
  tenant.anchored = true;
  tenant.options = request.options;
  tenant.options.units = vouched ? counted_units(tenant, request.options.units) : 0;  // 0 counts as one
  tenant.brought = brought_now(tenant, administration_.settings());
  journal_.record(OptionsRecord{.tenant = tenant.id, .options = tenant.options, .brought = tenant.brought});
  journal_.flush();
  client.become_run(tenant);
  administration_.warn_of_limits(tenant);
  RunReply reply{.token = name.run, .tenant = tenant.id};
  if (request.chosen == 0)
    reply.gpus =
        placements_.place(client.peer(), tenant.id, demand_of(tenant, request.options.gpus, request.devices));
  if (reply.gpus.count == 0) placements_.hold_unplaced(client.peer(), tenant.id);
  reply.threads = administration_.threads_of(tenant, reply.gpus);
  reply.units = tenant.options.units;
  const Bytes limit = vouched ? group_limit_of(tenant, request.host_memory, administration_.settings(),
                                               {.largest = administration_.largest_gpu_of(tenant.id),
                                                .all = administration_.memory_of(reply.gpus)})
                              : Bytes{};
  if (limit == Bytes{}) {
    if (vouched &&
        (request.host_memory != Bytes{} || administration_.settings().host_memory_per_unit != Bytes{}))
      complaints_.add(tenant.account, Cause::group,
                      tenant.label() +
                          ": its host memory is not limited: the memory of its units is unknown, because "
                          "the arbiter knows no GPU yet");
    return client.send(reply);
  }
  groups_.make(tenant, limit, client.peer(), [its = client.shared_from_this(), reply](bool inside) mutable {
    reply.confined = inside ? 1 : 0;
    its->send(reply);
  });
}

// Limits the units of a run to the units of the node, because a batch system that does not count units may
// request any number. While the arbiter knows no GPU, assumes the largest number of GPUs in a GpuList.
std::uint32_t Jobs::counted_units(const TenantInfo& run, std::uint32_t stated) const {
  const std::uint64_t known = core_.core().gpus();
  const std::uint64_t most =
      (known != 0 ? known : std::size(GpuList{}.gpu)) * administration_.settings().units_per_gpu;
  if (stated <= most) return std::max(stated, 1u);
  complaints_.add(run.account, Cause::excessive,
                  run.label() + ": asks for " + std::to_string(stated) + " units, but gets only the " +
                      std::to_string(most) + " of this node");
  return static_cast<std::uint32_t>(most);
}

void Jobs::join_run(Client& client, const JoinRun& join) {
  client.take_part();
  const TenantInfo* run = run_of(client.peer(), join.token);
  if (run == nullptr || !groups_.may_enter(client.peer())) return client.send(JoinReply{});
  groups_.enter(*run, client.peer(), [its = client.shared_from_this()](bool inside) {
    its->send(JoinReply{.inside = inside ? std::uint8_t{1} : std::uint8_t{0}});
  });
}

void Jobs::run_closed(const Client& client) {
  if (TenantInfo* tenant = tenants_.find(client.tenant())) tenant->anchored = false;
  forget_where_ended(client.tenant());
}

// Forgets the tenant if it has ended and is not a job. A job may start another step.
void Jobs::forget_where_ended(TenantId id) {
  const TenantInfo* tenant = tenants_.find(id);
  if (tenant == nullptr || tenant->sessions > 0 || tenant->anchored || tenant->name.is_job()) return;
  if (tenant->kept && placements_.is_held(id)) return;
  forget(id);
}

void Jobs::forget(TenantId id) {
  core_.forget(id);
  if (const TenantInfo* tenant = tenants_.find(id)) groups_.ended(*tenant);
  journal_.record(EndRecord{.tenant = id});
  journal_.flush();
  placements_.forget(id);
  figures_.forget(id);
  tenants_.forget(id);
}

bool Jobs::may_be_forgotten(const TenantInfo& tenant) const { return tenant.name.is_job() && !lives(tenant); }

// Forgets jobs without living processes: jobs without any activity for History::kLongestPause, and if too
// many tenants are known, also the least recently active jobs. One call forgets many jobs, so that the list
// of all tenants is seldom searched. One call forgets at most kForgottenAtOnce jobs, so that no client waits
// for long.
void Jobs::forget_old_jobs() {
  const Nanoseconds now = system_.now();
  const bool too_many = tenants_.all().size() >= kMostKnown;
  if (!too_many && now - looked_for_old_ < kLookForOld) return;
  if (core_.core().in_grace()) return;  // sessions of jobs that seem to have no process may still reconnect
  looked_for_old_ = now;
  std::multimap<Nanoseconds, TenantId> oldest_first;
  for (const auto& [id, tenant] : tenants_.all())
    if (may_be_forgotten(tenant)) oldest_first.emplace(tenant.touched, id);
  std::size_t forgotten = 0;
  for (const auto& [touched, id] : oldest_first) {
    const bool is_old = now - touched > History::kLongestPause;
    if (forgotten == kForgottenAtOnce || (!too_many && !is_old)) return;
    forget(id);
    ++forgotten;
  }
}

// ---- jobs ----

void Jobs::register_job(Client& client, const RegisterJob& job) {
  coordination_.start();
  TenantInfo& tenant = known_or_new(job_name(job.step.job), job.uid);
  take_options(tenant, job);
  administration_.warn_of_limits(tenant);
  RegisterReply reply{
      .accepted = 1,
      .gpus = placements_.place(client.peer(), tenant.id, demand_of(tenant, job.options.gpus, job.devices))};
  administration_.set_terms(tenant);
  reply.threads = administration_.threads_of(tenant, reply.gpus);
  reply.whole = put_before(core_.core().snapshot(), job.whole, reply.gpus);
  client.send(reply);
}

void Jobs::take_options(TenantInfo& tenant, const RegisterJob& job) {
  if (tenant.uid != job.uid) {  // a process of another user had a session before the job was registered
    tenant.uid = tenant.account = job.uid;
    journal_.record(TenantRecord{.tenant = tenant.id, .name = tenant.name, .uid = job.uid});
    if (react_) react_(tenant);
  }
  may_begin_anew(tenant, job);
  if (std::exchange(tenant.over, false)) tenant.options = {};  // drops the options of the last run
  // If a step adds units, the job gets more host memory for them. The amount for the job's other units stays
  // the same even if SwapPerUnit= has changed, because Slurm has given the job its memory by the old value.
  const bool states_all = job.step.step == kBatchStep || tenant.options.units == 0;
  const bool adds = states_all || job.brought != Bytes{} || job.options.units > tenant.options.units;
  const Bytes before = states_all ? Bytes{} : tenant.brought;
  tenant.options = merged(tenant.options, job);
  tenant.options.units = std::max(tenant.options.units, 1u);
  const Bytes now = job.brought != Bytes{} ? job.brought : brought_now(tenant, administration_.settings());
  tenant.brought = adds ? std::max(before, now) : before;
  if (job.gang == 0 && !lives(tenant)) set_nodes(tenant, 1, {});
  journal_.record(OptionsRecord{.tenant = tenant.id, .options = tenant.options, .brought = tenant.brought});
  const JobClass& its_class = job.job_class != JobClass{} ? job.job_class : tenant.job_class;
  const ArrayElement& element = job.element != ArrayElement{} ? job.element : tenant.element;
  if (its_class != tenant.job_class || element != tenant.element) {
    tenant.job_class = its_class;
    tenant.element = element;
    journal_.record(ClassRecord{.tenant = tenant.id, .job_class = its_class, .element = element});
  }
}

void Jobs::register_gang(Client& client, const RegisterGang& gang) {
  TenantInfo& tenant = known_or_new(job_name(gang.job), gang.uid);
  // All steps of a job should register the same nodes, so only the first registration counts.
  const bool is_known = tenant.spans_nodes() && lives(tenant);
  if (!tenant.spans_nodes()) tenant.nodes_are_new = true;
  if (!is_known) set_nodes(tenant, gang.nodes, gang.coordinator);
  client.send(RegisterGangReply{.accepted = 1});
}

void Jobs::set_nodes(TenantInfo& tenant, std::uint32_t nodes, const std::string& coordinator) {
  if (tenant.nodes == nodes && tenant.coordinator == coordinator) return;
  tenant.nodes = nodes;
  tenant.coordinator = coordinator;
  const bool several = tenant.spans_nodes();
  journal_.record(GangRecord{.tenant = tenant.id,
                             .nodes = several ? nodes : 0,
                             .coordinator = several ? word_of(coordinator) : "-"});
}

// A requeued job keeps its number and the numbers of its steps. A new run can begin only if the job has no
// session left, and no process that holds its placement. A step that this node has served before shows that a
// new run has begun, since each step runs only once in a run. A batch step always begins a run. In a job
// without a batch step, a run also begins in two other cases: with the first step after the epilog has
// reported the end of the last run, and when the prolog reports another number of restarts.
void Jobs::may_begin_anew(TenantInfo& tenant, const RegisterJob& job) {
  const bool known = tenant.job_class != JobClass{} && job.job_class != JobClass{};
  const bool another = known && tenant.job_class.restarts != job.job_class.restarts;
  const bool begins = another || tenant.over || job.step.step == kBatchStep;
  // A lease without a session is from an earlier arbiter, and the session that holds it may reconnect.
  const bool held = !begins && core_.core().leases().holds(tenant.id);
  const bool lives = tenant.sessions > 0 || placements_.is_held(tenant.id) || held;
  if (lives || !was_here(tenant, job.step, begins)) return;
  core_.forget(tenant.id);
  journal_.record(BeginRecord{.tenant = tenant.id});
  figures_.forget(tenant.id);
  tenant.losses.clear();
  tenant.told_option = tenant.told_gpu = tenant.told_wait = false;
  tenant.last_seen = {};
}

// Returns true if leases, times or sizes of the step are known. If a run begins with this step, also returns
// true if leases, times, sizes or GPU losses of the job are known.
bool Jobs::was_here(const TenantInfo& tenant, const StepName& step, bool begins) const {
  const LeaseBook& leases = core_.core().leases();
  if (begins && (!leases.steps_of(tenant.id, system_.now()).empty() || figures_.of(tenant.id) != Figures{} ||
                 !tenant.losses.empty()))
    return true;
  return leases.knows(step) || figures_.of(tenant.id, step) != Figures{};
}

bool Jobs::was_told(TenantId id, Bound bound) {
  TenantInfo* tenant = tenants_.find(id);
  if (tenant == nullptr) return false;
  return std::exchange(bound == Bound::gpu ? tenant->told_gpu : tenant->told_option, true);
}

bool Jobs::was_told_of_wait(TenantId id) {
  TenantInfo* tenant = tenants_.find(id);
  return tenant == nullptr || std::exchange(tenant->told_wait, true);
}

void Jobs::end_job(Client& client, const EndJob& end) {
  if (TenantInfo* tenant = find_job(end.job)) {
    tenant->over = true;
    tenant->touched = system_.now();
    journal_.record(OverRecord{.tenant = tenant->id});
    journal_.flush();
  }
  client.send(EndJobReply{.accepted = 1});
}

void Jobs::suspend_job(Client& client, const SuspendJob& job) {
  const bool suspended = job.suspended != 0;
  if (const TenantInfo* tenant = find_job(job.step.job)) {
    log::debug(tenant->label() + (suspended ? ": is about to be stopped" : ": is resumed"));
    core_.handle(Suspend{.tenant = tenant->id, .suspended = suspended});
  }
  client.send(SuspendReply{.accepted = 1});
}

}  // namespace sharedgpu
