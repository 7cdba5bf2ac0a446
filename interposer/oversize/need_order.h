// SPDX-License-Identifier: Apache-2.0
// The order in which a program needs its handles on the GPU. Programs repeat themselves: the order finds the
// place in the past that looks like the present, and predicts that the same needs follow again. While no such
// place is known, the order is that of the last use. Needs are counted, not timed: a distance of 3 means the
// third need from now.
//
// Pure and bounded: no clock, at most kMostNeeds needs and kMostMemory bytes. Not thread-safe. A handle is
// identified by its address. A call takes the time of a search in a balanced tree; a need that was not
// predicted is also compared with a few earlier places. No call fails. An object allocates memory from its
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace sharedgpu {

class NeedOrder {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t kMostNeeds = std::size_t{1} << 16;
  static constexpr std::size_t kMostMemory = std::size_t{16} << 20;  // bytes

  // A launch needs the handle on the GPU. A repetition of the previous need counts as the same need.
  void note(std::uint64_t handle);

  // Returns true if the recent needs have been predicted from the past.
  bool learned() const;
  // The distance of the handle's next need. If the order is learned, the last two cycles predict it; kNever
  // for a handle that neither of them needed from the present place to its end. Otherwise: the longer ago the
  // last need, the larger is the distance; kNever for a handle that has never been needed.
  std::uint64_t next(std::uint64_t handle) const;
  // The distance of the handle's last need; 0 for the last one of all; kNever for none.
  std::uint64_t since(std::uint64_t handle) const;

 private:
  // Positions of needs grow for ever; the log keeps the newest positions.
  using Position = std::uint64_t;
  struct Need {
    std::uint64_t handle;
    Position alike;  // the position in the past that corresponded to this need; zero if none was known
  };
  // The positions at which a handle was needed, in order.
  class Positions {
   public:
    void add(Position position) { all_.push_back(position); }
    void drop_first();
    bool empty() const { return dropped_ == all_.size(); }
    Position last() const { return all_.back(); }
    std::optional<Position> first_after(Position after) const;
    // All positions in the log.
    std::span<const Position> all() const { return std::span(all_).subspan(dropped_); }

   private:
    std::vector<Position> all_;
    std::size_t dropped_ = 0;  // so many of the first ones are no longer in the log
  };

  Position end() const { return first_ + log_.size(); }
  const Need& at(Position position) const { return log_[position - first_]; }
  const Positions* find(std::uint64_t handle) const;  // null if the handle is not in the log
  bool is_near(const Positions& needs) const;
  // If a handle is needed now as it was at `place`: how many needs in a row up to `place` are the same as the
  // newest needs, this one included; at most kLongestMatch.
  std::size_t match(Position place) const;
  // The newest of a handle's places with the longest match, if one is longer than `longest`, which becomes
  // its length.
  std::optional<Position> best_place(const Positions& needs, std::size_t& longest) const;
  // Moves the present to the position that corresponds to a need of a handle now. Returns false if there is
  // no such position; then the present stays.
  bool follow(std::uint64_t handle, const Positions& needs);
  void drop_oldest();

  std::deque<Need> log_;
  Position first_ = 1;                        // the position of log_.front()
  std::map<std::uint64_t, Positions> needs_;  // of each handle in the log
  // The position in the past that corresponds to the newest need; zero if none is known.
  Position present_ = 0;
  std::uint32_t predicted_ =
      0;  // a bit for each of the last needs, the newest is the lowest: 1 if it was predicted
};

}  // namespace sharedgpu
