// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/message_table.h"

#include <string>
#include <tuple>
#include <type_traits>
#include <variant>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/health.h"
#include "arbiter/daemon/jobs.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/queries.h"
#include "arbiter/daemon/reload.h"
#include "arbiter/daemon/sessions.h"
#include "arbiter/daemon/validity.h"

namespace sharedgpu {
namespace {

enum class Sender : std::uint8_t { new_connection, session, anyone };

// The reactions to a message that is not accepted. Close: the daemon closes the connection and logs the
// reason. Refuse: the daemon also sends the reason to the peer. Deny: the daemon sends a negative answer, and
// logs what the peer may not do.
struct Close {
  const char* why = "";
};
struct Refuse {
  const char* why = "";
};
template <class Body>
struct Deny {
  Message (*answer)() = nullptr;
  std::string (*what)(const Body&) = nullptr;  // completes the text "... may not" in the log
};
template <class Body>
using Reaction = std::variant<Close, Refuse, Deny<Body>>;

// The conditions under which a message is accepted.
template <class Body>
struct Conditions {
  Sender sender = Sender::anyone;
  // the reason for closing the connection if `sender` excludes the peer
  const char* misplaced = "";
  bool (*valid)(const Body&) = nullptr;  // null: every body is valid
  Reaction<Body> invalid = {};
  bool counts = false;  // the message adds to the ledger, so the sender's rate limit applies, see Journal
  // returns true if only an administrator may send the message; null: any peer may
  bool (*privileged)(const Body&) = nullptr;
  // the reaction if a peer that is not an administrator sends a privileged message
  Reaction<Body> unprivileged = {};
};

template <class Body, class Handler>
struct Row {
  using Message = Body;
  Handler handle;
  Conditions<Body> conditions;
};
template <class Body, class Handler>
constexpr Row<Body, Handler> row(Handler handle, const Conditions<Body>& conditions) {
  return {handle, conditions};
}

template <class Reply>
Message no() {
  return Message::of(Reply{});
}
template <class Body>
bool always(const Body&) {
  return true;
}
bool vouches(const RunRequest& request) { return request.vouched != 0 || request.host_memory != Bytes{}; }

std::string register_it(const RegisterJob& job) { return "register job " + std::to_string(job.step.job); }
std::string register_nodes(const RegisterGang& gang) {
  return "register the nodes of job " + std::to_string(gang.job);
}
std::string end_it(const EndJob& end) { return "end job " + std::to_string(end.job); }
std::string suspend_it(const SuspendJob& job) { return "suspend job " + std::to_string(job.step.job); }
std::string drain_it(const DrainGpus&) { return "drain GPUs"; }
std::string reload_it(const ReloadSettings&) { return "reload settings"; }
std::string change_it(const SetLines&) { return "change settings"; }

constexpr char kTooOften[] = "too many requests from this user in a short time; try again later";
constexpr Close kImpossible{"a message with invalid numbers"};
constexpr Deny<RegisterJob> kNotRegistered{no<RegisterReply>, register_it};
constexpr Deny<RegisterGang> kNotInGang{no<RegisterGangReply>, register_nodes};
constexpr Deny<EndJob> kNotEnded{no<EndJobReply>, end_it};
constexpr Deny<SuspendJob> kNotSuspended{no<SuspendReply>, suspend_it};

// A row for a session's report to the core.
template <class Body>
constexpr auto report(bool (*valid)(const Body&) = nullptr) {
  return row<Body>(&Sessions::report<Body>, {.sender = Sender::session,
                                             .misplaced = "a message of a session before its Hello",
                                             .valid = valid,
                                             .invalid = kImpossible});
}

constexpr std::tuple kRows{
    row<Hello>(&Sessions::hello, {.sender = Sender::new_connection,
                                  .misplaced = "a second Hello",
                                  .valid = is_valid,
                                  .invalid = Close{"an unknown backend"},
                                  .counts = true}),
    row<Attach>(&Sessions::attach, {.sender = Sender::session,
                                    .misplaced = "Attach before Hello",
                                    .valid = is_valid,
                                    .invalid = Close{"a GPU without a UUID"}}),
    report<Usage>(is_valid),
    report<Want>(),
    report<Idle>(is_valid),
    report<GiveBack>(),
    report<Ready>(is_valid),
    report<Released>(is_valid),
    report<MemoryQuery>(),
    report<Deadlines>(is_valid),
    row<RefusalQuery>(&Sessions::explain, {.sender = Sender::session,
                                           .misplaced = "a message of a session before its Hello",
                                           .valid = is_valid,
                                           .invalid = kImpossible}),
    row<Borrow>(&Sessions::borrow, {.sender = Sender::session, .misplaced = "Borrow before Hello"}),

    row<RunRequest>(&Jobs::run,
                    {.sender = Sender::new_connection,
                     .misplaced = "a RunRequest on the connection of a session",
                     .valid = is_valid,
                     .invalid = Close{"options with invalid numbers"},
                     .counts = true,
                     .privileged = vouches,
                     .unprivileged = Refuse{"only an administrator may set the units or the host memory of a "
                                            "run or start it for another user"}}),
    row<JoinRun>(&Jobs::join_run,
                 {.sender = Sender::new_connection, .misplaced = "a JoinRun on a connection that is in use"}),
    row<RegisterJob>(
        &Jobs::register_job,
        {.valid = is_valid, .invalid = kNotRegistered, .privileged = always, .unprivileged = kNotRegistered}),
    row<RegisterGang>(
        &Jobs::register_gang,
        {.valid = is_valid, .invalid = kNotInGang, .privileged = always, .unprivileged = kNotInGang}),
    row<EndJob>(&Jobs::end_job,
                {.valid = is_valid, .invalid = kNotEnded, .privileged = always, .unprivileged = kNotEnded}),
    row<SuspendJob>(
        &Jobs::suspend_job,
        {.valid = is_valid, .invalid = kNotSuspended, .privileged = always, .unprivileged = kNotSuspended}),
    row<SetLines>(&Administration::change_settings,
                  {.privileged = always, .unprivileged = Deny<SetLines>{no<SetReply>, change_it}}),
    row<ReloadSettings>(&Reload::answer, {.privileged = always,
                                          .unprivileged = Deny<ReloadSettings>{no<ReloadReply>, reload_it}}),
    row<DrainGpus>(&Health::drain,
                   {.privileged = always, .unprivileged = Deny<DrainGpus>{no<DrainReply>, drain_it}}),

    row<StatusQuery>(&Queries::status, {}),
    row<LeaseQuery>(&Queries::lease, {}),         // the handler checks the job's owner
    row<JobQuery>(&Queries::job, {}),             // the handler checks the job's owner
    row<GpuLossQuery>(&Queries::gpu_loss, {}),    // the handler checks the job's owner
    row<ExchangeQuery>(&Queries::exchanges, {}),  // the handler checks the job's owner
    row<GpuQuery>(&Queries::gpu, {}),
};

// Returns true for the types that peers send to the arbiter. The compiler reports types that are missing from
// the switch.
constexpr bool is_for_arbiter(MessageType type) {
  switch (type) {
    case MessageType::hello:
    case MessageType::attach:
    case MessageType::usage:
    case MessageType::want:
    case MessageType::idle:
    case MessageType::ready:
    case MessageType::released:
    case MessageType::memory_query:
    case MessageType::borrow:
    case MessageType::deadlines:
    case MessageType::give_back:
    case MessageType::refusal_query:
    case MessageType::status_query:
    case MessageType::run_request:
    case MessageType::register_job:
    case MessageType::lease_query:
    case MessageType::gpu_query:
    case MessageType::suspend_job:
    case MessageType::job_query:
    case MessageType::set_lines:
    case MessageType::end_job:
    case MessageType::drain_gpus:
    case MessageType::register_gang:
    case MessageType::gpu_loss_query:
    case MessageType::join_run:
    case MessageType::reload_settings:
    case MessageType::exchange_query:
      return true;
    case MessageType::invalid:
    case MessageType::welcome:
    case MessageType::attached:
    case MessageType::verdict:
    case MessageType::restore:
    case MessageType::revoke:
    case MessageType::evict:
    case MessageType::memory_view:
    case MessageType::refused:
    case MessageType::status_reply:
    case MessageType::run_reply:
    case MessageType::register_reply:
    case MessageType::lease_reply:
    case MessageType::gpu_reply:
    case MessageType::wanted:
    case MessageType::lent:
    case MessageType::lend:  // from an exporter to an importer
    case MessageType::step:
    case MessageType::prepare:
    case MessageType::others_wait:
    case MessageType::cancelled:
    case MessageType::refusal_reply:
    case MessageType::notice:
    case MessageType::set_reply:
    case MessageType::suspend_reply:
    case MessageType::job_reply:
    case MessageType::end_job_reply:
    case MessageType::drain_reply:
    case MessageType::register_gang_reply:
    case MessageType::gpu_loss_reply:
    case MessageType::join_reply:
    case MessageType::reload_reply:
    case MessageType::exchange_reply:
      return false;
  }
  return false;
}

constexpr bool each_has_one_row() {
  for (unsigned number = 0; number < 256; ++number) {
    const auto type = static_cast<MessageType>(number);
    const int rows = std::apply(
        [type](const auto&... row) {
          return (0 + ... + (std::decay_t<decltype(row)>::Message::kType == type ? 1 : 0));
        },
        kRows);
    if (rows != (is_for_arbiter(type) ? 1 : 0)) return false;
  }
  return true;
}
static_assert(each_has_one_row(), "a message that peers may send has no row, or two");

// ---- acceptance ----

template <class Part>
auto& part(const MessageTable::Parts& parts) {
  if constexpr (std::is_same_v<Part, Sessions>)
    return parts.sessions;
  else if constexpr (std::is_same_v<Part, Jobs>)
    return parts.jobs;
  else if constexpr (std::is_same_v<Part, Queries>)
    return parts.queries;
  else if constexpr (std::is_same_v<Part, Health>)
    return parts.health;
  else if constexpr (std::is_same_v<Part, Reload>)
    return parts.reload;
  else
    return parts.administration;
}

template <class Part, class Body>
void call(void (Part::*handle)(Client&, const Body&), const MessageTable::Parts& parts, Client& client,
          const Body& body) {
  (part<Part>(parts).*handle)(client, body);
}

bool has_role(const Client& client, Sender sender) {
  switch (sender) {
    case Sender::new_connection:
      return client.role() == Role::none;
    case Sender::session:
      return client.role() == Role::session;
    case Sender::anyone:
      return true;
  }
  return false;
}

template <class Body>
void react(const Reaction<Body>& reaction, Client& client, const Body& body, Complaints& complaints) {
  if (const auto* close = std::get_if<Close>(&reaction)) return client.connection().close(close->why);
  if (const auto* refuse = std::get_if<Refuse>(&reaction)) return client.connection().refuse(refuse->why);
  const auto& deny = std::get<Deny<Body>>(reaction);
  const Peer& peer = client.peer();
  complaints.add(peer.account, Cause::denied,
                 "pid " + std::to_string(peer.pid) + ", uid " + std::to_string(peer.uid) + ": may not " +
                     deny.what(body));
  client.connection().send(deny.answer());
}

template <class Body, class Handler>
void receive_as(const Row<Body, Handler>& row, const MessageTable::Parts& parts, Client& client,
                const Body& body) {
  const Conditions<Body>& conditions = row.conditions;
  const uid_t uid = client.peer().uid;
  if (!has_role(client, conditions.sender)) return client.connection().close(conditions.misplaced);
  if (conditions.valid != nullptr && !conditions.valid(body))
    return react(conditions.invalid, client, body, parts.complaints);
  if (conditions.counts && !parts.journal.may_write(client.peer().account))
    return client.connection().close(kTooOften);
  if (conditions.privileged != nullptr && conditions.privileged(body) &&
      !parts.administration.is_administrator(uid))
    return react(conditions.unprivileged, client, body, parts.complaints);
  call(row.handle, parts, client, body);
}

}  // namespace

void MessageTable::receive(Client& client, const Message& message) const {
  const auto receive_if = [&]<class Body, class Handler>(const Row<Body, Handler>& row) {
    if (message.type != Body::kType) return false;
    receive_as(row, parts_, client, message.as<Body>());
    return true;
  };
  const bool known = std::apply([&](const auto&... row) { return (receive_if(row) || ...); }, kRows);
  if (!known) client.connection().close("a message of unknown type");
}

}  // namespace sharedgpu
