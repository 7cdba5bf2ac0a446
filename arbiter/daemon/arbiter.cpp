// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/arbiter.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "arbiter/daemon/clock.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/status.h"
#include "arbiter/daemon/stopped.h"
#include "arbiter/daemon/terms.h"
#include "protocol/gpu_names.h"

namespace sharedgpu {
namespace {

// No device, host or budget is as large: whoever tells more does not speak the protocol.
constexpr Bytes kLargest{std::uint64_t{1} << 50};
constexpr std::uint64_t kMostMoved = std::uint64_t{1} << 60;      // in the life of a process
constexpr std::uint64_t kMostDeadlines = std::uint64_t{1} << 32;  // in one message
constexpr std::size_t kMostGpus = 64;
constexpr char kTooOften[] = "this user comes too often; it may try again";
// How often to look whether a process that lives on without a connection may still have its memory.
constexpr std::chrono::milliseconds kLinger{200};
constexpr std::chrono::seconds kLedgerRetry{1};
// So much lease time is lost at most when the host goes down, or a job while no arbiter is there.
constexpr std::chrono::seconds kSeenEvery{1};

bool plausible(const MemoryUse& use) {
  for (Bytes bytes : {use.swappable, use.resident, use.pinned, use.context, use.host})
    if (bytes > kLargest) return false;
  return use.settling <= use.resident && use.settling <= use.swappable && use.settling <= use.pinned;
}
bool plausible(const JobOptions& options) {
  return options.memory <= kLargest && options.backend <= Backend::native && options.gpus <= GpuList::kMost &&
         options.units <= JobOptions::kMostUnits && options.share_request <= 100 &&
         options.share_limit <= 100;
}
bool plausible(Traffic moved) {
  return moved.evicted.count <= kMostMoved && moved.restored.count <= kMostMoved;
}
bool plausible(const Usage& body) { return plausible(body.use) && plausible(body.moved); }
bool plausible(const Ready& body) { return plausible(body.use) && plausible(body.moved); }
bool plausible(const Deadlines& body) { return body.met <= kMostDeadlines && body.missed <= kMostDeadlines; }
bool plausible(Nanoseconds time) { return time >= Nanoseconds{} && time < std::chrono::hours(24 * 365); }
// A name that could not be told from another in the ledger is none.
bool plausible(const char (&name)[JobClass::kLongest + 1]) {
  const std::size_t length = strnlen(name, sizeof name);
  return length < sizeof name && std::all_of(name, name + length, [](char c) { return c > ' ' && c <= '~'; });
}
bool plausible(const JobClass& job) { return plausible(job.partition) && plausible(job.qos); }
bool plausible(const Released& body) { return plausible(body.use) && plausible(body.submission); }
bool plausible(const Idle& body) { return plausible(body.idle); }
template <class Body>
bool plausible(const Body& /*body*/) {
  return true;
}

GpuList list_of(const std::vector<GpuUuid>& gpus, unsigned known) {
  GpuList list;
  list.known = known;
  for (const GpuUuid& gpu : gpus)
    if (list.count < GpuList::kMost) list.gpu[list.count++] = gpu;
  return list;
}

// Puts the GPUs that a step holds whole before the shared ones. Returns how many, or 0 where the list stays
// as it is.
std::uint32_t put_before(const Snapshot& state, DeviceSet whole, GpuList& gpus) {
  std::map<unsigned, GpuUuid> found;  // in the host's order
  for (const Snapshot::Gpu& gpu : state.gpus)
    if (gpu.minor && whole.has(*gpu.minor)) found[gpu.number] = gpu.uuid;
  if (gpus.count == 0 || found.size() != whole.count() || found.size() >= GpuList::kMost) return 0;
  std::vector<GpuUuid> all;
  for (const auto& [number, uuid] : found) all.push_back(uuid);
  for (std::uint32_t i = 0; i < gpus.count; ++i)
    if (std::find(all.begin(), all.end(), gpus.gpu[i]) == all.end()) all.push_back(gpus.gpu[i]);
  gpus = list_of(all, gpus.known);
  return static_cast<std::uint32_t>(found.size());
}

std::string read_boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  return file >> text ? text : "unknown";
}

std::string describe(const Settings& settings) {
  return "policy " + settings.policy + ", quantum " +
         (settings.quantum == Nanoseconds{}
              ? "auto"
              : std::to_string(std::chrono::duration<double>(settings.quantum).count()) + " s");
}

Tuning tuning_of(const Settings& settings) {
  Tuning tuning;
  tuning.idle_release = settings.idle_release;
  tuning.turns = rules_of(settings).turns;
  return tuning;
}

}  // namespace

Arbiter::Arbiter(asio::io_context& loop, const Settings& settings)
    : loop_(loop),
      settings_(settings),
      ledger_({.size = settings.ledger_size.count, .files = settings.ledger_files}, start_time_of),
      keepers_(loop,
               [this](TenantId tenant) {
                 placement_may_have_ended(tenant);
                 tenant_may_have_ended(tenant);
               }),
      search_(loop,
              [this](const std::vector<GpuInfo>& gpus) {
                for (const GpuInfo& gpu : gpus) add_gpu(gpu, false);
              }),
      timer_(loop),
      ledger_retry_(loop),
      seen_timer_(loop) {}

