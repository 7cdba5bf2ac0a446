// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/desk.h"

#include <algorithm>

namespace sharedgpu {

void GangDesk::hear(const std::string& address, const GangLetter& letter, Nanoseconds now) {
  const auto* report = std::get_if<GangReport>(&letter.what);
  if (report == nullptr) return;
  if (!report->present && gangs_.count({letter.job, letter.run}) == 0) return;  // it has ended already
  Gang& gang = gangs_
                   .try_emplace(Run{letter.job, letter.run},
                                Gang{.coordinator = {pace_, now, letter.nodes, now + times_.gathering},
                                     .members = {},
                                     .nodes = letter.nodes})
                   .first->second;
  follow(gang, address, letter.life);
  const auto [it, is_new] = gang.members.try_emplace(address);
  Member& member = it->second;
  if (is_new) member.number = ++gang.last_number;
  if (!member.newest.take(letter)) return;
  member.life = letter.life;
  member.present = report->present;
  member.in_contact = true;
  member.given_up = false;
  member.heard = now;
  member.owed = true;
  if (!letter.is_new) gang.coordinator.await(knows_all_at_);
  gang.coordinator.hear(member.number, *report);
  decide({letter.job, letter.run}, gang, now);
}

// An arbiter that writes from another address than before is the same member.
void GangDesk::follow(Gang& gang, const std::string& address, std::uint64_t life) {
  if (gang.members.count(address) != 0) return;
  const auto it = std::find_if(gang.members.begin(), gang.members.end(),
                               [life](const auto& entry) { return entry.second.life == life; });
  if (it == gang.members.end()) return;
  auto member = gang.members.extract(it);
  member.key() = address;
  gang.members.insert(std::move(member));
}

void GangDesk::decide(const Run& run, Gang& gang, Nanoseconds now) {
  gang.coordinator.advance(now);
  if (gang.coordinator.knows() && !std::exchange(gang.has_orders, true) && gang.members.size() < gang.nodes)
    parts_.push_back({.job = run.first, .heard = gang.members.size(), .nodes = gang.nodes});
  for (auto& [address, member] : gang.members) {
    std::optional<GangOrder> order = gang.coordinator.order_for(member.number);
    if (!member.in_contact || (!member.owed && member.sent == order)) continue;
    member.owed = false;
    member.sent = order;
    GangLetter letter{.job = run.first,
                      .run = run.second,
                      .life = life_,
                      .number = ++written_,
                      .reader = member.life,
                      .what = GangPatience{}};
    if (order) {
      order->since += wall_;
      letter.what = *order;
    }
    letters_.push_back({.address = address, .letter = letter});
  }
}

// Silence that changes something.
Nanoseconds GangDesk::patience(const Member& member) const {
  return member.in_contact ? times_.silence : times_.gone;
}

// A member without processes keeps nobody waiting.
bool GangDesk::lose_silent(Gang& gang, Nanoseconds now) const {
  bool any = std::erase_if(gang.members, [&](const auto& entry) {
               const Member& member = entry.second;
               const bool ends = !member.present && now - member.heard >= times_.silence;
               if (ends) gang.coordinator.forget(member.number);
               return ends;
             }) > 0;
  for (auto& [address, member] : gang.members) {
    if (member.given_up || now - member.heard < patience(member)) continue;
    if (member.in_contact)
      gang.coordinator.lose(member.number);
    else
      gang.coordinator.give_up(member.number);
    member.given_up = !member.in_contact;
    member.in_contact = false;
    any = true;
  }
  return any;
}

void GangDesk::advance(Nanoseconds now) {
  for (auto it = gangs_.begin(); it != gangs_.end();) {
    Gang& gang = it->second;
    const bool lost = lose_silent(gang, now);
    const auto is_gone = [](const auto& member) { return member.second.given_up; };
    if (std::all_of(gang.members.begin(), gang.members.end(), is_gone)) {
      it = gangs_.erase(it);
      continue;
    }
    const auto wake = gang.coordinator.wake();
    if (lost || (wake && *wake <= now)) decide(it->first, gang, now);
    ++it;
  }
}

std::optional<Nanoseconds> GangDesk::wake() const {
  std::optional<Nanoseconds> first;
  const auto consider = [&](Nanoseconds at) {
    if (!first || at < *first) first = at;
  };
  for (const auto& [job, gang] : gangs_) {
    if (const auto at = gang.coordinator.wake()) consider(*at);
    for (const auto& [address, member] : gang.members)
      if (!member.given_up) consider(member.heard + patience(member));
  }
  return first;
}

}  // namespace sharedgpu
