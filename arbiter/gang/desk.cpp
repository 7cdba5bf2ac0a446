// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/desk.h"

#include <algorithm>

namespace sharedgpu {
namespace {

constexpr std::size_t kMostAsked = 64;  // maximum number of nodes of a gang that are asked at once; further
                                        // nodes are asked GangTimes::repeat later

}  // namespace

bool GangDesk::Gang::all_heard() const {
  return !lacks_members() &&
         std::all_of(members.begin(), members.end(), [](const auto& entry) { return entry.second.heard; });
}

bool GangDesk::Gang::any_silent() const {
  return std::any_of(members.begin(), members.end(),
                     [](const auto& entry) { return !entry.second.in_contact; });
}

bool GangDesk::Gang::all_present() const {
  return std::all_of(members.begin(), members.end(), [](const auto& entry) { return entry.second.present; });
}

bool GangDesk::Gang::any_present() const {
  return std::any_of(members.begin(), members.end(),
                     [](const auto& entry) { return entry.second.present && !entry.second.given_up; });
}

void GangDesk::hear(const std::string& address, const GangMessage& message, Nanoseconds now) {
  const auto* report = std::get_if<GangReport>(&message.what);
  if (report == nullptr) return;
  heard_.hear(message.node, now);
  const Run run{message.job, message.run};
  if (!report->present && gangs_.count(run) == 0) return;  // the gang has ended
  Gang& gang = gangs_
                   .try_emplace(run, Gang{.coordinator = {pace_, now},
                                          .since = now,
                                          .nodes = message.nodes,
                                          .members = {},
                                          .list_at = now + times_.heartbeat})
                   .first->second;
  const auto [it, is_new] = gang.members.try_emplace(message.node);
  Member& member = it->second;
  if (is_new) member.number = ++gang.last_number;
  if (!member.newest.take(message)) return;
  member.address = address;
  member.life = message.life;
  member.heard = member.in_contact = true;
  member.given_up = member.is_silent = false;
  member.present = report->present;
  member.heard_at = now;
  member.ask_at = now + (member.present ? 2 : 1) * times_.heartbeat;
  member.owed = report->number != 0;
  if (member.present) gang.present_at = now;
  if (!gang.coordinator.gives_orders()) gang.is_new = gang.is_new && message.is_new;
  gang.coordinator.hear(member.number, *report);
  decide(run, gang, now);
}

void GangDesk::list(const Run& run, const std::vector<Listed>& nodes, Nanoseconds now) {
  const auto found = gangs_.find(run);
  if (found == gangs_.end() || nodes.empty()) return;
  Gang& gang = found->second;
  gang.nodes = static_cast<std::uint32_t>(nodes.size());
  gang.is_listed = true;
  // Forgets silent nodes that are not in Slurm's list: the job may have become smaller, and a node may have a
  // new name.
  for (auto it = gang.members.begin(); it != gang.members.end();) {
    const bool is_named = std::any_of(nodes.begin(), nodes.end(),
                                      [&](const Listed& listed) { return listed.node == it->first; });
    if (!is_named && !(it->second.heard && it->second.in_contact)) {
      gang.coordinator.forget(it->second.number);
      it = gang.members.erase(it);
    } else {
      ++it;
    }
  }
  for (const Listed& listed : nodes) {
    const auto [it, is_new] = gang.members.try_emplace(listed.node);
    Member& member = it->second;
    if (is_new) {
      member.number = ++gang.last_number;
      member.heard_at = member.ask_at = now;
      // A gang that is apart stays apart until this node reports.
      member.in_contact = !gang.apart;
      member.given_up = gang.apart && !heard_.has(listed.node, now);
    }
    if (!member.heard) member.address = listed.address;
  }
  decide(run, gang, now);
}

// Sends questions to nodes, since a node without processes of the job reports only when it is asked.
void GangDesk::ask(const Run& run, Gang& gang, Nanoseconds now) {
  if ((!gang.all_heard() || gang.any_silent()) && now >= gang.list_at) {
    gang.list_at = now + (gang.is_listed ? times_.listing : times_.silence);
    unlisted_.push_back(run);
  }
  std::size_t asked = 0;
  const auto many = static_cast<long>(1 + gang.members.size() / (8 * kMostAsked));
  for (auto& [node, member] : gang.members) {
    if (now < member.ask_at) continue;
    if (++asked > kMostAsked) {
      member.ask_at = now + times_.repeat;
      continue;
    }
    member.ask_at = now + (member.given_up ? times_.rarely : many * times_.heartbeat);
    if (!member.address.empty())
      messages_.push_back({.address = member.address, .message = write(run, 0, GangQuestion{})});
  }
}

GangMessage GangDesk::write(const Run& run, std::uint64_t reader, const decltype(GangMessage::what)& what) {
  return {.node = node_,
          .job = run.first,
          .run = run.second,
          .life = life_,
          .number = ++written_,
          .reader = reader,
          .what = what};
}

// A gang that is apart stays apart until all of its nodes are in contact. If only some of its nodes had
// common turns, its other nodes could begin turns on their own.
void GangDesk::set_apart(const Run& run, Gang& gang, Nanoseconds now) {
  const bool was_apart = gang.apart;
  Apart apart{.job = run.first, .silent = {}, .answer = 0, .nodes = gang.nodes};
  bool any_lost = false;
  for (const auto& [node, member] : gang.members) {
    if (member.given_up) apart.silent.push_back(node);
    if (member.heard && !member.given_up) ++apart.answer;
    any_lost = any_lost || !member.in_contact;
  }
  gang.apart = !apart.silent.empty() || (was_apart && any_lost) ||
               (gang.lacks_members() && now - gang.since >= patience_with_unlisted(gang));
  gang.coordinator.set_apart(gang.apart, now);
  if (gang.apart && !was_apart) apart_.push_back(std::move(apart));
}

void GangDesk::decide(const Run& run, Gang& gang, Nanoseconds now) {
  set_apart(run, gang, now);
  const bool has_gathered = !gang.is_new || gang.gathered || gang.all_present();
  if (!gang.coordinator.gives_orders() && (gang.apart || (gang.all_heard() && has_gathered)))
    gang.coordinator.begin_orders(now);
  gang.coordinator.advance(now);
  for (auto& [node, member] : gang.members) {
    std::optional<GangOrder> order = gang.coordinator.order_for(member.number);
    const bool is_news = member.present && member.in_contact && member.sent != order;
    member.delayed = (member.owed || is_news) && now - member.sent_at < times_.pause;
    if (member.delayed || (!member.owed && !is_news)) continue;
    member.owed = false;
    if (order) member.sent_at = now;
    member.sent = order;
    decltype(GangMessage::what) what = GangPatience{};
    if (order) {
      order->since += wall_;
      what = *order;
    }
    messages_.push_back({.address = member.address, .message = write(run, member.life, what)});
  }
}

// Returns the length of silence after which the member counts as out of contact. If the member is out of
// contact already, or has never reported, returns the length after which the member is given up.
Nanoseconds GangDesk::patience(const std::string& node, const Member& member) const {
  if (member.heard) return member.in_contact ? times_.silence : times_.gone;
  return heard_.has(node, member.heard_at) ? times_.gone : times_.never;
}

bool GangDesk::lose_silent(Gang& gang, Nanoseconds now) const {
  bool any = false;
  for (auto& [node, member] : gang.members) {
    if (member.given_up || now - member.heard_at < patience(node, member)) continue;
    member.given_up = !member.heard || !member.in_contact;
    if (!member.given_up) gang.coordinator.lose(member.number);
    member.in_contact = false;
    any = true;
  }
  return any;
}

// Lists the silent nodes for which the gang waits. A node that has never reported about this job is also
// listed. If such a node has sent a message about another job lately, it is given up only after a long time.
void GangDesk::name_silent(const Run& run, Gang& gang, Nanoseconds now) {
  if (gang.apart) return;  // the gang does not wait for silent nodes
  Silent silent{.job = run.first, .nodes = {}};
  for (auto& [node, member] : gang.members) {
    const Nanoseconds limit = member.heard ? times_.silence : times_.never;
    if (member.is_silent || member.given_up || now - member.heard_at < limit) continue;
    member.is_silent = true;
    silent.nodes.push_back(node);
  }
  const bool lacks_them = gang.lacks_members() && !gang.is_told && now - gang.since >= times_.never;
  gang.is_told = gang.is_told || lacks_them;
  if (lacks_them || !silent.nodes.empty()) silent_.push_back(std::move(silent));
}

bool GangDesk::note_time(Gang& gang, Nanoseconds now) const {
  const bool has_gathered = !gang.gathered && now - gang.since >= times_.gathering;
  gang.gathered = gang.gathered || has_gathered;
  const bool lacks_them =
      gang.lacks_members() && !gang.apart && now - gang.since >= patience_with_unlisted(gang);
  return has_gathered || lacks_them;
}

bool GangDesk::any_delayed_is_due(const Gang& gang, Nanoseconds now) const {
  return std::any_of(gang.members.begin(), gang.members.end(), [&](const auto& entry) {
    return entry.second.delayed && now - entry.second.sent_at >= times_.pause;
  });
}

void GangDesk::advance(Nanoseconds now) {
  for (auto it = gangs_.begin(); it != gangs_.end();) {
    Gang& gang = it->second;
    const bool lost = lose_silent(gang, now);
    if (!gang.any_present() && now - gang.present_at >= times_.silence) {
      it = gangs_.erase(it);
      continue;
    }
    const bool due = note_time(gang, now) || any_delayed_is_due(gang, now);
    ask(it->first, gang, now);
    const auto wake = gang.coordinator.wake();
    if (lost || due || (wake && *wake <= now)) decide(it->first, gang, now);
    name_silent(it->first, gang, now);
    ++it;
  }
}

std::optional<Nanoseconds> GangDesk::wake() const {
  std::optional<Nanoseconds> first;
  const auto consider = [&](Nanoseconds at) {
    if (!first || at < *first) first = at;
  };
  for (const auto& [run, gang] : gangs_) {
    if (const auto at = gang.coordinator.wake()) consider(*at);
    if (!gang.gathered) consider(gang.since + times_.gathering);
    if (!gang.all_heard() || gang.any_silent()) consider(gang.list_at);
    if (gang.lacks_members() && !gang.apart) consider(gang.since + patience_with_unlisted(gang));
    if (!gang.any_present()) consider(gang.present_at + times_.silence);
    for (const auto& [node, member] : gang.members) {
      consider(member.ask_at);
      if (member.delayed) consider(member.sent_at + times_.pause);
      if (!member.given_up) consider(member.heard_at + patience(node, member));
    }
  }
  return first;
}

}  // namespace sharedgpu