std::string Arbiter::start(const std::vector<GpuInfo>& gpus) {
  std::string unknown;
  administrators_.emplace(settings_, unknown);
  if (!unknown.empty()) log::warning("AdminUsers: no such user: " + unknown);

  Ledger::Replay replay;
  const std::string path = settings_.state_dir + "/ledger";
  const Status opened = ledger_.open(
      path, [this](const Record& past) { history_.add(past); }, replay);
  if (!opened.ok()) return opened.message();
  if (replay.damaged > 0)
    log::warning(path + ": passed over " + std::to_string(replay.damaged) + " damaged lines of " +
                 std::to_string(replay.damaged + replay.records));
  for (const Record& past :
       history_.finish({.boot_id = read_boot_id(), .booted = booted()}, start_time_of, now()))
    record(past);
  last_session_ = history_.last_session;
  core_.emplace(tuning_of(settings_), *rules_of(settings_).policy, std::move(history_.recovered), now());
  for (const GpuInfo& gpu : gpus) add_gpu(gpu, false);
  if (gpus.empty()) {
    log::warning("no GPU found: tenants are placed on none until one is, which is looked for from now on");
    search_.start();
  }
  for (const auto& [tenant, processes] : history_.keepers) {
    for (const ProcessName& each : processes)
      keepers_.add(tenant, each, open_process(static_cast<pid_t>(each.pid), each.started));
    if (TenantInfo* info = history_.tenants.find(tenant)) info->kept = true;
    placement_may_have_ended(tenant);
    tenant_may_have_ended(tenant);
  }
  flush_ledger();
  start_mps();
  return {};
}

void Arbiter::start_mps() {
  const std::string folder = mps_folder(settings_.socket);
  if (settings_.mps)
    mps_.emplace(loop_, folder, settings_.state_dir + "/mps", [this] { set_rules(); }).start();
  else if (Mps::find(folder))
    log::warning("Mps=no: the control daemon of an arbiter before still runs; see sharedgpu.conf(5)");
}

void Arbiter::add_gpu(const GpuInfo& gpu, bool learned) {
  Bytes capacity = capacity_of(gpu.total, settings_.device_memory_limit.of(gpu.total),
                               settings_.memory_reserve.of(gpu.total));
  gpu_names_[gpu.uuid] = gpu.name;
  log::info("GPU " + format_gpu(gpu.uuid) + " (" + gpu.name + "): " + format_size(capacity) + " of " +
            format_size(gpu.total) +
            (learned ? " to hand out; its size is as a session told it, unverified" : " to hand out"));
  step(GpuFound{
      .gpu = gpu.uuid, .total = gpu.total, .capacity = capacity, .learned = learned, .minor = gpu.minor});
  set_rules();
}

// Sections name GPUs by number, which the core gives them, and partitions, whose jobs come and go.
// While MPS is not there deadlines bound time.
void Arbiter::set_rules() {
  Settings now_so = settings_;
  now_so.mps = mps_ && mps_->serves();
  step(rules_of(core_->snapshot(), now_so, partitions_));
}

// Of jobs of two partitions on one GPU, neither's rules hold there.
void Arbiter::partitions_may_have_changed() {
  const auto is_about_partitions = [](const Section& section) { return section.of == SectionOf::partition; };
  if (std::none_of(settings_.sections.begin(), settings_.sections.end(), is_about_partitions)) return;
  Partitions now_there = partitions_of(core_->snapshot(), history_.tenants);
  if (now_there == partitions_) return;
  partitions_ = std::move(now_there);
  set_rules();
}

void Arbiter::serve(const std::shared_ptr<Connection>& connection) {
  auto client = std::make_shared<Client>();
  client->connection = connection;
  client->label = "pid " + std::to_string(connection->peer().pid);
  connection->start([this, client](const Message& message,
                                   UniqueFd descriptor) { hear(client, message, std::move(descriptor)); },
                    [this, client](const std::string& reason) { connection_closed(client, reason); });
}

void Arbiter::refuse(Client& client, const std::string& reason) {
  Refused refused;
  std::strncpy(refused.reason, reason.c_str(), sizeof refused.reason - 1);
  client.connection->send(Message::of(refused));
  client.connection->close(reason);
}

void Arbiter::hear(const ClientPtr& client, const Message& message, UniqueFd descriptor) {
  switch (message.type) {
    case MessageType::hello:
      return hear_hello(client, message.as<Hello>());
    case MessageType::attach:
      return hear_attach(*client, message.as<Attach>());
    case MessageType::usage:
      return pass_on<Usage>(*client, message);
    case MessageType::want:
      return pass_on<Want>(*client, message);
    case MessageType::idle:
      return pass_on<Idle>(*client, message);
    case MessageType::give_back:
      return pass_on<GiveBack>(*client, message);
    case MessageType::ready:
      return pass_on<Ready>(*client, message);
    case MessageType::released:
      return pass_on<Released>(*client, message);
    case MessageType::memory_query:
      return pass_on<MemoryQuery>(*client, message);
    case MessageType::deadlines:
      return pass_on<Deadlines>(*client, message);
    case MessageType::borrow:
      return hear_borrow(*client, message.as<Borrow>());
    case MessageType::lend:
      return hear_lend(*client, message.as<Lend>(), descriptor);
    case MessageType::status_query:
      return hear_status_query(*client);
    case MessageType::set_lines:
      return hear_set(*client, message.as<SetLines>());
    case MessageType::run_request:
      return hear_run_request(*client, message.as<RunRequest>());
    case MessageType::register_job:
      return hear_register_job(*client, message.as<RegisterJob>());
    case MessageType::end_job:
      return hear_end_job(*client, message.as<EndJob>());
    case MessageType::suspend_job:
      return hear_suspend_job(*client, message.as<SuspendJob>());
    case MessageType::lease_query:
      return hear_lease_query(*client, message.as<LeaseQuery>());
    case MessageType::job_query:
      return hear_job_query(*client, message.as<JobQuery>());
    case MessageType::gpu_query:
      return hear_gpu_query(*client, message.as<GpuQuery>());
    default:
      return client->connection->close("a message of unknown type");
  }
}

