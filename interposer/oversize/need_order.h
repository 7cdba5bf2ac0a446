// SPDX-License-Identifier: Apache-2.0
// The order in which a program needs its handles on the GPU. One need is one launch that needs one handle.
// Programs repeat themselves: this class finds the position in the past whose needs match the newest needs,
// and predicts that the same needs follow again. While no order is learned, it assumes that the handle that
// was needed least recently is needed last. Distances are counted in needs: a distance of 3 means the third
// need from now.
//
// Pure and bounded: no clock, at most kMostNeeds needs and kMostMemory bytes. Not thread-safe. A handle is
// identified by its address. A call takes the time of a search in a balanced tree. If the need is not the one
// that the log predicts, note() also compares up to 16 earlier positions, with up to 256 needs each. No call
// fails. The constructor, too, allocates memory.
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

  // Records that a launch needs the handle on the GPU. If the previous need was for the same handle, both
  // count as one need.
  void note(std::uint64_t handle);

  // Returns true if a past position corresponds to the present, and at least half of the last 16 needs were
  // predicted. When a position is found at which eight or more needs match the newest needs, these newest
  // needs count as predicted, too.
  bool learned() const;
  // The distance of the handle's next need. If the order is learned, two past positions that correspond to
  // the present predict it: one in each of the last two cycles. From each of these positions, the distance to
  // the handle's next need after it is taken. The result is the shorter one; kNever if the log has no such
  // need. While no order is learned, the result is since() + 1; kNever if the log has no need of the handle.
  std::uint64_t next(std::uint64_t handle) const;
  // The distance back to the handle's last need: 0 if this is the newest need of all, kNever if the log has
  // no need of the handle.
  std::uint64_t since(std::uint64_t handle) const;

 private:
  // A position numbers a need. Positions grow for ever, and the log keeps the newest needs.
  using Position = std::uint64_t;
  struct Need {
    std::uint64_t handle;
    Position alike;  // the past position that corresponds to this need; zero if none was found
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
    std::size_t dropped_ = 0;  // number of elements at the start of all_ that are not in the log any more
  };

  Position end() const { return first_ + log_.size(); }
  const Need& at(Position position) const { return log_[position - first_]; }
  const Positions* find(std::uint64_t handle) const;  // null if the handle is not in the log
  bool is_near(const Positions& needs) const;
  // Assumes that the newest need is the same as the need at `place`. Returns how many needs in a row,
  // backwards from `place`, are the same as the newest needs; at most kLongestMatch.
  std::size_t match(Position place) const;
  // Compares the newest positions in `needs`. Returns the position with the longest match, the newest one of
  // several; nullopt if no match is longer than `longest`. If it finds one, sets `longest` to the length of
  // the match.
  std::optional<Position> best_place(const Positions& needs, std::size_t& longest) const;
  // Sets present_ to the position that corresponds to a need of the handle at this moment. If there is no
  // such position, returns false and leaves present_ unchanged. Also records in predicted_ whether the need
  // was predicted.
  bool follow(std::uint64_t handle, const Positions& needs);
  void drop_oldest();

  std::deque<Need> log_;
  Position first_ = 1;                        // the position of log_.front()
  std::map<std::uint64_t, Positions> needs_;  // the positions of each handle in the log
  // The past position that corresponds to the newest need, or to an earlier need if none was found for the
  // newest; zero if no such position is in the log.
  Position present_ = 0;
  std::uint32_t predicted_ = 0;  // a bit for each of the last needs: 1 if the need counts as predicted; the
                                 // lowest bit is the newest need
};

}  // namespace sharedgpu
