// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/admission.h"

#include <utility>

namespace sharedgpu {

Admission::Admission(std::size_t places) : most_strangers_(places / 4), most_(places - places / 8) {}

bool Admission::may_enter(uid_t user, Rank rank) const {
  if (rank == Rank::root) return true;
  const auto known = counts_->users.find(user);
  if (known != counts_->users.end() && known->second.places >= kMostPerUser) return false;
  return counts_->all < most_ && (rank == Rank::member || counts_->strangers < most_strangers_);
}

std::shared_ptr<Admission::Place> Admission::enter(uid_t user, Rank rank) {
  return may_enter(user, rank) ? std::make_shared<Place>(counts_, user, rank) : nullptr;
}

Admission::Place::Place(std::shared_ptr<Counts> counts, uid_t user, Rank rank)
    : counts_(std::move(counts)), user_(user), rank_(rank) {
  if (rank_ == Rank::root) return;
  if (rank_ == Rank::stranger) ++counts_->strangers;
  ++counts_->all;
  ++counts_->users[user_].places;
}

Admission::Place::~Place() {
  if (rank_ == Rank::root) return;
  remove_waiting(waiting_);
  if (rank_ == Rank::stranger) --counts_->strangers;
  --counts_->all;
  if (--counts_->users.at(user_).places == 0) counts_->users.erase(user_);
}

bool Admission::Place::add_waiting() {
  if (rank_ == Rank::root) return true;
  if (waiting() >= kMostWaiting) return false;
  ++waiting();
  ++waiting_;
  return true;
}

void Admission::Place::remove_waiting(std::size_t count) {
  if (rank_ == Rank::root) return;
  waiting() -= count;
  waiting_ -= count;
}

}  // namespace sharedgpu
