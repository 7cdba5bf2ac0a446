// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/sessions.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/processes.h"
#include "arbiter/daemon/watched.h"

namespace sharedgpu {
namespace {

// A process without a connection may still have its device memory. kFirstReconnectCheck is the delay before
// the arbiter first checks such a process, and kReconnectCheck is the time between later checks.
constexpr std::chrono::milliseconds kFirstReconnectCheck{200};
constexpr std::chrono::seconds kReconnectCheck{1};

StepName step_of(const Client& client) { return client.peer().step.value_or(StepName{}); }

}  // namespace

Sessions::Sessions(const Parts& parts) : its_(parts) {
  its_.jobs.on_other_user([this](const TenantInfo& job) { drop_strangers(job); });
}

// ---- arrival ----

void Sessions::hello(Client& client, const Hello& hello) {
  const Peer& peer = client.peer();
  const bool comes_back = hello.resuming != 0;
  if (const std::string why = its_.jobs.refusal(peer, hello.token, comes_back); !why.empty())
    return client.connection().refuse(why);
  const TenantInfo* known = its_.jobs.run_of(peer, hello.token);
  if (known == nullptr || !its_.groups.is_outside(*known, peer)) return begin(client, hello);
  // Closes the connection instead of refusing the session, so that the session tries again a moment later.
  if (!its_.groups.may_enter(peer))
    return client.connection().close("too many processes of its user come at once");
  client.take_part();
  its_.groups.enter(*known, peer, [this, its = client.shared_from_this(), hello](bool) {
    if (its->connection().is_closed()) return;
    // The run may have ended while the process was moved.
    const std::string why = its_.jobs.refusal(its->peer(), hello.token, hello.resuming != 0);
    if (!why.empty()) return its->connection().refuse(why);
    begin(*its, hello);
  });
}

// Called when the process is in its final control group, because the interposer reads the limits of the group
// when the session has begun.
void Sessions::begin(Client& client, const Hello& hello) {
  const Peer& peer = client.peer();
  SessionTable::Entry entry{
      .client = client.shared_from_this(), .page = {}, .death = asio::posix::stream_descriptor(its_.loop)};
  // Closes the connection instead of refusing the session, so that the session tries again a moment later.
  if (Status opened = open(client, entry); !opened.ok()) return client.connection().close(opened.message());

  TenantInfo& tenant = its_.jobs.join(peer, hello.token);
  const SessionId id{++last_.value};
  client.become_session(id, tenant);
  const History::PastSession past = record_arrival(client, hello.gpu);

  Hello told = hello;
  // Any peer can claim to resume a session, so a record of the process's session under an earlier arbiter
  // must confirm the claim. succeed_closed() handles processes that reconnect to this arbiter.
  if (!past.id && !its_.jobs.lacks_ledger()) told.resuming = 0;
  entry.is_unproven = told.resuming != hello.resuming;
  watch(id, its_.table.add(id, std::move(entry)));
  if (tenant.options.backend_given != 0) told.backend = tenant.options.backend;
  its_.figures.came(tenant.id, step_of(client), told.backend);
  log::debug(client.label() + ": came" + (told.resuming != 0 ? " back" : ""));
  const CapSet terms = its_.administration.terms_of(tenant);
  const bool can_be_away = client.connection().version() >= Usage::kAway;
  // Reads the host limits here although the interposer reports them later: the message Attached states the
  // capacity, which depends on these limits.
  HostMost host;
  if (terms.oversize && can_be_away) host = host_most(its_.system, peer.pid).value_or(HostMost{});
  its_.core.handle(SessionCame{.session = id,
                               .tenant = tenant.id,
                               .step = step_of(client),
                               .cap = terms.cap,
                               .host_cap = terms.host_cap,
                               .oversize = terms.oversize,
                               .claims = terms.claims,
                               .expected = past.expected && told.resuming != 0,
                               .job = its_.coordination.job_of(tenant),
                               .can_be_away = can_be_away,
                               .host_limit = host.of_step,
                               .job_host_limit = host.of_job,
                               .hello = told});
  succeed_closed(client);
}

// Acquires the lease page and the pidfd of a session.
Status Sessions::open(Client& client, SessionTable::Entry& entry) const {
  constexpr char kNoPage[] = "cannot create the lease page";
  constexpr char kNoDescriptor[] = "cannot watch the process";
  UniqueFd memory = its_.system.memory_file("sharedgpu-lease");
  if (!memory) return Status::of_errno(errno, kNoPage);
  if (const int error = entry.page.create(memory.release())) return Status::of_errno(error, kNoPage);
  UniqueFd pidfd = its_.system.duplicate(client.peer().pidfd.get());
  if (!pidfd) return Status::of_errno(errno, kNoDescriptor);
  const asio::error_code error = hand_over(pidfd, entry.death);
  return error ? Status::of_errno(error.value(), kNoDescriptor) : Status{};
}

void Sessions::watch(SessionId id, SessionTable::Entry& entry) {
  await_death(entry.death, [this, id] { end_soon(id); });
}

// Ends the session in its user's turn, since hundreds of processes of a user may end at once.
void Sessions::end_soon(SessionId id) {
  const auto* entry = its_.table.find(id);
  if (entry == nullptr) return;
  its_.schedule.add(entry->client->peer().account, [this, id] {
    gone(id);
    return false;
  });
}

// Records the new session. Returns the session that the process had with an earlier arbiter, and records its
// end.
History::PastSession Sessions::record_arrival(const Client& client, const GpuUuid& gpu) {
  const Peer& peer = client.peer();
  const ProcessName process = peer.process();
  const History::PastSession past = its_.past.take_session(process.pid, process.started, gpu);
  if (past.id) its_.journal.record(GoneRecord{.session = past.id});
  its_.journal.record(SessionRecord{.session = client.session(),
                                    .tenant = client.tenant(),
                                    .step = step_of(client),
                                    .pid = process.pid,
                                    .started = process.started,
                                    .task = peer.task});
  return past;
}

void Sessions::attach(Client& client, const Attach& attach) {
  auto* entry = its_.table.find(client.session());
  if (entry == nullptr) return;
  const auto is_attached = [&] {
    const auto session = its_.core.core().session(client.session());
    return session && session->gpu;
  };
  if (is_attached()) return its_.core.handle(From<Attach>{.session = client.session(), .body = attach});
  const bool awaits_proof = entry->is_unproven && entry->gpu != GpuUuid{};
  if (awaits_proof || !may_attach(client, attach)) return;
  succeed_closed(client);
  if (is_attached())
    entry->is_unproven = false;
  else if (entry->is_unproven)
    return;  // the session's first Usage shows whether it may resume, see proves_itself()
  else
    its_.core.handle(From<Attach>{.session = client.session(), .body = attach});
  note_gpu(client);
}

// Updates the rules of the GPU, which may depend on its tenants, and the limits of the tenant, which may
// depend on its GPU.
void Sessions::note_gpu(const Client& client) {
  its_.administration.partitions_may_have_changed();
  if (const TenantInfo* tenant = its_.jobs.find(client.tenant()))
    its_.administration.gpu_may_have_changed(*tenant);
}

// Judges a session by its first report if the session claims to reconnect and no record confirms the claim.
// If all memory of the session is on the GPU, the session is served as a new session. If a part of the memory
// is on the host, only a Restore would bring that part back, and the core sends no Restore to a new session.
// So the arbiter refuses the session. The process then restores all its memory itself, and continues
// unmanaged. Returns false if the session was refused.
bool Sessions::proves_itself(Client& client, const MemoryUse& use) {
  auto* entry = its_.table.find(client.session());
  if (entry == nullptr || !std::exchange(entry->is_unproven, false)) return true;
  if (use.resident < use.swappable) {
    client.connection().refuse("the arbiter has no record of the memory that this process has on the host");
    gone(client.session());
    return false;
  }
  if (entry->gpu == GpuUuid{}) return true;
  const Attach attach{.gpu = entry->gpu, .total = {}, .name = {}};
  its_.core.handle(From<Attach>{.session = client.session(), .body = attach});
  note_gpu(client);
  return true;
}

// Handles a session's first Attach. Returns false if the session is refused.
bool Sessions::may_attach(Client& client, const Attach& attach) {
  const HostGpus::Teller teller{.uid = client.peer().account,
                                .has_units = its_.jobs.has_units(client.tenant())};
  if (Status attached = its_.gpus.attach(attach, teller); !attached.ok()) {
    client.connection().refuse(attached.message());
    return false;
  }
  if (auto* entry = its_.table.find(client.session())) entry->gpu = attach.gpu;
  if (attach.lender != 0) loans_.announce(client.session(), client.tenant(), attach.lender);
  its_.journal.record(AttachRecord{.session = client.session(), .gpu = attach.gpu});
  return true;
}

// ---- reports and loans ----

// Reported totals never shrink, so only the increase since the last report counts.
void Sessions::take_traffic(const Client& client, Traffic moved) {
  auto* entry = its_.table.find(client.session());
  if (entry == nullptr) return;
  its_.figures.add(client.tenant(), step_of(client), minus(moved, entry->moved));
  entry->moved = {.evicted = std::max(entry->moved.evicted, moved.evicted),
                  .restored = std::max(entry->moved.restored, moved.restored)};
}

void Sessions::take_exchanges(const Client& client, const Exchanges& exchanges) {
  auto* entry = its_.table.find(client.session());
  if (entry == nullptr) return;
  const Exchanges more = minus(exchanges, entry->exchanges);
  its_.figures.add_exchanges(client.tenant(), step_of(client), more);
  entry->exchanges = entry->exchanges + more;
}

void Sessions::borrow(Client& client, const Borrow& borrow) {
  Lent answer{.request = borrow.request, .outcome = LoanOutcome::unknown, .pieces = 0, .size = {}};
  const auto id = loans_.find(client.tenant(), borrow.name.lender);
  const auto* lender = id ? its_.table.find(*id) : nullptr;
  if (lender == nullptr)
    answer.outcome = its_.core.core().in_grace() ? LoanOutcome::later : LoanOutcome::unknown;
  else
    answer.outcome = connect(client, *lender->client, borrow) ? LoanOutcome::asked : LoanOutcome::failed;
  if (answer.outcome != LoanOutcome::asked) client.send(answer);
}

// Sends one end of a socket pair to the importer of memory (borrower) and the other end to the exporter
// (lender). Returns false if neither session has received an end of the pair.
//
// If a socket has a descriptor in its queue, the arbiter must not be the last process to close the socket,
// see Channel::distrust(). So the arbiter sends no message through the pair, and closes its copy of the
// importer's end before the exporter receives the other end.
bool Sessions::connect(Client& borrower, Client& lender, const Borrow& borrow) const {
  Connection& to = borrower.connection();
  Connection& from = lender.connection();
  if (to.version() < Lent::kPaired || from.version() < Lent::kPaired) return false;
  UniqueFd its_end, lenders_end;
  if (!its_.system.socket_pair(its_end, lenders_end)) return false;
  shutdown(lenders_end.get(), SHUT_RD);
  const Lent asked{.request = borrow.request, .outcome = LoanOutcome::asked, .pieces = 0, .size = {}};
  const bool sent = to.send_now(Message::of(asked), its_end.get());
  its_end.reset();
  // if this send fails, the exporter's end is closed, which the importer sees
  if (sent)
    from.send_now(Message::of(Wanted{.ticket = 0, .name = borrow.name, .piece = borrow.piece}),
                  lenders_end.get());
  return sent;
}

// Never advises the user to request more units than the node's GPUs have.
void Sessions::explain(Client& client, const RefusalQuery& query) {
  RefusalReply reply = its_.core.core().explain(client.session(), query.size, query.pinned != 0);
  reply.request = query.request;
  const std::size_t gpus = its_.core.core().gpus();
  if (reply.units > its_.administration.settings().units_per_gpu * gpus) reply.units = 0;
  if (reply.bound != Bound::none) reply.told = its_.jobs.was_told(client.tenant(), reply.bound);
  client.send(reply);
}

// ---- departure ----

// A process may lose its connection and reconnect, for instance if it closes descriptors that it does not
// know. Its device memory is free only when the process has ended.
void Sessions::closed(const Client& client) {
  auto* entry = its_.table.find(client.session());
  if (entry == nullptr) return;
  entry->reconnect_timer = std::make_unique<asio::steady_timer>(its_.loop);
  await_reconnect(client.session(), kFirstReconnectCheck);
}

// Checks after a delay whether the session may still reconnect. It may not if the process has executed
// another program, which the pidfd does not signal.
void Sessions::await_reconnect(SessionId id, Nanoseconds pause) {
  asio::steady_timer& timer = *its_.table.find(id)->reconnect_timer;
  timer.expires_after(pause);
  timer.async_wait([this, id](const asio::error_code& error) {
    const auto* entry = its_.table.find(id);
    if (error || entry == nullptr) return;
    its_.schedule.add(entry->client->peer().account, [this, id] {
      check_reconnect(id);
      return false;
    });
  });
}

void Sessions::check_reconnect(SessionId id) {
  const auto* entry = its_.table.find(id);
  if (entry == nullptr) return;
  if (may_reconnect(*entry))
    await_reconnect(id, kReconnectCheck);
  else
    gone(id);
}

// Returns true if the process may still have the memory that its closed session reported or was about to
// report. Other sessions of the process do not account for this memory.
bool Sessions::may_reconnect(const SessionTable::Entry& entry) const {
  const Peer& peer = entry.client->peer();
  const auto known = its_.core.core().session(entry.client->session());
  if (!known || (known->use.footprint() + known->away == Bytes{} && known->claims_nothing)) return false;
  return peer.program != 0 && may_run(its_.system, peer.pid, peer.program);
}

// Ends the closed session that the new session of the client replaces. A process whose connection breaks
// opens a new connection. The new session replaces the session with the closed connection if both are on the
// same GPU, or if neither has a GPU yet. The new session inherits nothing if the closed session was of
// another program or tenant.
void Sessions::succeed_closed(const Client& client) {
  const auto* its = its_.table.find(client.session());
  if (its == nullptr) return;
  for (const SessionId id : its_.table.of(client.peer().process())) {
    const auto* other = its_.table.find(id);
    if (other == its || other->gpu != its->gpu || !other->client->connection().is_closed()) continue;
    const std::uint64_t left = other->client->peer().program, runs = client.peer().program;
    const bool is_same = (left == runs || left == 0 || runs == 0) &&  // 0: unknown
                         other->client->tenant() == client.tenant();
    return gone(id, is_same ? client.session() : SessionId{});
  }
}

// Drops the sessions of processes that are in the job's cgroup and belong neither to the job's user nor to
// root. These sessions connected before the job was registered. Their processes continue unmanaged.
void Sessions::drop_strangers(const TenantInfo& job) {
  std::vector<SessionId> strangers;
  for (const auto& [id, entry] : its_.table.all()) {
    const Peer& peer = entry.client->peer();
    if (entry.client->tenant() == job.id && !acts_for(peer, job.uid) && peer.uid != 0)
      strangers.push_back(id);
  }
  for (const SessionId id : strangers) {
    its_.table.find(id)->client->connection().refuse(job.label() + " belongs to another user");
    gone(id);
  }
}

void Sessions::gone(SessionId id, SessionId heir) {
  const auto* entry = its_.table.find(id);
  if (entry == nullptr) return;
  const std::shared_ptr<Client> client = entry->client;
  const TenantInfo* tenant = its_.past.tenants.find(client->tenant());
  if (!heir && entry->gpu != GpuUuid{} && tenant != nullptr) its_.health.note_gone(*tenant, entry->gpu);
  its_.table.remove(id);
  client->connection().close({});
  its_.journal.record(GoneRecord{.session = id});
  log::debug(client->label() + (heir ? ": came back" : ": gone"));
  loans_.forget(id);
  its_.core.handle(SessionGone{.session = id, .heir = heir});
  its_.gpus.forget_gone();
  its_.administration.session_ended();
  its_.host_claims.forget_gone(client->peer().process());
  its_.jobs.leave(client->tenant());
}

}  // namespace sharedgpu
