// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/admission.h"

#include <algorithm>
#include <utility>

namespace sharedgpu {

Admission::Admission(std::size_t places)
    : most_strangers_(places / 4),
      most_(places - places / 8),
      most_per_user_(std::min(kMostPerUser, places / 2)) {}

bool Admission::may_enter(uid_t user, Rank rank) const {
  if (rank == Rank::root) return true;
  const auto known = counts_->users.find(user);
  const User its = known == counts_->users.end() ? User{} : known->second;
  if (its.places >= most_per_user_ || counts_->all >= most_) return false;
  if (rank == Rank::newcomer) return its.newcomers < kMostNewcomers;
  return rank == Rank::member || counts_->strangers < most_strangers_;
}

std::shared_ptr<Admission::Place> Admission::enter(uid_t user, Rank rank) {
  return may_enter(user, rank) ? std::make_shared<Place>(counts_, user, rank) : nullptr;
}

bool Admission::settle(Place& newcomer, Rank rank) {
  if (newcomer.rank_ != Rank::newcomer) return true;
  if (rank == Rank::stranger && counts_->strangers >= most_strangers_) return false;
  newcomer.uncount();
  newcomer.rank_ = rank;
  newcomer.count();
  return true;
}

Admission::Place::Place(std::shared_ptr<Counts> counts, uid_t user, Rank rank)
    : counts_(std::move(counts)), user_(user), rank_(rank) {
  count();
}

Admission::Place::~Place() {
  remove_waiting(waiting_);
  uncount();
}

void Admission::Place::count() {
  if (rank_ == Rank::root) return;
  User& its = counts_->users[user_];
  if (rank_ == Rank::stranger) ++counts_->strangers;
  if (rank_ == Rank::newcomer) ++its.newcomers;
  ++counts_->all;
  ++its.places;
}

void Admission::Place::uncount() {
  if (rank_ == Rank::root) return;
  User& its = counts_->users.at(user_);
  if (rank_ == Rank::stranger) --counts_->strangers;
  if (rank_ == Rank::newcomer) --its.newcomers;
  --counts_->all;
  if (--its.places == 0) counts_->users.erase(user_);
}

bool Admission::Place::add_waiting() {
  if (rank_ == Rank::root) return true;
  if (waiting() >= kMostWaiting) return false;
  ++waiting();
  ++waiting_;
  return true;
}

void Admission::Place::remove_waiting(std::size_t count) {
  if (rank_ == Rank::root || count == 0) return;
  waiting() -= count;
  waiting_ -= count;
}

}  // namespace sharedgpu