template <class Body>
void Arbiter::pass_on(Client& client, const Message& message) {
  if (client.role != Role::session) return client.connection->close("a session's message before Hello");
  Body body = message.as<Body>();
  if (!plausible(body)) return client.connection->close("a message with impossible numbers");
  if constexpr (requires { body.moved; }) take_traffic(client, body.moved);
  step(From<Body>{.session = client.session, .body = body});
}

// ---- who is who ----

TenantInfo& Arbiter::known_or_new(const TenantName& name, uid_t uid) {
  TenantInfo* known = history_.tenants.find(name);
  if (known != nullptr && known->sessions > 0) return *known;
  // Told again of a tenant that comes again: the ledger's newest file may have left it out.
  TenantInfo& tenant = known != nullptr ? *known : history_.tenants.get(name, uid);
  record({.at = now(), .what = TenantRecord{.tenant = tenant.id, .name = name, .uid = tenant.uid}});
  return tenant;
}

// The tenant that the peer belongs to, or would if there were one of that name.
TenantName Arbiter::name_of(const Peer& peer, const RunToken& token) {
  if (peer.step) {
    TenantName name;
    name.job = peer.step->job;
    const TenantInfo* job = history_.tenants.find(name);
    if (job == nullptr || job->uid == peer.uid || peer.uid == 0) return name;
    log::warning("pid " + std::to_string(peer.pid) + ": in " + job->label() + ", but of another user");
  }
  if (token != RunToken{}) {
    TenantName name;
    name.run = token;
    const TenantInfo* run = history_.tenants.find(name);
    if (run != nullptr && run->uid == peer.uid) return name;
    log::warning("pid " + std::to_string(peer.pid) + ": its run token is unknown or another user's");
  }
  TenantName name;
  name.process = {.pid = static_cast<std::uint32_t>(peer.pid), .started = peer.started};
  return name;
}

// SwapPerUnit bounds what all processes of a tenant swap.
Bytes Arbiter::host_cap_of(const TenantInfo& tenant) const {
  if (tenant.options.backend_given != 0 && tenant.options.backend == Backend::native) return {};
  const std::uint64_t units = std::max(tenant.options.units, 1u);
  Bytes cap;
  return __builtin_mul_overflow(settings_.swap_per_unit.count, units, &cap.count) ? Bytes{} : cap;
}

std::string Arbiter::label_of(TenantId tenant) const {
  auto entry = history_.tenants.all().find(tenant);
  return entry == history_.tenants.all().end() ? "tenant " + std::to_string(tenant.value)
                                               : entry->second.label();
}

// Each that comes and goes leaves records in the ledger, and nobody is to fill that.
bool Arbiter::may_write(const Client& client) {
  constexpr unsigned kAtOnce = 1024;  // enough for every process of a large node
  constexpr unsigned kASecond = 50;
  const uid_t uid = client.connection->peer().uid;
  return uid == 0 || writes_.try_emplace(uid, kAtOnce, kASecond).first->second.take(now());
}

void Arbiter::hear_hello(const ClientPtr& client, const Hello& hello) {
  if (client->role != Role::none) return client->connection->close("a second Hello");
  if (hello.backend > Backend::native) return client->connection->close("an unknown backend");
  if (!may_write(*client)) return client->connection->close(kTooOften);
  const Peer& peer = client->connection->peer();
  // What may be had a moment later is no refusal: the session tries again when its connection is closed.
  if (int error = client->page.create())
    return client->connection->close(std::string("no lease page: ") + std::strerror(error));
  UniqueFd pidfd(fcntl(peer.pidfd.get(), F_DUPFD_CLOEXEC, 0));
  if (!pidfd) return client->connection->close(std::string("no descriptor: ") + std::strerror(errno));

  TenantInfo& tenant = known_or_new(name_of(peer, hello.token), peer.uid);
  ++tenant.sessions;  // before the old session ends, and with it perhaps the tenant
  const bool replaces = end_closed_session_of(peer, hello.gpu);
  client->role = Role::session;
  client->session = SessionId{++last_session_.value};
  client->tenant = tenant.id;
  client->label = tenant.label() + ", pid " + std::to_string(peer.pid);
  sessions_[client->session] = client;

  const StepName of_step = peer.step.value_or(StepName{});
  const auto pid = static_cast<std::uint32_t>(peer.pid);
  const History::PastSession past = history_.take_session(pid, peer.started, hello.gpu);
  if (past.id) record({.at = now(), .what = GoneRecord{.session = past.id}});
  record({.at = now(),
          .what = SessionRecord{.session = client->session,
                                .tenant = tenant.id,
                                .step = of_step,
                                .pid = pid,
                                .started = peer.started,
                                .task = peer.task}});

  client->death.emplace(loop_, pidfd.release());
  client->death->async_wait(asio::posix::descriptor_base::wait_read,
                            [this, client](const asio::error_code& error) {
                              if (!error) session_gone(client);
                            });
  Hello told = hello;
  // Only a process that had a session has anything to resume; anybody can say so.
  if (!past.id && !replaces) told.resuming = 0;
  if (tenant.options.backend_given != 0) told.backend = tenant.options.backend;
  history_.figures.came(tenant.id, of_step, told.backend);
  log::debug(client->label + ": came" + (told.resuming != 0 ? " back" : ""));
  step(SessionCame{.session = client->session,
                   .tenant = tenant.id,
                   .step = of_step,
                   .cap = tenant.options.memory,
                   .host_cap = host_cap_of(tenant),
                   .claims = claims_of(tenant, settings_),
                   .expected = past.expected && told.resuming != 0,
                   .hello = told});
}

