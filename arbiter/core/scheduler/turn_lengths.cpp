// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/turn_lengths.h"

#include <algorithm>
#include <map>
#include <utility>

namespace sharedgpu {
namespace {

struct Mean {
  Nanoseconds sum{};
  unsigned count = 0;
  Nanoseconds value() const { return count == 0 ? Nanoseconds{} : sum / count; }
  void add(Nanoseconds one) { sum += one, ++count; }
};

constexpr auto kJustCount = [](const std::vector<const Tenant*>& /*set*/) {};

}  // namespace

void TurnLengths::add(const Gpu& gpu, const Rules& rules) {
  gpus_.begin(gpu).turn = rules.policy->length(rules.turns, {}, 1);
}

void TurnLengths::set_rules(const Gpu& gpu, const Rules& rules) {
  TurnLength& turn = gpus_[gpu].turn;
  turn = rules.policy->length(rules.turns, turn.handoff, 1);
}

void TurnLengths::update(const Domain& domain, const std::vector<TurnDemand>& demands, Selection& selection,
                         const MemoryBooks& memory) {
  Memory space;
  for (const Gpu* gpu : domain.gpus) space.usable.push_back(memory.usable_now(*gpu));
  for (const Tenant* tenant : domain.tenants)
    for (const Session* session : tenant->sessions)
      space.parts.push_back(attached(session) ? selection.part(*session) : Selection::Part{});
  std::vector<Handoffs> handoffs;
  std::vector<bool> waits;
  for (const TurnDemand& its : demands) {
    handoffs.push_back({its.takes_turns, its.measured, its.expected});
    waits.push_back(its.waits);
  }
  DomainRow& row = domains_[domain];
  const bool first = !std::exchange(row.computed, true);
  const bool other_memory = first || row.memory != space;
  const bool other_handoffs = first || row.handoffs != handoffs;
  const bool other_waits = first || row.waits != waits;
  row.memory = std::move(space);
  row.handoffs = std::move(handoffs);
  row.waits = std::move(waits);
  if (!other_memory && !other_handoffs && !other_waits) return;

  if (other_memory)
    row.sets = selection.for_each_set({domain.tenants.begin(), domain.tenants.end()}, kJustCount);
  if (other_memory || other_handoffs) row.handoff = mean_handoff(domain, demands, selection);
  if (other_memory || other_waits) {
    std::vector<const Tenant*> waiting;
    for (std::size_t i = 0; i < demands.size(); ++i)
      if (demands[i].waits) waiting.push_back(domain.tenants[i]);
    row.waiting_sets = selection.for_each_set(std::move(waiting), kJustCount);
  }
  row.turn = domain.rules.policy->length(domain.rules.turns, row.handoff, row.waiting_sets);
  for (const Gpu* gpu : domain.gpus) gpus_[*gpu].turn = row.turn;
}

// A handoff to a running set takes about as long as the longest handoff to one of its members.
Nanoseconds TurnLengths::mean_handoff(const Domain& domain, const std::vector<TurnDemand>& demands,
                                      Selection& selection) {
  std::map<const Tenant*, const TurnDemand*> of;
  std::vector<const Tenant*> taking;
  for (std::size_t i = 0; i < demands.size(); ++i) {
    if (!demands[i].takes_turns) continue;
    taking.push_back(domain.tenants[i]);
    of[domain.tenants[i]] = &demands[i];
  }
  Mean measured;
  Mean expected;
  selection.for_each_set(std::move(taking), [&](const std::vector<const Tenant*>& set) {
    Nanoseconds longest{};
    Nanoseconds longest_measured{};
    for (const Tenant* tenant : set) {
      longest_measured = std::max(longest_measured, of[tenant]->measured);
      longest = std::max(longest, of[tenant]->expected);
    }
    expected.add(longest);
    if (longest_measured > Nanoseconds{}) measured.add(longest_measured);
  });
  if (measured.count > 0)
    for (const Gpu* gpu : domain.gpus) gpus_[*gpu].handoff = measured.value();
  return expected.value();
}

}  // namespace sharedgpu
