// SPDX-License-Identifier: Apache-2.0
// The queue ("line") of the jobs that are apart: jobs whose nodes do not reach each other. On this node,
// these jobs have their turns in the order in which Slurm started them.
//
// The order is the same on all nodes. So two jobs never have turns on different nodes while each waits for
// the other. The line also includes jobs without processes on this node, since such a job may have a turn on
// another node.
//
// Pure: no socket, clock or thread. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

struct StartedJob {
  std::uint32_t number = 0;
  Nanoseconds started{};  // time since 1970 by Slurm's clock, in whole seconds
};

class ApartLine {
 public:
  // `pause`: the time between two questions to Slurm.
  explicit ApartLine(Nanoseconds pause) : pause_(pause) {}

  // Call if a waiting job needs Slurm's answer to a question that is asked at `needed` or later. As long as
  // `waits` of advance() is true, take_question() returns a new question after each pause.
  void need(Nanoseconds needed) { ask_at_ = std::min(ask_at_, needed); }
  // `waits`: true if a job in the line waits until it may begin.
  void advance(bool waits, Nanoseconds now);
  std::optional<Nanoseconds> wake(bool waits) const;
  // Returns the time of the question if Slurm should be asked now.
  std::optional<Nanoseconds> take_question() { return std::exchange(question_, std::nullopt); }
  // Call with Slurm's answer to the question that was asked at `asked`: the jobs on this node that span nodes
  // and have units. An empty list means that Slurm has not answered.
  void list(std::vector<StartedJob> jobs, Nanoseconds asked);

  // The time of the last question that Slurm has answered.
  Nanoseconds listed_at() const { return listed_at_; }
  // Returns true if Slurm's last list has the job.
  bool lists(std::uint32_t job) const;
  // Returns the time at which Slurm started the job if the job may begin, else nullopt. The job may begin if
  // it is on a list for which Slurm was asked at `needed` or later, and `passed` is true for each earlier job
  // on that list. `passed` returns true for a job that may also begin here, and for a job whose coordinator
  // gives it turns.
  std::optional<Nanoseconds> may_begin(std::uint32_t job, Nanoseconds needed,
                                       const std::function<bool(std::uint32_t)>& passed) const;

 private:
  const Nanoseconds pause_;
  std::vector<StartedJob> jobs_;  // in the order in which Slurm started them
  Nanoseconds listed_at_ = Nanoseconds::min();
  Nanoseconds ask_at_ = Nanoseconds::max();
  std::optional<Nanoseconds> question_;
};

}  // namespace sharedgpu