void Arbiter::hear_attach(Client& client, const Attach& attach) {
  if (client.role != Role::session) return client.connection->close("Attach before Hello");
  const auto session = core_->session(client.session);
  const bool has_gpu = session && session->gpu;
  if (!has_gpu && !take_in(client, attach)) return;
  step(From<Attach>{.session = client.session, .body = attach});
  if (!has_gpu) partitions_may_have_changed();
}

// What a session's first Attach says of its GPU and of itself. False: it is refused.
bool Arbiter::take_in(Client& client, const Attach& attach) {
  const auto no = [&](const char* reason) {
    refuse(client, reason);
    return false;
  };
  const Snapshot state = core_->snapshot();
  if (state.find(attach.gpu) == nullptr) {
    if (attach.total == Bytes{} || attach.total > kLargest) return no("a GPU without memory");
    if (state.gpus.size() >= kMostGpus) return no("too many GPUs");
    GpuInfo gpu{.uuid = attach.gpu, .total = attach.total, .name = {}};
    for (std::size_t i = 0; i < sizeof attach.name && attach.name[i] != '\0'; ++i)
      gpu.name += attach.name[i] >= ' ' && attach.name[i] <= '~' ? attach.name[i] : '?';
    add_gpu(gpu, true);
  }
  client.gpu = attach.gpu;
  if (attach.lender != 0) loans_.announce(client.session, client.tenant, attach.lender);
  record({.at = now(), .what = AttachRecord{.session = client.session, .gpu = attach.gpu}});
  return true;
}

// Sums never shrink: only what is more than before counts.
void Arbiter::take_traffic(Client& client, Traffic moved) {
  const StepName of_step = client.connection->peer().step.value_or(StepName{});
  history_.figures.add(client.tenant, of_step, minus(moved, client.moved));
  client.moved = moved;
}

void Arbiter::hear_borrow(Client& client, const Borrow& borrow) {
  if (client.role != Role::session) return client.connection->close("Borrow before Hello");
  pass_on(loans_.borrow(client.session, client.tenant, borrow, core_->in_grace()));
}

void Arbiter::hear_lend(Client& client, const Lend& lend, const UniqueFd& descriptor) {
  if (client.role != Role::session) return client.connection->close("Lend before Hello");
  if (auto passed = loans_.lend(client.session, lend)) pass_on(*passed, descriptor.get());
}

void Arbiter::pass_on(const Loans::Passed& passed, int descriptor) {
  auto entry = sessions_.find(passed.to);
  if (entry != sessions_.end()) entry->second->connection->send(passed.message, descriptor);
}

// ---- the command and the Slurm plugins ----

void Arbiter::hear_run_request(Client& client, const RunRequest& request) {
  if (client.role != Role::none) return client.connection->close("a run within a session");
  if (!plausible(request.options)) return client.connection->close("options with impossible numbers");
  if (!may_write(client)) return client.connection->close(kTooOften);
  const uid_t peer = client.connection->peer().uid;
  const bool vouched = request.vouched != 0;
  if (vouched && !administrators_->has(peer))
    return refuse(client, "only an administrator vouches for units or another user");
  TenantName name;
  if (getrandom(name.run.bytes, sizeof name.run.bytes, 0) != sizeof name.run.bytes)
    return refuse(client, "no random numbers");
  TenantInfo& tenant = known_or_new(name, vouched ? request.uid : peer);
  tenant.anchored = true;
  tenant.options = request.options;
  if (!vouched) tenant.options.units = 0;  // nobody vouches for more: it counts as one
  record({.at = now(), .what = OptionsRecord{.tenant = tenant.id, .options = tenant.options}});
  flush_ledger();
  client.role = Role::run;
  client.tenant = tenant.id;
  client.label = tenant.label() + ", pid " + std::to_string(client.connection->peer().pid);
  warn_of_limits(tenant);
  RunReply reply{.token = name.run, .tenant = tenant.id};
  if (request.chosen == 0)
    reply.gpus = place(client, tenant.id,
                       {.units = std::max(tenant.options.units, 1u),
                        .gpus = request.options.gpus,
                        .devices = request.devices});
  if (reply.gpus.count == 0) keep(client, {.tenant = tenant.id, .units = 0, .gpus = {}});
  reply.threads = threads_of(tenant, reply.gpus);
  client.connection->send(Message::of(reply));
}

void Arbiter::hear_register_job(Client& client, const RegisterJob& job) {
  RegisterReply reply;
  const bool accepted = administrators_->has(client.connection->peer().uid) && job.step.job != 0 &&
                        plausible(job.options) && plausible(job.job_class);
  if (accepted) {
    TenantName name;
    name.job = job.step.job;
    TenantInfo& tenant = known_or_new(name, job.uid);
    if (tenant.uid != job.uid) {  // a session came first, from a process that runs as somebody else
      tenant.uid = job.uid;
      record({.at = now(), .what = TenantRecord{.tenant = tenant.id, .name = name, .uid = job.uid}});
    }
    may_begin_anew(tenant, job);
    tenant.over = false;
    tenant.options = merged(tenant.options, job);
    record({.at = now(), .what = OptionsRecord{.tenant = tenant.id, .options = tenant.options}});
    if (job.job_class != JobClass{} && job.job_class != tenant.job_class) {
      tenant.job_class = job.job_class;
      record({.at = now(), .what = ClassRecord{.tenant = tenant.id, .job_class = tenant.job_class}});
    }
    warn_of_limits(tenant);
    set_terms(tenant);
    const Demand demand{
        .units = std::max(tenant.options.units, 1u), .gpus = job.options.gpus, .devices = job.devices};
    reply = {.accepted = 1, .gpus = place(client, tenant.id, demand)};
    reply.threads = threads_of(tenant, reply.gpus);
    reply.whole = put_before(core_->snapshot(), job.whole, reply.gpus);
  } else if (may_write(client)) {
    log::warning("pid " + std::to_string(client.connection->peer().pid) + ", uid " +
                 std::to_string(client.connection->peer().uid) + ": may not register job " +
                 std::to_string(job.step.job));
  }
  client.connection->send(Message::of(reply));
}

