// SPDX-License-Identifier: Apache-2.0
// The decisions of a core as two numbers. The numbers of two cores are equal if the cores decided the same.
//
// The numbers depend only on the actions and their times, not on the core's own types. The numbers do not
// depend on the texts of Note and Drop, since wordings may change.
#pragma once

#include <cstdint>
#include <string>

#include "arbiter/core/model/actions.h"

namespace sharedgpu::test {

struct DecisionDigest {
  std::uint64_t strict = 0;  // digest of every action with all its fields, in their order
  // Digest of only Send, SetGate and RecordLease. An event that changes nothing, such as a timer that fires
  // too often, does not change this digest.
  std::uint64_t loose = 0;

  void note(Nanoseconds now, const Action& action);
  void append(const DecisionDigest& more);
  bool operator==(const DecisionDigest&) const = default;
};

// The action and its fields on one line, for people and for diff.
std::string describe(Nanoseconds now, const Action& action);

}  // namespace sharedgpu::test
