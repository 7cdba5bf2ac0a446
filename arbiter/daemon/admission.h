// SPDX-License-Identifier: Apache-2.0
// Bounds the connections of each user and of all. The daemon's descriptors suffice for a number of places;
// strangers get a quarter of them, strangers and processes of registered jobs together all but an eighth, and
// root as many as it wants.
//
// Pure. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace sharedgpu {

class Admission {
 public:
  // Enough for each process of a large node.
  static constexpr std::size_t kMostPerUser = 1024;

  // A process of no registered job, of one, or root's.
  enum class Rank : std::uint8_t { stranger, member, root };

  explicit Admission(std::size_t places);

  // A place for a connection of that user, which is free again when the last copy of the pointer is gone.
  // Null: there is none.
  std::shared_ptr<void> enter(uid_t user, Rank rank);

 private:
  bool may_enter(uid_t user, Rank rank) const;

  struct Counts {
    std::size_t strangers = 0;
    std::size_t all = 0;  // strangers and members
    std::map<uid_t, std::size_t> users;
  };
  const std::size_t most_strangers_;
  const std::size_t most_;  // of strangers and members
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace sharedgpu