void Arbiter::warn_of_limits(const TenantInfo& tenant) const {
  for (const std::string& what : cut_wishes(tenant, settings_)) log::warning(tenant.label() + ": " + what);
}

void Arbiter::set_terms(const TenantInfo& tenant) {
  step(CapSet{.tenant = tenant.id,
              .cap = tenant.options.memory,
              .host_cap = host_cap_of(tenant),
              .claims = claims_of(tenant, settings_)});
}

// A step that is told of when it was here before and nothing of its job lives: the job was requeued, and
// keeps its number and those of its steps. A batch step comes once in a run, and before all others; else the
// epilog tells that a run is over, and the prolog which one this is.
void Arbiter::may_begin_anew(const TenantInfo& tenant, const RegisterJob& job) {
  const StepName of_step = job.step;
  const bool known = tenant.job_class != JobClass{} && job.job_class != JobClass{};
  const bool another = known && tenant.job_class.restarts != job.job_class.restarts;
  const bool first = another || tenant.over || of_step.step == kBatchStep;
  // A lease without a session was left open by an arbiter before: whoever else of the job holds it may still
  // come back.
  const bool held = !first && core_->leases().holds(tenant.id);
  const bool lives = tenant.sessions > 0 || keepers_.any(tenant.id) || held;
  const bool anything = first && (!core_->leases().steps_of(tenant.id, now()).empty() ||
                                  history_.figures.of(tenant.id) != Figures{});
  const bool was_here =
      anything || core_->leases().knows(of_step) || history_.figures.of(tenant.id, of_step) != Figures{};
  if (lives || !was_here) return;
  perform(core_->forget(tenant.id));
  record({.at = now(), .what = BeginRecord{.tenant = tenant.id}});
  history_.figures.forget(tenant.id);
}

void Arbiter::hear_end_job(Client& client, const EndJob& end) {
  EndJobReply reply;
  const Peer& peer = client.connection->peer();
  if (administrators_->has(peer.uid) && end.job != 0) {
    reply.accepted = 1;
    TenantName name;
    name.job = end.job;
    if (TenantInfo* tenant = history_.tenants.find(name)) {
      tenant->over = true;
      record({.at = now(), .what = OverRecord{.tenant = tenant->id}});
      flush_ledger();
    }
  } else if (may_write(client)) {
    log::warning("pid " + std::to_string(peer.pid) + ", uid " + std::to_string(peer.uid) +
                 ": may not end job " + std::to_string(end.job));
  }
  client.connection->send(Message::of(reply));
}

void Arbiter::hear_suspend_job(Client& client, const SuspendJob& job) {
  SuspendReply reply;
  const uid_t uid = client.connection->peer().uid;
  if (administrators_->has(uid) && job.step.job != 0) {
    reply.accepted = 1;
    TenantName name;
    name.job = job.step.job;
    if (const TenantInfo* tenant = history_.tenants.find(name)) {
      log::debug(tenant->label() + (job.suspended != 0 ? ": is about to be stopped" : ": is resumed"));
      step(Suspend{.tenant = tenant->id, .suspended = job.suspended != 0});
    }
  } else if (may_write(client)) {
    log::warning("pid " + std::to_string(client.connection->peer().pid) + ", uid " + std::to_string(uid) +
                 ": may not suspend job " + std::to_string(job.step.job));
  }
  client.connection->send(Message::of(reply));
}

// Those of the tenant's GPUs that the asking process is to see, chosen now if there are none. The tenant
// keeps them while that process lives, or another that was told of them, or a session: whoever dies, nothing
// is left to be cleared up.
GpuList Arbiter::place(const Client& client, TenantId tenant, const Demand& demand) {
  step(Place{.tenant = tenant, .demand = demand});
  partitions_may_have_changed();
  const Snapshot state = core_->snapshot();
  unsigned found = 0;
  unsigned known = 0;
  for (const Snapshot::Gpu& gpu : state.gpus) {
    found += gpu.learned ? 0 : 1;
    known += is_open_to(gpu, demand) ? 1 : 0;
  }
  if (found > 0 && known == 0)
    log::warning(label_of(tenant) + ": not placed: it can open none of the GPUs here");
  const auto placed = state.placements.find(tenant);
  if (placed == state.placements.end()) return {};
  const GpuList list = list_of(gpus_seen(state, placed->second, demand), known);

  keep(client,
       {.tenant = tenant, .units = placed->second.units, .gpus = list_of(placed->second.gpus, known)});
  placement_may_have_ended(tenant);  // without descriptors left nobody would tell later
  log::debug(label_of(tenant) + ": told of " + format_gpus(list));
  return list;
}

