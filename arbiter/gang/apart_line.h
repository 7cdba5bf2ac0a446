// SPDX-License-Identifier: Apache-2.0
// The order in which jobs whose nodes do not reach each other have their turns on this node: the one in which
// Slurm has started them.
//
// Every node knows this order, so two jobs never have turns on different nodes and wait there for each other.
// A job without processes on this node counts, too, since it may have a turn on another one.
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
  Nanoseconds started{};  // wall time by Slurm's clock, in whole seconds
};

class ApartLine {
 public:
  // `pause`: the time between two questions.
  explicit ApartLine(Nanoseconds pause) : pause_(pause) {}

  // A job waits that needs a list from `needed` on. Lists are asked for as long as advance() finds one.
  void need(Nanoseconds needed) { ask_at_ = std::min(ask_at_, needed); }
  // `waits`: a job waits for its place in the line.
  void advance(bool waits, Nanoseconds now);
  std::optional<Nanoseconds> wake(bool waits) const;
  // The time of the question, where Slurm should be asked now.
  std::optional<Nanoseconds> take_question() { return std::exchange(question_, std::nullopt); }
  // Slurm's answer to the question of `asked`: the jobs on this node that span nodes and have units. Nothing:
  // Slurm has not answered.
  void list(std::vector<StartedJob> jobs, Nanoseconds asked);

  // The time of the question that the last answer is for.
  Nanoseconds listed_at() const { return listed_at_; }
  bool lists(std::uint32_t job) const;
  // When Slurm has started the job, if it may begin: a list from `needed` on has it, and each job before it
  // there is no matter (`passed`), since it may begin here too, or has its turns by agreement.
  std::optional<Nanoseconds> may_begin(std::uint32_t job, Nanoseconds needed,
                                       const std::function<bool(std::uint32_t)>& passed) const;

 private:
  const Nanoseconds pause_;
  std::vector<StartedJob> jobs_;  // the first has started first
  Nanoseconds listed_at_ = Nanoseconds::min();
  Nanoseconds ask_at_ = Nanoseconds::max();
  std::optional<Nanoseconds> question_;
};

}  // namespace sharedgpu
