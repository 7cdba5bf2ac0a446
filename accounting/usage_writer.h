// SPDX-License-Identifier: GPL-2.0-or-later
// Writes a step's usage into Slurm's accounting exactly once on a node. Pure.
//
// Slurm sums the values that a plugin writes for each task of a step. With jobacct_gather/linux, the sum
// includes the values for each process that a task has started, too. A step's usage belongs to no single
// process, so one task reports all of it, and the others report zero. Two properties of Slurm complicate
// this:
//
// - In a poll, Slurm calls the plugin once for each process, but does not say for which process. So the
//   plugin finds by trial which call of a poll is for the reporting task, and checks each trial against
//   Slurm's record of that task. If processes start and end all the time, the place of this call changes with
//   every poll. But if the step has only one task on this node, no trial is needed: the plugin returns the
//   step's total in every call, since Slurm usually counts only the task. If Slurm also counts the task's
//   child processes, the sum is too high; the plugin then returns the total only in the first call.
// - When a task ends, its reported value stays in the step's sum. The next reporting task reports only the
//   usage beyond this value.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sharedgpu {

// A step's usage as shown by Slurm.
struct StepCounts {
  std::uint64_t seconds = 0;   // seconds in which the step held a lease
  std::uint64_t waited = 0;    // seconds of waiting for a lease
  std::uint64_t restored = 0;  // MiB copied to GPUs
  std::uint64_t evicted = 0;   // MiB copied from GPUs
  bool operator==(const StepCounts&) const = default;
};

class UsageWriter {
 public:
  // `one_task`: the step has at most one task on this node.
  explicit UsageWriter(bool one_task = false) : way_(one_task ? Way::every_call : Way::search) {}

  // Rounds to whole seconds. A time above zero becomes at least 1, so zero means that the GPU was not used.
  static std::uint64_t seconds(std::chrono::nanoseconds lease);
  // Rounds bytes to MiB. A count above zero becomes at least 1.
  static std::uint64_t mebibytes(std::uint64_t bytes);

  // Returns true if Slurm's accounting shows less than `total` for the step, or does not show the step's
  // usage yet.
  bool is_due(const StepCounts& total) const;

  // begin_poll() prepares a poll that is to make the step's sum equal to `total`. next_call() returns the
  // value to write in the next call of the poll, or nullopt if nothing is to be written. `shown` of
  // end_poll() is the value that Slurm then shows for the reporting task. end_poll() returns false if another
  // poll is needed, because this value is wrong or because other tasks may hold wrong values.
  void begin_poll(const StepCounts& total);
  std::optional<StepCounts> next_call();
  bool end_poll(const std::optional<StepCounts>& shown);

  // Call when the reporting task has ended. The value that Slurm last showed for this task is final.
  void reporting_task_ended();

 private:
  enum class Way : std::uint8_t { every_call, first_call, search };

  bool is_too_much(const StepCounts& shown) const;

  Way way_;
  StepCounts settled_;                  // reported by tasks that have ended
  std::optional<StepCounts> reported_;  // the value that Slurm shows for the reporting task
  StepCounts wanted_;                   // value that the reporting task must show after this poll
  std::uint32_t reporting_call_ = 0;    // index of the call that is assumed to be for the reporting task
  std::uint32_t calls_ = 0;             // number of calls in this poll so far
  bool searching_ = false;              // the last assumption was wrong; now only the call with index
                                        // `reporting_call_` writes a value
  bool cleans_ = true;                  // other tasks may hold wrong values: write zeros for them
};

// Returns the count of TRES number `id` in a list such as "1=12,1001=7"; nullopt if the list lacks the TRES.
std::optional<std::uint64_t> find_tres(std::string_view list, std::uint32_t id);

}  // namespace sharedgpu