// In percent, of each of the GPUs, or of whichever it chooses itself; zero: without MPS.
std::uint32_t Arbiter::threads_of(const TenantInfo& tenant, const GpuList& gpus) const {
  if (!mps_ || !mps_->serves()) return 0;
  const Claims claims = claims_of(tenant, settings_);
  double part = claims.limit;
  const auto end = gpus.gpu + gpus.count;
  for (const Snapshot::Gpu& gpu : core_->snapshot().gpus)
    if (gpus.count == 0 || std::find(gpus.gpu, end, gpu.uuid) != end)
      part = std::min(part, Core::threads_on(gpu, claims));
  return static_cast<std::uint32_t>(std::clamp(std::lround(100 * part), 1l, 100l));
}

// For an arbiter that comes after this one the tenant lasts as long as the asking process.
void Arbiter::keep(const Client& client, PlaceRecord place) {
  const Peer& peer = client.connection->peer();
  const ProcessName process{.pid = static_cast<std::uint32_t>(peer.pid), .started = peer.started};
  place.pid = process.pid;
  place.started = process.started;
  record({.at = now(), .what = place});
  flush_ledger();
  keepers_.add(place.tenant, process, UniqueFd(fcntl(peer.pidfd.get(), F_DUPFD_CLOEXEC, 0)));
}

void Arbiter::placement_may_have_ended(TenantId id) {
  const TenantInfo* tenant = history_.tenants.find(id);
  if (!keepers_.any(id) && (tenant == nullptr || tenant->sessions == 0)) step(Unplace{.tenant = id});
  partitions_may_have_changed();
}

void Arbiter::hear_lease_query(Client& client, const LeaseQuery& query) {
  TenantName name;
  name.job = query.step.job;
  const TenantInfo* tenant = query.step.job == 0 ? nullptr : history_.tenants.find(name);
  LeaseReply reply;
  reply.step = query.step;
  uid_t uid = client.connection->peer().uid;
  if (tenant != nullptr && (uid == tenant->uid || administrators_->has(uid))) {
    bool attached_now = std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
      return entry.second->connection->peer().step == query.step;
    });
    reply.lease = core_->leases().of_step(query.step, now());
    const Figures figures = history_.figures.of(tenant->id, query.step, now());
    reply.moved = figures.moved;
    reply.waited = figures.waited;
    reply.known = attached_now || core_->leases().knows(query.step);
  }
  client.connection->send(Message::of(reply));
}

void Arbiter::hear_job_query(Client& client, const JobQuery& query) {
  TenantName name;
  name.job = query.job;
  const TenantInfo* tenant = query.job == 0 ? nullptr : history_.tenants.find(name);
  const uid_t uid = client.connection->peer().uid;
  JobReply reply;
  reply.job = query.job;
  if (tenant != nullptr && (uid == tenant->uid || administrators_->has(uid))) {
    const Figures figures = history_.figures.of(tenant->id, {}, now());
    reply.known = 1;
    reply.lives = tenant->sessions > 0 || keepers_.any(tenant->id) || core_->leases().holds(tenant->id);
    reply.backends = static_cast<std::uint8_t>(figures.backends);
    reply.lease = core_->leases().of_tenant(tenant->id, now());
    reply.waited = figures.waited;
    reply.overuse = figures.overuse;
    reply.handoffs = figures.handoffs;
    reply.moved = figures.moved;
    reply.footprint = figures.footprint;
    reply.resident = figures.resident;
    models_of(*tenant).copy(reply.models, sizeof reply.models - 1);
  }
  client.connection->send(Message::of(reply));
}

std::string Arbiter::models_of(const TenantInfo& tenant) const {
  std::set<std::string> models;
  for (const auto& [uuid, time] : core_->leases().closed_of(tenant.id).gpus)
    if (const auto name = gpu_names_.find(uuid); name != gpu_names_.end()) models.insert(name->second);
  std::string text;
  for (const std::string& model : models) text += (text.empty() ? "" : ";") + model;
  return text;
}

void Arbiter::hear_gpu_query(Client& client, const GpuQuery& query) {
  GpuReply reply;
  const TenantInfo* tenant = history_.tenants.find(name_of(client.connection->peer(), query.token));
  const Snapshot state = core_->snapshot();
  const Snapshot::Gpu* gpu = state.find(query.gpu);
  const bool native =
      tenant != nullptr && tenant->options.backend_given != 0 && tenant->options.backend == Backend::native;
  if (gpu != nullptr && !native) {
    const TenantId id = tenant != nullptr ? tenant->id : TenantId{};
    const Core::Room room = core_->room(gpu->uuid, id, tenant != nullptr ? tenant->options.memory : Bytes{},
                                        client.connection->peer().step.value_or(StepName{}));
    reply.known = 1;
    reply.total = room.total;
    reply.free = room.free;
    for (const SessionId session_id : gpu->sessions) {
      const Snapshot::Session& session = *state.find(session_id);
      const auto peer = sessions_.find(session_id);
      if (session.tenant != id || peer == sessions_.end()) continue;
      const pid_t pid = pid_seen_by(client.connection->peer().pid, peer->second->connection->peer().pid);
      if (pid == 0) continue;
      const std::uint32_t place = reply.processes++ - query.first;  // wraps around for those before the first
      if (place >= GpuReply::kProcesses) continue;
      reply.process[place] = {.pid = static_cast<std::uint32_t>(pid), .used = session.use.footprint()};
    }
  }
  client.connection->send(Message::of(reply));
}

