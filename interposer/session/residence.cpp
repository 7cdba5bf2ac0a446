// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/residence.h"

#include <algorithm>
#include <unordered_set>

namespace sharedgpu::session {
namespace {

using namespace std::chrono_literals;

// An exchange also brings in handles that will be needed soon, up to this much (bench/eviction_order.cpp).
constexpr Bytes kBatch = mebibytes(256);
// If handles move beside work, an exchange before a launch brings in only what the launch needs, and another
// one goes on while the launch runs. It ends when the turn thread has something else to do.
constexpr Bytes kAhead = gibibytes(1);
constexpr Nanoseconds kAheadPause = 2ms;  // after a plan for coming launches that moves nothing
// Launches that have not ended may use this part of the window, and there may be so many of them.
constexpr std::uint64_t kPartInUse = 2;
constexpr std::size_t kMostUnderWay = 256;
// The first estimate for an exchange: a handle of 64 MiB leaves while another one enters (one H100).
constexpr double kFirstEstimate = 1.84e6 / static_cast<double>(mebibytes(64).count);
// Smaller exchanges take mostly the time of single calls of the driver.
constexpr Bytes kLeastMeasured = mebibytes(64);
constexpr Bytes kLeastMeasuredBesideWork = mebibytes(16);  // prefetches need few calls
constexpr double kNewest = 0.25;                           // weight of the newest measurement
// A handle that comes in makes another one leave, which has to come back later.
constexpr double kExchanges = 2;
// The pause after a failure doubles from the first to the second value.
constexpr Nanoseconds kFirstPause = 1s;
constexpr Nanoseconds kLongestPause = 60s;

double count(Bytes bytes) { return static_cast<double>(bytes.count); }

}  // namespace

void Residence::Pause::after_failure(Nanoseconds now) {
  length_ = std::clamp(2 * length_, kFirstPause, kLongestPause);
  until_ = now + length_;
}

Residence::Residence(AwayMemory& memory, ExchangeTotals& totals)
    : memory_(memory), totals_(totals), per_byte_(kFirstEstimate) {}

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

// A kernel of unknown cost may need the operand on the GPU. Beside work, handles come in before they have
// debts. So there must be a gain over the two exchanges.
bool Residence::is_need(const KernelCosts::Key& key) const {
  const double least = beside_work() ? kExchanges * per_byte_ : per_byte_;
  const std::optional<double> cost = costs_.per_byte(key);
  return !cost || *cost >= least;
}

// The handles that should be on the GPU, whether they are there or not. A kernel that was never seen with the
// operand away is tried that way, unless it cannot be timed alone.
std::vector<AwayHandle> Residence::wanted(const std::vector<Use>& uses, bool may_try) {
  std::vector<AwayHandle> found;
  const Bytes window = memory_.window();
  for (const Use& use : uses) debts_.launch(use.handle.size);
  for (const Use& use : uses) {
    const std::optional<double> cost = costs_.per_byte(use.key);
    const bool need = is_need(use.key);
    if (need) {
      order_.note(use.handle.address);
      ++needs_;
    }
    bool wants = need && !use.handle.away;
    if (use.handle.away && cost) {
      const double lost = *cost * count(use.handle.size);
      wants = debts_.add(use.handle.address, lost, window) >= kExchanges * per_byte_ * count(use.handle.size);
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
    if (handle.away || !under_way_.uses(handle.address))
      all.push_back({.handle = handle.address, .size = handle.size, .on_gpu = !handle.away});
  return all;
}

ExchangeChoice Residence::plan_for(const std::vector<AwayHandle>& wanted) {
  std::vector<std::uint64_t> addresses;
  for (const AwayHandle& handle : wanted) addresses.push_back(handle.address);
  ExchangeChoice choice;
  const auto needs_exchange = [](const AwayHandle& handle) { return handle.away && !handle.moving; };
  if (std::ranges::any_of(wanted, needs_exchange))
    choice = plan_of(addresses, beside_work() ? Bytes{} : kBatch);
  if (!beside_work()) return choice;
  Bytes all;
  for (const AwayHandle& handle : wanted) all += handle.size;
  const bool fit = all <= memory_.window() + memory_.room();
  for (const AwayHandle& handle : wanted) {
    if (handle.moving)
      choice.coming.push_back(handle.address);
    else if (fit && handle.away && std::ranges::find(choice.in, handle.address) == choice.in.end())
      choice.lacking.push_back(handle.address);
  }
  return choice;
}

ExchangeChoice Residence::plan_of(const std::vector<std::uint64_t>& needed, Bytes most) {
  ExchangeChoice choice;
  const std::vector<Candidate> all = candidates();
  const Plan planned = plan(order_, all, needed, memory_.room(), most);
  choice.out.assign(planned.out.begin(), planned.out.end());
  choice.in.assign(planned.in.begin(), planned.in.end());
  for (const Candidate& candidate : all)
    if (std::ranges::find(planned.in, candidate.handle) != planned.in.end()) choice.size += candidate.size;
  return choice;
}

Residence::Choice Residence::choose(std::span<const KernelUse> kernels, Nanoseconds now) {
  Choice choice;
  const bool single = kernels.size() == 1;
  const std::lock_guard lock(mutex_);
  const std::vector<Use> uses = uses_of(kernels, choice.operands);
  if (beside_work())
    for (const Use& use : uses) choice.uses.push_back({use.handle.address, use.handle.size});
  const std::vector<AwayHandle> handles = wanted(uses, single);
  if (exchanges_.over(now)) choice.exchange = plan_for(handles);
  const auto comes_in = [&](CUdeviceptr handle) {
    const auto has = [&](const auto& part) { return std::ranges::find(part, handle) != part.end(); };
    return has(choice.exchange.in) || has(choice.exchange.coming) || has(choice.exchange.lacking);
  };
  bool moving = false;  // where such handles will be during the launch is not known
  double lost = 0;
  for (const Use& use : uses) {
    moving |= use.handle.moving && beside_work();
    if (!use.handle.away) continue;
    if (comes_in(use.handle.address))
      choice.operands[use.operand].away -= use.handle.size;
    else
      lost += costs_.per_byte(use.key).value_or(0) * count(use.handle.size);
  }
  add_slowed(lost);
  if (!single) choice.operands.clear();
  choice.timed = trials_.over(now) && !moving && costs_.should_time(choice.operands);
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

ExchangeChoice Residence::again(const ExchangeChoice& exchange) {
  std::vector<AwayHandle> left;
  for (const auto* part : {&exchange.in, &exchange.coming, &exchange.lacking})
    for (const CUdeviceptr address : *part)
      for (const AwayHandle& handle : memory_.within(address, {1}))
        if (handle.away || handle.moving) left.push_back(handle);
  const std::lock_guard lock(mutex_);
  return plan_for(left);
}

// The other memory takes part in the plan like a handle that must come in. Handles in use leave, too.
std::vector<CUdeviceptr> Residence::leavers(Bytes size) {
  constexpr std::uint64_t kOther = 0;
  std::vector<Candidate> all{{.handle = kOther, .size = size, .on_gpu = false}};
  for (const AwayHandle& handle : memory_.handles())
    all.push_back({.handle = handle.address, .size = handle.size, .on_gpu = !handle.away});
  const std::lock_guard lock(mutex_);
  const Plan planned = plan(order_, all, {&kOther, 1}, {}, {});
  return {planned.out.begin(), planned.out.end()};
}

void Residence::exchanged(const ExchangeChoice& exchange, const ExchangeResult& result, Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  if (result.outcome != Exchanged::complete) return exchanges_.after_failure(now);
  exchanges_.after_success();
  for (const CUdeviceptr handle : exchange.in) debts_.clear(handle);
  if (exchange.size >= (beside_work() ? kLeastMeasuredBesideWork : kLeastMeasured))
    per_byte_ += kNewest * (static_cast<double>(result.took.count()) / count(exchange.size) - per_byte_);
}

void Residence::waited(Nanoseconds time) { totals_.add_wait(time); }

void Residence::add_slowed(double nanoseconds) {
  if (nanoseconds > 0) totals_.add_slowed(Nanoseconds(static_cast<std::int64_t>(nanoseconds)));
}

// choose() has counted the time that the launch loses only for operands whose cost was known.
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

ExchangeChoice Residence::ahead(Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  if (now < next_ahead_ || !exchanges_.over(now) || needs_ == needs_seen_ || !order_.learned()) return {};
  needs_seen_ = needs_;
  ExchangeChoice choice = plan_of({}, kAhead);
  if (choice.in.empty()) next_ahead_ = now + kAheadPause;
  for (const CUdeviceptr handle : choice.in) debts_.clear(handle);
  memory_.schedule(choice.in);
  memory_.schedule(choice.out);
  return choice;
}

LaunchesUnderWay::Number Residence::launched(const Choice& choice) {
  const std::lock_guard lock(mutex_);
  return under_way_.begin(choice.uses);
}

void Residence::ended(const std::vector<LaunchesUnderWay::Number>& launches) {
  if (launches.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const LaunchesUnderWay::Number launch : launches) under_way_.end(launch);
  waits_.after_success();
}

bool Residence::far_ahead(Nanoseconds now) {
  const Bytes window = memory_.window();
  const std::lock_guard lock(mutex_);
  const bool far =
      under_way_.count() >= kMostUnderWay || under_way_.size() > Bytes{window.count / kPartInUse};
  return far && waits_.over(now);
}

void Residence::waited_in_vain(Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  waits_.after_failure(now);
}

}  // namespace sharedgpu::session
