// SPDX-License-Identifier: Apache-2.0
// Queues the items of several users. Serves each user for the same time, however many items the user has, and
// however long an item takes. The algorithm is deficit round robin (Shreedhar and Varghese, SIGCOMM 1995),
// with one difference. A user may exceed its time, and then owes the excess while other users wait. After
// rest(), a user is not served until resume().
//
// Pure. Not thread-safe.
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
  // A user's turn lasts about `quantum`.
  explicit FairQueue(Nanoseconds quantum) : quantum_(quantum) {}

  // Returns true if no user has items, apart from users that rest.
  bool empty() const { return ring_.empty(); }
  void add(uid_t user, Item item) {
    User& its = users_[user];
    if (its.items.empty() && !its.rests) ring_.push_back(user);
    its.items.push_back(std::move(item));
  }
  // Removes the next item from the queue, and returns the item with its user. Call only if the queue is not
  // empty.
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
  // Charges the time for which the user was served. Returns true if the user has time left.
  bool charge(uid_t user, Nanoseconds time) {
    users_[user].balance -= time;
    return users_[user].balance > Nanoseconds{};
  }
  // Holds the user's items, including new ones, until resume() is called for the user.
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
  // If no user waits, clears the debts of all users that do not rest.
  void settle() {
    if (ring_.empty()) std::erase_if(users_, [](const auto& entry) { return !entry.second.rests; });
  }

 private:
  struct User {
    std::deque<Item> items;
    Nanoseconds balance{};
    bool rests = false;
  };
  // Begins the turn of the first user in the ring, unless the turn has begun. Returns false if the user has
  // no time left in this turn.
  bool begin_turn() {
    User& user = users_[ring_.front()];
    if (!turn_has_begun_) user.balance = std::min(user.balance + quantum_, quantum_);
    turn_has_begun_ = true;
    return user.balance > Nanoseconds{};
  }

  const Nanoseconds quantum_;
  std::map<uid_t, User> users_;
  std::deque<uid_t> ring_;       // the users that have items and do not rest
  bool turn_has_begun_ = false;  // the turn of the first user in the ring has begun
};

}  // namespace sharedgpu