// Each answer is a file of its own: nobody is sent another before the last one is read.
void Arbiter::hear_status_query(Client& client) {
  if (client.connection->has_unread()) return client.connection->close(kDoesNotRead);
  UniqueFd text;
  std::string json = status();
  if (int error = make_sealed_text(json, text)) return refuse(client, std::strerror(error));
  client.connection->send(Message::of(StatusReply{.size = json.size()}), text.get());
}

// Turns under way go on, and end by the new rules.
void Arbiter::hear_set(Client& client, const SetLines& set) {
  const Peer& peer = client.connection->peer();
  const std::string who = "pid " + std::to_string(peer.pid) + ", uid " + std::to_string(peer.uid);
  if (!administrators_->has(peer.uid)) {
    if (may_write(client)) log::warning(who + ": may not change settings");
    client.connection->send(Message::of(SetReply{}));
    return;
  }
  Settings changed = settings_;
  if (std::string error = change_settings({set.text, strnlen(set.text, sizeof set.text)}, changed);
      !error.empty())
    return refuse(client, error);
  for (std::size_t i = settings_.sections.size(); i < changed.sections.size(); ++i)
    if (std::string unknown = not_here(changed.sections[i].gpus); !unknown.empty())
      return refuse(client, "no GPU " + unknown + " here");
  settings_ = std::move(changed);
  log::info(who + ": " + describe(settings_));
  for (const Snapshot::Gpu& gpu : core_->snapshot().gpus) {
    const Settings its = settings_on(gpu, settings_, partitions_);
    if (describe(its) != describe(settings_))
      log::info("GPU " + std::to_string(gpu.number) + ": " + describe(its));
  }
  partitions_may_have_changed();  // nobody looked before the first section about one
  set_rules();
  for (const auto& [id, tenant] : history_.tenants.all()) set_terms(tenant);
  client.connection->send(Message::of(SetReply{.done = 1}));
}

// The first of them that the arbiter does not know; empty: it knows all.
std::string Arbiter::not_here(const GpuNames& names) const {
  const Snapshot state = core_->snapshot();
  for (const std::uint32_t number : names.numbers)
    if (std::none_of(state.gpus.begin(), state.gpus.end(),
                     [number](const Snapshot::Gpu& gpu) { return gpu.number == number; }))
      return std::to_string(number);
  for (const GpuUuid& uuid : names.uuids)
    if (state.find(uuid) == nullptr) return format_gpu(uuid);
  return {};
}

std::string Arbiter::status() const {
  std::map<SessionId, pid_t> pids;
  for (const auto& [id, client] : sessions_) pids[id] = client->connection->peer().pid;
  const Snapshot state = core_->snapshot();
  return format_status(StatusView{.core = *core_,
                                  .state = state,
                                  .tenants = history_.tenants,
                                  .figures = history_.figures,
                                  .gpu_names = gpu_names_,
                                  .pids = pids,
                                  .settings = settings_,
                                  .now = now()});
}

// ---- ends ----

void Arbiter::connection_closed(const ClientPtr& client, const std::string& reason) {
  if (!reason.empty()) log::warning(client->label + ": dropped: " + reason);
  if (client->role == Role::run) {
    if (TenantInfo* tenant = history_.tenants.find(client->tenant)) tenant->anchored = false;
    tenant_may_have_ended(client->tenant);
  }
  if (client->role != Role::session || !client->death) return;
  client->linger = std::make_unique<asio::steady_timer>(loop_);
  linger(client);
}

// A closed connection is not yet a dead process, and only with that its device memory is free: it may have
// been stopped, or have closed what it did not know, and it comes back.
void Arbiter::linger(const ClientPtr& client) {
  client->linger->expires_after(kLinger);
  client->linger->async_wait([this, client](const asio::error_code& error) {
    if (error) return;
    if (may_come_back(*client))
      linger(client);
    else
      session_gone(client);
  });
}

// Whether the process may still have what the session told of: it runs the same program, which has no other
// session for that GPU.
bool Arbiter::may_come_back(const Client& client) const {
  const Peer& peer = client.connection->peer();
  const auto known = core_->session(client.session);
  if (!known || known->use.footprint() == Bytes{}) return false;
  if (peer.program == 0 || program_of(peer.pid) != peer.program) return false;
  return std::none_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    const Peer& other = entry.second->connection->peer();
    return entry.first != client.session && other.pid == peer.pid && other.started == peer.started &&
           may_be_same(entry.second->gpu, client.gpu);
  });
}

// A process whose connection broke comes with a new one: the old session for that GPU ends now.
bool Arbiter::end_closed_session_of(const Peer& peer, const GpuUuid& gpu) {
  for (const auto& [id, client] : sessions_) {
    const Peer& other = client->connection->peer();
    if (client->linger == nullptr || other.pid != peer.pid || other.started != peer.started) continue;
    if (!may_be_same(client->gpu, gpu)) continue;
    session_gone(ClientPtr(client));
    return true;
  }
  return false;
}

void Arbiter::session_gone(const ClientPtr& client) {
  if (sessions_.erase(client->session) == 0) return;
  client->death.reset();
  client->linger.reset();
  client->connection->close({});
  record({.at = now(), .what = GoneRecord{.session = client->session}});
  log::debug(client->label + ": gone");
  for (const Loans::Passed& passed : loans_.forget(client->session)) pass_on(passed);
  step(SessionGone{.session = client->session});
  const Snapshot state = core_->snapshot();
  std::erase_if(gpu_names_, [&](const auto& entry) { return state.find(entry.first) == nullptr; });
  if (TenantInfo* tenant = history_.tenants.find(client->tenant)) {
    --tenant->sessions;
    tenant->last_seen = now();
  }
  placement_may_have_ended(client->tenant);
  tenant_may_have_ended(client->tenant);
}

