// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/kernel_costs.h"

#include <algorithm>
#include <bit>

namespace sharedgpu {
namespace {

double nanoseconds(Nanoseconds time) { return static_cast<double>(time.count()); }
double count(Bytes bytes) { return static_cast<double>(bytes.count); }

// Measuring a launch makes the program wait for the launch. So only about log4(n) of n launches are measured.
bool is_measured(std::uint32_t launch) {
  return std::has_single_bit(launch) && std::countr_zero(launch) % 2 == 0;
}

}  // namespace

std::optional<double> KernelCosts::per_byte(Key key) const {
  const auto found = records_.find(key);
  if (found == records_.end() || found->second.away == Bytes{}) return std::nullopt;
  const Record& record = found->second;
  const double on_gpu = record.here.value_or(0) * count(record.all);
  return std::max(0.0, nanoseconds(record.took) - on_gpu) / count(record.away);
}

bool KernelCosts::should_time(std::span<const Operand> operands) {
  const bool any_away =
      std::ranges::any_of(operands, [](const Operand& each) { return each.away != Bytes{}; });
  bool tells = false;
  for (const Operand& operand : operands) {
    Record* const record = record_of(operand.key);
    if (record == nullptr) continue;
    if (operand.away != Bytes{})
      tells |= is_measured(++record->away_launches);
    else if (!any_away && record->away != Bytes{})
      tells |= is_measured(++record->here_launches);
  }
  return tells;
}

void KernelCosts::ran(std::span<const Operand> operands, Nanoseconds took) {
  Bytes all;
  Bytes away;
  for (const Operand& operand : operands) {
    all += operand.size;
    away += operand.away;
  }
  if (all == Bytes{}) return;
  for (const Operand& operand : operands) {
    Record* const record = record_of(operand.key);
    if (record == nullptr) continue;
    if (away == Bytes{}) {
      const double here = nanoseconds(took) / count(all);
      record->here = record->here ? std::min(*record->here, here) : here;
    } else if (operand.away != Bytes{}) {
      record->took = took;
      record->all = all;
      record->away = away;
    }
  }
}

KernelCosts::Record* KernelCosts::record_of(Key key) {
  const auto found = records_.find(key);
  if (found != records_.end()) return &found->second;
  return records_.size() < kMostKeys ? &records_[key] : nullptr;
}

}  // namespace sharedgpu
