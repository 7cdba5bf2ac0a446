// SPDX-License-Identifier: Apache-2.0
// Items of several users, and the order in which the users are served: each gets the same time, however many
// items it has and however long one of them takes. Deficit round robin (Shreedhar and Varghese, SIGCOMM
// 1995), but a user that has used more than its time owes it for as long as others wait. A user that rests is
// not served.
//
// Pure. One thread at a time.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "protocol/units.h"

namespace sharedgpu {

template <class Item>
class FairQueue {
 public:
  // A user whose turn comes is served for about `quantum`.
  explicit FairQueue(Nanoseconds quantum) : quantum_(quantum) {}

  // True if there is no item of a user that may be served.
  bool empty() const { return ring_.empty(); }
  void add(uid_t user, Item item) {
    User& its = users_[user];
    if (its.items.empty() && !its.rests) ring_.push_back(user);
    its.items.push_back(std::move(item));
  }
  // Takes the next item. Not for an empty queue.
  std::pair<uid_t, Item> take() {
    for (; !begin_turn(); turn_has_begun_ = false) {
      ring_.push_back(ring_.front());
      ring_.pop_front();
    }
    const uid_t id = ring_.front();
    User& user = users_[id];
    std::pair<uid_t, Item> next{id, std::move(user.items.front())};
    user.items.pop_front();
    if (!user.items.empty()) return next;
    ring_.pop_front();
    turn_has_begun_ = false;
    return next;
  }
  // The user was served for so long. True: its turn goes on.
  bool charge(uid_t user, Nanoseconds time) {
    users_[user].balance -= time;
    return users_[user].balance > Nanoseconds{};
  }
  // The user's items, and those that it adds, wait until it resumes.
  void rest(uid_t user) {
    users_[user].rests = true;
    if (!ring_.empty() && ring_.front() == user) turn_has_begun_ = false;
    std::erase(ring_, user);
  }
  void resume(uid_t user) {
    User& its = users_[user];
    its.rests = false;
    if (!its.items.empty()) ring_.push_back(user);
  }
  // Nobody waits: nobody owes anything.
  void settle() {
    if (ring_.empty()) std::erase_if(users_, [](const auto& entry) { return !entry.second.rests; });
  }

 private:
  struct User {
    std::deque<Item> items;
    Nanoseconds balance{};
    bool rests = false;
  };
  // False: the first user in the ring has had its turn, or owes it.
  bool begin_turn() {
    User& user = users_[ring_.front()];
    if (!turn_has_begun_) user.balance = std::min(user.balance + quantum_, quantum_);
    turn_has_begun_ = true;
    return user.balance > Nanoseconds{};
  }

  const Nanoseconds quantum_;
  std::map<uid_t, User> users_;
  std::deque<uid_t> ring_;       // the users with items
  bool turn_has_begun_ = false;  // of the first in the ring
};

}  // namespace sharedgpu
