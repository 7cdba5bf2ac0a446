// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/residence.h"

#include <algorithm>
#include <unordered_set>

namespace sharedgpu::session {
namespace {

using namespace std::chrono_literals;

// An exchange also brings in handles that will be needed soon, as long as at most this many bytes come in
// altogether (bench/eviction_order.cpp).
constexpr Bytes kBatch = mebibytes(256);
// The first estimate, in nanoseconds per byte. On an H100, an exchange takes 1.84 ms if a handle of 64 MiB
// leaves while another one enters.
constexpr double kFirstEstimate = 1.84e6 / static_cast<double>(mebibytes(64).count);
// Exchanges of fewer bytes are not measured, since single calls of the driver take most of their time.
constexpr Bytes kLeastMeasured = mebibytes(64);
// A handle that comes in costs two exchanges: another handle leaves for it, and has to come back later.
constexpr double kExchanges = 2;
// The pause after a failure doubles with each further failure, from the first value up to the second.
constexpr Nanoseconds kFirstPause = 1s;
constexpr Nanoseconds kLongestPause = 60s;

double count(Bytes bytes) { return static_cast<double>(bytes.count); }

}  // namespace

void Residence::Pause::after_failure(Nanoseconds now) {
  length_ = std::clamp(2 * length_, kFirstPause, kLongestPause);
  until_ = now + length_;
}

Residence::Residence(AwayMemory& memory, ExchangeTotals& totals) : memory_(memory), totals_(totals) {
  took_.fill(kFirstEstimate);
}

// The fastest one of the last exchanges counts. An exchange that creates blocks takes ten times longer than
// one that reuses them, and once the blocks exist, most exchanges reuse them.
double Residence::per_byte() const { return *std::ranges::min_element(took_); }

// Each handle counts once, for the first argument that names it.
std::vector<Residence::Use> Residence::uses_of(std::span<const KernelUse> kernels,
                                               std::vector<KernelCosts::Operand>& operands) {
  std::vector<Use> uses;
  std::unordered_set<CUdeviceptr> seen;  // a graph may have thousands of kernels
  for (const KernelUse& kernel : kernels)
    for (const Argument& argument : kernel.arguments) {
      KernelCosts::Operand operand{
          .key = {.kernel = kernel.kernel, .word = argument.word}, .size = {}, .away = {}};
      for (const AwayHandle& handle : memory_.operands(argument.address)) {
        if (!seen.insert(handle.address).second) continue;
        uses.push_back({handle, operand.key, operands.size()});
        operand.size += handle.size;
        if (handle.away) operand.away += handle.size;
      }
      if (operand.size != Bytes{}) operands.push_back(operand);
    }
  return uses;
}

// Returns true also if the cost is unknown, since the kernel may need the operand on the GPU.
bool Residence::is_need(const KernelCosts::Key& key) const {
  const std::optional<double> cost = costs_.per_byte(key);
  return !cost || *cost >= per_byte();
}

// The handles that should be on the GPU, whether or not they are on the GPU now. If the kernel was never
// timed with the operand away, the operand stays away for a trial. Without `may_try`, the kernel cannot be
// timed alone, so the operand comes in without a trial.
std::vector<AwayHandle> Residence::wanted(const std::vector<Use>& uses, bool may_try) {
  std::vector<AwayHandle> found;
  const Bytes window = memory_.window();
  for (const Use& use : uses) debts_.launch(use.handle.size);
  for (const Use& use : uses) {
    const std::optional<double> cost = costs_.per_byte(use.key);
    const bool need = is_need(use.key);
    if (need) order_.note(use.handle.address);
    bool wants = need && !use.handle.away;
    if (use.handle.away && cost) {
      const double lost = *cost * count(use.handle.size);
      wants =
          debts_.add(use.handle.address, lost, window) >= kExchanges * per_byte() * count(use.handle.size);
    } else if (use.handle.away) {
      wants = !may_try;
    }
    if (wants) found.push_back(use.handle);
  }
  return found;
}

std::vector<Candidate> Residence::candidates() const {
  std::vector<Candidate> all;
  for (const AwayHandle& handle : memory_.handles())
    all.push_back({.handle = handle.address, .size = handle.size, .on_gpu = !handle.away});
  return all;
}

ExchangeChoice Residence::plan_for(const std::vector<AwayHandle>& wanted) {
  ExchangeChoice choice;
  if (std::ranges::none_of(wanted, &AwayHandle::away)) return choice;
  std::vector<std::uint64_t> addresses;
  for (const AwayHandle& handle : wanted) addresses.push_back(handle.address);
  const std::vector<Candidate> all = candidates();
  Plan planned = plan(order_, all, addresses, memory_.room(), kBatch);
  choice.out.assign(planned.out.begin(), planned.out.end());
  choice.in.assign(planned.in.begin(), planned.in.end());
  return choice;
}

Residence::Choice Residence::choose(std::span<const KernelUse> kernels, Nanoseconds now) {
  Choice choice;
  const bool single = kernels.size() == 1;
  const std::lock_guard lock(mutex_);
  const std::vector<Use> uses = uses_of(kernels, choice.operands);
  const std::vector<AwayHandle> handles = wanted(uses, single);
  if (exchanges_.over(now)) choice.exchange = plan_for(handles);
  double lost = 0;
  for (const Use& use : uses) {
    if (!use.handle.away) continue;
    if (std::ranges::find(choice.exchange.in, use.handle.address) != choice.exchange.in.end())
      choice.operands[use.operand].away -= use.handle.size;
    else
      lost += costs_.per_byte(use.key).value_or(0) * count(use.handle.size);
  }
  add_slowed(lost);
  if (!single) choice.operands.clear();
  choice.timed = trials_.over(now) && costs_.should_time(choice.operands);
  return choice;
}

bool Residence::exceeds_window(std::span<const KernelUse> kernels, Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  if (!exchanges_.over(now)) return false;
  const Bytes window = memory_.window() + memory_.room();
  Bytes needed;
  std::unordered_set<CUdeviceptr> seen;
  for (const KernelUse& kernel : kernels)
    for (const Argument& argument : kernel.arguments) {
      if (!is_need({.kernel = kernel.kernel, .word = argument.word})) continue;
      for (const AwayHandle& handle : memory_.operands(argument.address))
        if (seen.insert(handle.address).second) needed += handle.size;
      if (needed > window) return true;
    }
  return false;
}

ExchangeChoice Residence::choose(const std::vector<AwayHandle>& handles) {
  const std::lock_guard lock(mutex_);
  return plan_for(handles);
}

// In the plan, an additional handle of `size` bytes, which must come in, stands for the other memory.
std::vector<CUdeviceptr> Residence::leavers(Bytes size) {
  constexpr std::uint64_t kOther = 0;
  std::vector<Candidate> all = candidates();
  all.push_back({.handle = kOther, .size = size, .on_gpu = false});
  const std::lock_guard lock(mutex_);
  const Plan planned = plan(order_, all, {&kOther, 1}, {}, {});
  return {planned.out.begin(), planned.out.end()};
}

void Residence::exchanged(const ExchangeChoice& exchange, const ExchangeResult& result, Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  if (result.outcome != Exchanged::complete) return exchanges_.after_failure(now);
  exchanges_.after_success();
  for (const CUdeviceptr handle : exchange.in) debts_.clear(handle);
  if (result.entered >= kLeastMeasured)
    took_[measured_++ % took_.size()] = static_cast<double>(result.took.count()) / count(result.entered);
}

void Residence::add_slowed(double nanoseconds) {
  if (nanoseconds > 0) totals_.add_slowed(Nanoseconds(static_cast<std::int64_t>(nanoseconds)));
}

// choose() counts lost time only for operands whose cost is known at that point. This function counts the
// lost time for the other operands.
void Residence::learn(const Choice& choice, Nanoseconds took) {
  std::vector<KernelCosts::Operand> unknown;
  for (const KernelCosts::Operand& operand : choice.operands)
    if (operand.away != Bytes{} && !costs_.per_byte(operand.key)) unknown.push_back(operand);
  costs_.ran(choice.operands, took);
  double lost = 0;
  for (const KernelCosts::Operand& operand : unknown)
    lost += costs_.per_byte(operand.key).value_or(0) * count(operand.away);
  add_slowed(lost);
}

void Residence::ran(const Choice& choice, Nanoseconds took) {
  const std::lock_guard lock(mutex_);
  learn(choice, took);
  trials_.after_success();
}

// The kernel takes at least the time that it has been running for.
void Residence::did_not_end(const Choice& choice, Nanoseconds ran_for, Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  if (ran_for != Nanoseconds{}) learn(choice, ran_for);
  trials_.after_failure(now);
}

}  // namespace sharedgpu::session
