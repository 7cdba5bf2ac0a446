// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/coordination.h"

#include <algorithm>
#include <asio/post.hpp>
#include <utility>

#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/peers.h"
#include "protocol/replace_file.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::minutes kAddressGood{10};
constexpr std::chrono::minutes kAskAgain{1};  // pause if Slurm does not know the address
constexpr ScontrolTimes kPatience{.patience = std::chrono::seconds(10)};
constexpr std::size_t kMostAddresses = 10'000;
constexpr std::chrono::minutes kKeepAgain{5};  // pause between two writes of heard_file
constexpr std::chrono::seconds kKeepNew{1};    // the pause if a message has come from a new node

// Without mail, no message can come from another node. So the times after which other nodes are given up are
// zero.
GangTimes times_of(bool has_mail) {
  GangTimes times;
  if (!has_mail) times.never = times.gone = Nanoseconds{};
  return times;
}

// Returns the names of the first nodes, each after a blank. A job may have too many nodes for one line of the
// log.
std::string first_of(const std::vector<std::string>& nodes) {
  constexpr std::size_t kMostNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < nodes.size() && i < kMostNamed; ++i) text += ' ' + nodes[i];
  return nodes.size() > kMostNamed ? text + " ..." : text;
}

std::uint64_t random_life(const System& system) {
  std::uint64_t life = 0;
  if (!system.random(&life, sizeof life)) life = static_cast<std::uint64_t>(system.wall_time().count());
  return life | 1;
}

}  // namespace

Coordination::Coordination(const Parts& parts, std::unique_ptr<Mail> mail)
    : its_(parts),
      mail_(std::move(mail)),
      scontrol_(parts.loop, parts.system, kPatience),
      node_(Scontrol::node_name()),
      members_(node_, random_life(parts.system), times_of(mail_ != nullptr), heard_),
      desk_(node_, random_life(parts.system), GangTimes{}, GangPace{},
            parts.system.wall_time() - parts.system.now(), heard_),
      timer_(parts.loop) {}

void Coordination::start() {
  if (std::exchange(started_, true)) return;
  restore_heard();
  if (Scontrol::knows_node_name())
    begin_mail();
  else
    find_name();
}

// Asks Slurm for its name of this node, which may differ from the host's name. All messages to other arbiters
// contain this name, so the arbiter sends none before the name is known.
void Coordination::find_name() {
  scontrol_.find_own_name([this](const std::string& name) {
    if (!name.empty()) node_ = name;
    members_.set_node(node_);
    desk_.set_node(node_);
    begin_mail();
    tend_soon();
  });
}

void Coordination::restore_heard() {
  std::string text;
  const Nanoseconds now = its_.system.now();
  if (its_.system.read_file(its_.heard_file, text).ok()) heard_.restore(text, its_.boot, now);
  kept_at_ = now - kKeepNew;
}

// Writes heard_file, since the next arbiter must know the nodes whose arbiters have sent messages. The file
// is not synced to the disk, since no job survives a crash of the host.
void Coordination::keep_heard(Nanoseconds now) {
  if (mail_ == nullptr || now - kept_at_ < kKeepNew) return;
  if (!heard_.take_news() && now - kept_at_ < kKeepAgain) return;
  kept_at_ = now;
  if (Status kept = replace_file(its_.heard_file, heard_.text(its_.boot, now), Durable::no); !kept.ok())
    its_.complaints.add(kNobody, Cause::gang, kept.message());
}

void Coordination::begin_mail() {
  is_named_ = true;
  if (mail_ != nullptr)
    mail_->start([this](const std::string& from, std::string_view text) { heard(from, text); });
}

std::uint32_t Coordination::job_of(const TenantInfo& tenant) const {
  return tenant.spans_nodes() && tenant.name.is_job() ? tenant.name.job : 0;
}

void Coordination::report(const TellGang& told) {
  const TenantInfo* tenant = its_.tenants.find(told.tenant);
  if (tenant == nullptr || job_of(*tenant) == 0) return;
  start();
  members_.report(told.tenant,
                  {.number = tenant->name.job,
                   .run = tenant->job_class.restarts,
                   .nodes = tenant->nodes,
                   .coordinator = tenant->coordinator,
                   .is_new = tenant->nodes_are_new},
                  told.report, its_.system.now());
  tend_soon();
}

void Coordination::heard(const std::string& from, std::string_view text) {
  const auto message = parse_message(text);
  if (!message) {
    if (is_of_another_version(text))
      its_.complaints.add(
          kNobody, Cause::gang,
          from +
              ": an arbiter of another version, whose messages this arbiter does not understand: jobs on "
              "both nodes have independent turns on each node");
    return;
  }
  const Nanoseconds now = its_.system.now();
  if (std::holds_alternative<GangReport>(message->what)) {
    desk_.hear(from, *message, now);
  } else {
    addresses_[message->node] = {.text = from, .ask_at = now + kAddressGood};
    members_.hear(*message, !its_.core.core().in_grace(), now);
  }
  tend();
}

// Calls tend() later, from the event loop, since the core may be handling an event when this function is
// called.
void Coordination::tend_soon() {
  if (std::exchange(soon_, true)) return;
  asio::post(its_.loop, [this] {
    soon_ = false;
    tend();
  });
}

