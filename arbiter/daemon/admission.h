// SPDX-License-Identifier: Apache-2.0
// Limits the number of connections of each user and of all users, and the number of messages queued for each
// user's processes. Each connection takes one of a number of places. The number of places follows from the
// daemon's limit on descriptors. Strangers (processes outside of registered jobs) get at most a quarter of
// the places. All processes but those of root, including members (processes of registered jobs), get at most
// seven eighths of the places together. Root is not bounded.
//
// Pure. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace sharedgpu {

class Admission {
 public:
  // The maximum number of places of one user: enough for each process of a large node. A user also gets at
  // most half of all places.
  static constexpr std::size_t kMostPerUser = 1024;
  // The maximum number of newcomers (peers not identified yet) of one user. The bound keeps strangers that
  // are not identified yet from taking the places of members.
  static constexpr std::size_t kMostNewcomers = 256;
  // The maximum number of messages queued for all strangers of one user together. The same maximum applies to
  // all members of one user together, so that strangers do not use up the limit of members.
  static constexpr std::size_t kMostWaiting = 4096;

  // stranger: a process outside of registered jobs. member: a process of a registered job. root: a process of
  // root. newcomer: a process that is not identified yet.
  enum class Rank : std::uint8_t { stranger, member, root, newcomer };

  explicit Admission(std::size_t places);

  // A place for one connection. The destructor frees the place.
  class Place;
  // Returns null if no place is free.
  std::shared_ptr<Place> enter(uid_t user, Rank rank);
  // Changes the rank of a newcomer to stranger or member. Returns false if no place is free for this rank.
  bool settle(Place& newcomer, Rank rank);

 private:
  bool may_enter(uid_t user, Rank rank) const;

  struct User {
    std::size_t places = 0;
    std::size_t newcomers = 0;
    std::array<std::size_t, 2> waiting = {};  // messages, by rank
  };
  // The numbers of places taken by all users but root.
  struct Counts {
    std::size_t strangers = 0;
    std::size_t all = 0;
    std::map<uid_t, User> users;
  };
  const std::size_t most_strangers_;
  const std::size_t most_;  // the maximum number of places of all users but root
  const std::size_t most_per_user_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

class Admission::Place {
 public:
  // The constructor counts the place as taken.
  Place(std::shared_ptr<Counts> counts, uid_t user, Rank rank);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // Counts one more message as queued for the peer. If too many messages are queued already, returns false
  // and does not count the message.
  bool add_waiting();
  void remove_waiting(std::size_t count);

 private:
  friend class Admission;
  void count();
  void uncount();
  std::size_t& waiting() { return counts_->users.at(user_).waiting.at(static_cast<std::size_t>(rank_)); }

  const std::shared_ptr<Counts> counts_;
  const uid_t user_;
  Rank rank_;
  std::size_t waiting_ = 0;  // number of messages queued for this peer
};

}  // namespace sharedgpu