void Arbiter::tenant_may_have_ended(TenantId id) {
  TenantInfo* tenant = history_.tenants.find(id);
  if (tenant == nullptr || tenant->sessions > 0 || tenant->anchored || tenant->name.is_job()) return;
  if (tenant->kept && keepers_.any(id)) return;
  perform(core_->forget(id));
  record({.at = now(), .what = EndRecord{.tenant = id}});
  flush_ledger();
  keepers_.forget(id);
  step(Unplace{.tenant = id});
  history_.figures.forget(id);
  history_.tenants.forget(id);
}

// ---- the core's actions ----

void Arbiter::step(const Event& event) {
  const Nanoseconds at = now();
  const Actions actions = core_->step(event, at);
  record_figures(at);
  perform(actions);
}

void Arbiter::record_figures(Nanoseconds at) {
  FigureBook& figures = history_.figures;
  figures.observe(core_->snapshot(), core_->leases(), at);
  for (const auto& [key, value] : figures.take_news(at))
    record({.at = at, .what = UsedRecord{.tenant = key.first, .step = key.second, .figures = value}});
}

void Arbiter::end() {
  history_.figures.hasten();
  record_figures(now());
  flush_ledger();
}

void Arbiter::perform(const Actions& actions) {
  // What is granted is written down before it is given.
  for (const Action& action : actions)
    if (const auto* lease = std::get_if<RecordLease>(&action))
      record({.at = lease->at,
              .what = LeaseRecord{.grant = lease->grant, .epoch = lease->epoch, .key = lease->key}});
  flush_ledger();
  watch_leases();
  auto client_of = [this](SessionId session) -> Client* {
    auto entry = sessions_.find(session);
    return entry == sessions_.end() ? nullptr : entry->second.get();
  };
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<Send>(&action)) {
      if (Client* client = client_of(send->session))
        client->connection->send(send->message,
                                 send->message.type == MessageType::welcome ? client->page.fd() : -1);
    } else if (const auto* gate = std::get_if<SetGate>(&action)) {
      if (Client* client = client_of(gate->session)) client->page.set_open(gate->open);
    } else if (const auto* contended = std::get_if<SetContended>(&action)) {
      if (Client* client = client_of(contended->session)) client->page.set_contended(contended->contended);
    } else if (const auto* crowded = std::get_if<SetOversubscribed>(&action)) {
      if (Client* client = client_of(crowded->session))
        client->page.set_oversubscribed(crowded->oversubscribed, crowded->queue);
    } else if (const auto* ends = std::get_if<SetTurnEnds>(&action)) {
      if (Client* client = client_of(ends->session)) client->page.set_turn_ends(ends->at);
    } else if (const auto* drop = std::get_if<Drop>(&action)) {
      if (Client* client = client_of(drop->session)) refuse(*client, drop->reason);
    } else if (const auto* lease = std::get_if<RecordLease>(&action)) {
      log::debug(label_of(lease->key.tenant) + (lease->grant ? ": lease on " : ": released ") +
                 format_gpu(lease->key.gpu));
    } else if (const auto* note = std::get_if<Note>(&action)) {
      log::warning(label_of(note->tenant) + ": " + note->text);
    } else if (const auto* look = std::get_if<Look>(&action)) {
      asio::post(loop_, [this, session = look->session] { look_at(session); });
    } else if (const auto* timer = std::get_if<ArmTimer>(&action)) {
      arm(timer->at);
    }
  }
}

void Arbiter::look_at(SessionId id) {
  const auto client = sessions_.find(id);
  const auto session = core_->session(id);
  if (client == sessions_.end() || !session) return;
  const bool stopped = is_stopped(client->second->connection->peer().pid);
  if (stopped == session->stopped) return;
  log::debug(client->second->label + (stopped ? ": is stopped" : ": goes on"));
  step(Looked{.session = id, .stopped = stopped});
}

void Arbiter::arm(Nanoseconds at) {
  timer_.expires_after(std::max(at - now(), Nanoseconds{}));
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) step(TimerFired{});
  });
}

void Arbiter::record(const Record& record) {
  ledger_.append(record);
  last_record_ = record.at;
}

// While anybody holds a lease the ledger is written to every second, for the leases that are open count up to
// its last record where nobody comes to give them back.
void Arbiter::watch_leases() {
  if (watches_leases_ || core_->leases().open().empty()) return;
  watches_leases_ = true;
  seen_timer_.expires_after(kSeenEvery);
  seen_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    watches_leases_ = false;
    const Nanoseconds at = now();
    record_figures(at);
    if (at - last_record_ >= kSeenEvery && !core_->leases().open().empty()) {
      record({.at = at, .what = SeenRecord{}});
      flush_ledger();
    }
    watch_leases();
  });
}

void Arbiter::flush_ledger() {
  for (const std::string& complaint : ledger_.take_complaints())
    log::error(settings_.state_dir + "/ledger: " + complaint);
  if (ledger_.unwritten() == 0 || ledger_failing_) return;
  const Status flushed = ledger_.flush();
  if (flushed.ok()) return;
  log::error(flushed.message() + "; records are kept in memory and written when that is possible");
  ledger_failing_ = true;
  ledger_retry_.expires_after(kLedgerRetry);
  ledger_retry_.async_wait([this](const asio::error_code& failure) {
    if (failure) return;
    ledger_failing_ = false;
    flush_ledger();
    if (!ledger_failing_) log::info(settings_.state_dir + "/ledger: written again");
  });
}

}  // namespace sharedgpu
