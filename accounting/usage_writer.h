// SPDX-License-Identifier: GPL-2.0-or-later
// Brings what a step comes to into Slurm's books exactly once on a node. Pure.
//
// Slurm adds what is written for each task of a step (with jobacct_gather/linux, for each process below a
// task as well). What a step comes to belongs to no one process of it, so one task reports all of it, and the
// others report zero. Two things make that less simple than it sounds:
//
// - In a poll, Slurm asks once per process but does not say which one it is. So the number of the call that
//   belongs to the reporting task is found by trying, and each try is checked against what Slurm then has
//   recorded for the reporting task. That number rarely changes; where processes come and go it does with
//   every poll. So of a step with one task here all calls are answered, for only tasks count; or, where that
//   shows several times too much since what is below the task counts as well, only the first.
// - When a task ends, what it reported stays in the step's sum. The next one reports only the rest.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sharedgpu {

// What a step shows as.
struct StepCounts {
  std::uint64_t seconds = 0;   // of lease
  std::uint64_t waited = 0;    // seconds of waiting for it
  std::uint64_t restored = 0;  // MiB copied to GPUs
  std::uint64_t evicted = 0;   // MiB copied from them
  bool operator==(const StepCounts&) const = default;
};

class UsageWriter {
 public:
  // `one_task`: the step has no more than one on this node.
  explicit UsageWriter(bool one_task = false) : way_(one_task ? Way::every_call : Way::search) {}

  // The seconds that a time shows as: the nearest number, but never zero where there was any, so that
  // zero means that the GPU was not used.
  static std::uint64_t seconds(std::chrono::nanoseconds lease);
  // The same for bytes, in MiB.
  static std::uint64_t mebibytes(std::uint64_t bytes);

  // Whether Slurm's books show less than `total` for the step, or nothing yet.
  bool is_due(const StepCounts& total) const;

  // A poll is about to begin that shall make the step's sum `total`. Then, for each call in turn, what to
  // write: nothing where empty. Then what the books show for the reporting task: returns whether it is right,
  // else another poll is needed.
  void begin_poll(const StepCounts& total);
  std::optional<StepCounts> next_call();
  bool end_poll(const std::optional<StepCounts>& shown);

  // The reporting task has ended. What it showed when last seen is settled.
  void reporting_task_ended();

 private:
  enum class Way : std::uint8_t { every_call, first_call, search };

  bool is_too_much(const StepCounts& shown) const;

  Way way_;
  StepCounts settled_;                  // reported by tasks that have ended
  std::optional<StepCounts> reported_;  // by the reporting task, as the books show it
  StepCounts wanted_;                   // what the reporting task is to show after this poll
  std::uint32_t reporting_call_ = 0;    // the number of the call that is believed to be the reporting task's
  std::uint32_t calls_ = 0;             // in this poll, so far
  bool searching_ = false;              // the last try was wrong: do not disturb what other calls wrote
  bool cleans_ = true;                  // other tasks may have something that is not theirs: zeros for these
};

// The count of TRES number `id` in a list such as "1=12,1001=7".
std::optional<std::uint64_t> find_tres(std::string_view list, std::uint32_t id);

}  // namespace sharedgpu
