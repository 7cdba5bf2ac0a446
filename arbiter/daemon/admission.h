// SPDX-License-Identifier: Apache-2.0
// Bounds the connections of each user and of all, and the messages that wait for a user's peers. The daemon's
// descriptors suffice for a number of places; strangers get a quarter of them, strangers and processes of
// registered jobs together all but an eighth, and root as many as it wants.
//
// Pure. One thread at a time.
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
  // Enough for each process of a large node. Where there are few places, half of them.
  static constexpr std::size_t kMostPerUser = 1024;
  // Of these, newcomers: strangers who fill their places do not keep members from becoming known as such.
  static constexpr std::size_t kMostNewcomers = 256;
  // Messages that wait, of a user's strangers, and of its members: a stranger takes nothing from a job.
  static constexpr std::size_t kMostWaiting = 4096;

  // A process of no registered job, of one, root's, or one of which that is not known yet.
  enum class Rank : std::uint8_t { stranger, member, root, newcomer };

  explicit Admission(std::size_t places);

  // A place for one connection, free again with its end.
  class Place;
  // Null: there is none.
  std::shared_ptr<Place> enter(uid_t user, Rank rank);
  // A newcomer turns out to be a stranger or a member. False: there is no place for it as such.
  bool settle(Place& newcomer, Rank rank);

 private:
  bool may_enter(uid_t user, Rank rank) const;

  struct User {
    std::size_t places = 0;
    std::size_t newcomers = 0;
    std::array<std::size_t, 2> waiting = {};  // messages, by rank
  };
  // Of strangers and members.
  struct Counts {
    std::size_t strangers = 0;
    std::size_t all = 0;
    std::map<uid_t, User> users;
  };
  const std::size_t most_strangers_;
  const std::size_t most_;  // of strangers and members
  const std::size_t most_per_user_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

class Admission::Place {
 public:
  // Counts what it takes.
  Place(std::shared_ptr<Counts> counts, uid_t user, Rank rank);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // One more message waits for the peer. False: it may not, and does not count.
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
  std::size_t waiting_ = 0;  // for this peer
};

}  // namespace sharedgpu
