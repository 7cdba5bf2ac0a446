// SPDX-License-Identifier: Apache-2.0
// Reads the text of a ledger. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "arbiter/ledger/records.h"

namespace sharedgpu {

struct LedgerReplay {
  unsigned records = 0;
  unsigned damaged = 0;    // lines passed over; a torn last line counts
  std::uint64_t lost = 0;  // records that could not be written
  LedgerReplay& operator+=(const LedgerReplay& other) {
    records += other.records;
    damaged += other.damaged;
    lost += other.lost;
    return *this;
  }
};

// Feeds the record of each line to `replayed`, and in place of a damaged one a LostRecord of none.
LedgerReplay replay_ledger(std::string_view text, const std::function<void(const Record&)>& replayed);

}  // namespace sharedgpu
