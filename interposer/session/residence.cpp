// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/residence.h"

#include <algorithm>

#include "interposer/oversize/exchange_plan.h"

namespace sharedgpu::session {
namespace {

using namespace std::chrono_literals;

// An exchange brings in up to this much, so that the next launches need no exchange of their own.
constexpr Bytes kBatch = mebibytes(512);
// The pause after an exchange that was given up doubles from the first to the second value.
constexpr Nanoseconds kFirstPause = 1s;
constexpr Nanoseconds kLongestPause = 60s;

}  // namespace

// Several kernels cannot be timed apart, so an operand of theirs that was never tried counts as needed.
void Residence::look_at(const KernelUse& use, bool may_try, Choice& choice, std::vector<AwayHandle>& needed) {
  for (const Argument& argument : use.arguments) {
    const std::vector<AwayHandle> handles = memory_.operands(argument.address);
    Bytes all;
    Bytes away;
    for (const AwayHandle& handle : handles) {
      all += handle.size;
      if (handle.away) away += handle.size;
    }
    const KernelWays::Key key{.kernel = use.kernel, .word = argument.word};
    const Way way = ways_.way(key);
    if (all == Bytes{} || way == Way::streams) continue;
    if (may_try && way == Way::untried && away != Bytes{}) {
      choice.trials.push_back({.key = key, .away = true});
      choice.away += away;
      continue;
    }
    if (may_try && way == Way::needs_gpu && !ways_.decided(key))
      choice.trials.push_back({.key = key, .away = false});
    choice.here += all;
    for (const AwayHandle& handle : handles) {
      order_.note(handle.address);
      if (std::ranges::find(needed, handle.address, &AwayHandle::address) == needed.end())
        needed.push_back(handle);
    }
  }
}

Residence::Choice Residence::choose(std::span<const KernelUse> kernels, Nanoseconds now) {
  Choice choice;
  std::vector<AwayHandle> needed;
  const std::lock_guard lock(mutex_);
  for (const KernelUse& use : kernels) look_at(use, kernels.size() == 1, choice, needed);
  if (now < paused_until_) {
    choice.trials.clear();  // operands may be away that should be on the GPU
    return choice;
  }
  plan_for(needed, choice);
  return choice;
}

Residence::Choice Residence::choose(CUdeviceptr address) {
  Choice choice;
  const std::lock_guard lock(mutex_);
  plan_for(memory_.operands(address), choice);
  return choice;
}

void Residence::plan_for(const std::vector<AwayHandle>& needed, Choice& choice) {
  for (const AwayHandle& handle : needed)
    if (handle.away) choice.missing += handle.size;
  if (choice.missing == Bytes{}) return;
  std::vector<Candidate> candidates;
  for (const AwayHandle& handle : memory_.handles())
    candidates.push_back({.handle = handle.address, .size = handle.size, .on_gpu = !handle.away});
  std::vector<std::uint64_t> addresses;
  for (const AwayHandle& handle : needed) addresses.push_back(handle.address);
  const Plan planned = plan(order_, candidates, addresses, memory_.room(), kBatch);
  choice.out.assign(planned.out.begin(), planned.out.end());
  choice.in.assign(planned.in.begin(), planned.in.end());
  for (const AwayHandle& handle : needed)
    if (handle.away && std::ranges::find(choice.in, handle.address) != choice.in.end())
      choice.missing -= handle.size;
}

void Residence::exchanged(bool complete, Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  pause_ = complete ? Nanoseconds{} : std::clamp(2 * pause_, kFirstPause, kLongestPause);
  paused_until_ = complete ? Nanoseconds{} : now + pause_;
}

void Residence::ran(const Choice& choice, Nanoseconds took) {
  const std::lock_guard lock(mutex_);
  for (const Choice::Trial& trial : choice.trials) {
    if (trial.away)
      ways_.ran_away(trial.key, took, choice.away);
    else if (choice.away == Bytes{})
      ways_.ran_here(trial.key, took, choice.here);
  }
}

}  // namespace sharedgpu::session
