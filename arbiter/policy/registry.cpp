// SPDX-License-Identifier: Apache-2.0
#include "arbiter/policy/registry.h"

#include <algorithm>

#include "arbiter/policy/credit.h"
#include "arbiter/policy/deadline.h"
#include "arbiter/policy/elastic.h"
#include "arbiter/policy/fcfs.h"
#include "arbiter/policy/priority.h"
#include "arbiter/policy/round_robin.h"
#include "arbiter/policy/shortest_first.h"
#include "protocol/policy_names.h"

namespace sharedgpu {
namespace {

template <class Its>
std::unique_ptr<Policy> make(std::string_view name) {
  return std::make_unique<Its>(name);
}

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(std::string_view name);
};

constexpr Entry kRegistry[] = {
    {"round-robin", make<RoundRobin>}, {"fcfs", make<Fcfs>},         {"shortest-first", make<ShortestFirst>},
    {"credit", make<Credit>},          {"priority", make<Priority>}, {"elastic", make<Elastic>},
    {"deadline", make<Deadline>},
};

static_assert(std::ranges::equal(kRegistry, kPolicies, {}, &Entry::name));

}  // namespace

std::unique_ptr<Policy> make_policy(std::string_view name) {
  const auto* found = std::ranges::find(kRegistry, name, &Entry::name);
  return found == std::end(kRegistry) ? nullptr : found->make(found->name);
}

}  // namespace sharedgpu