void Coordination::tend() {
  const Nanoseconds now = its_.system.now();
  members_.advance(now);
  desk_.advance(now);
  ask_slurm();
  send_messages(now);
  for (const TenantId tenant : members_.take_changes()) log_change(tenant);
  for (const GangDesk::Silent& silent : desk_.take_silent()) log_silent(silent);
  for (const GangDesk::Apart& apart : desk_.take_apart()) log_apart(apart);
  for (const GangOrdered& order : members_.take_orders()) its_.core.handle(order);
  keep_heard(now);
  wake_for_next(now);
}

void Coordination::ask_slurm() {
  if (!is_named_) return;
  if (const auto asked = members_.take_line_question())
    scontrol_.find_jobs(node_, [this, asked = *asked](const std::vector<StartedJob>& jobs) {
      members_.list(jobs, asked);
      tend_soon();
    });
  for (const GangDesk::Run& run : desk_.take_unlisted())
    scontrol_.find_nodes(run.first, [this, run](const std::vector<Scontrol::Node>& nodes) {
      std::vector<GangDesk::Listed> listed;
      for (const Scontrol::Node& node : nodes) listed.push_back({.node = node.name, .address = node.address});
      desk_.list(run, listed, its_.system.now());
      tend_soon();
    });
  for (const GangMembers::Run& run : members_.take_doubtful())
    scontrol_.find_nodes(run.first, [this, run](const std::vector<Scontrol::Node>& nodes) {
      if (nodes.empty()) return;
      members_.correct(run, static_cast<std::uint32_t>(nodes.size()), nodes.front().name, its_.system.now());
      tend_soon();
    });
}

void Coordination::send_messages(Nanoseconds now) {
  const std::vector<GangMembers::Sent> reports = members_.take_messages();
  if (mail_ == nullptr) return;
  for (const GangMembers::Sent& sent : reports) {
    if (!is_named_) {
      members_.excuse(sent.message, now);
      continue;
    }
    const NodeAddress& node = address_of(sent.node);
    if (!node.text.empty())
      mail_->send(node.text, format_message(sent.message));
    else if (node.is_sought)
      members_.excuse(sent.message, now);
  }
  for (const GangDesk::Sent& sent : desk_.take_messages())
    mail_->send(sent.address, format_message(sent.message));
}

void Coordination::wake_for_next(Nanoseconds now) {
  std::optional<Nanoseconds> wake = members_.wake();
  if (const auto other = desk_.wake(); other && (!wake || *other < *wake)) wake = other;
  if (!wake) return;
  timer_.expires_after(std::max(*wake - now, Nanoseconds{}));
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) tend();
  });
}

void Coordination::log_change(TenantId id) const {
  const TenantInfo* tenant = its_.tenants.find(id);
  const GangMembers::Gang* gang = members_.find(id);
  if (tenant == nullptr || gang == nullptr || mail_ == nullptr) return;
  const std::string label = tenant->label() + ": ";
  const std::string& node = gang->job.coordinator;
  switch (gang->contact) {
    case GangMembers::Contact::sought:
      return its_.complaints.add(
          tenant->account, Cause::gang,
          label + "node " + node + ", which coordinates its turns, has not answered: the job begins no turn");
    case GangMembers::Contact::held:
      return log::debug(label + "node " + node + " coordinates its turns");
    case GangMembers::Contact::lost:
      return its_.complaints.add(
          tenant->account, Cause::gang,
          label + "node " + node + ", which coordinates its turns, is silent: the job begins no turn");
    case GangMembers::Contact::given_up:
      return its_.complaints.add(
          tenant->account, Cause::gang,
          label + "its nodes do not reach each other (node " + node +
              " coordinates): it has its turns on this node independently, after the jobs "
              "on several nodes that Slurm has started before it");
  }
}

uid_t Coordination::account_of(std::uint32_t job) const {
  TenantName name;
  name.job = job;
  const TenantInfo* tenant = its_.tenants.find(name);
  return tenant != nullptr ? tenant->account : kNobody;
}

void Coordination::log_silent(const GangDesk::Silent& silent) const {
  its_.complaints.add(account_of(silent.job), Cause::gang,
                      "job " + std::to_string(silent.job) + " begins no turn, since " +
                          (silent.nodes.empty() ? "Slurm has not named all of its nodes"
                                                : "these nodes are silent:" + first_of(silent.nodes)));
}

void Coordination::log_apart(const GangDesk::Apart& apart) const {
  const std::string silent = first_of(apart.silent);
  its_.complaints.add(
      account_of(apart.job), Cause::gang,
      "job " + std::to_string(apart.job) + ": " + std::to_string(apart.answer) + " of its " +
          std::to_string(apart.nodes) + " nodes answer" +
          (silent.empty() ? ", and Slurm does not tell the others" : ", these do not:" + silent) +
          ": it has its turns on each node independently; check PeerPort= and munged there");
}

// Returns the last known address of the node, from Slurm or from a message of the node's arbiter. Asks Slurm
// again if the address is old, since addresses change.
const Coordination::NodeAddress& Coordination::address_of(const std::string& node) {
  const Nanoseconds now = its_.system.now();
  if (addresses_.size() >= kMostAddresses) addresses_.clear();
  NodeAddress& its = addresses_[node];
  if (now < its.ask_at) return its;
  its.ask_at = now + kAddressGood;
  its.is_sought = true;
  scontrol_.find_address(node, [this, node](const std::string& address) {
    NodeAddress& known = addresses_[node];
    known.is_sought = false;
    if (address.empty())
      known.ask_at = its_.system.now() + kAskAgain;
    else
      known.text = address;
  });
  return its;
}

}  // namespace sharedgpu
