// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/reader.h"

namespace sharedgpu {

LedgerReplay replay_ledger(std::string_view text, const std::function<void(const Record&)>& replayed) {
  LedgerReplay replay;
  Nanoseconds last{};
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const bool torn = end == text.npos;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(torn ? text.size() : end + 1);
    if (line.empty()) continue;
    const auto record = torn ? std::nullopt : parse_record(line);
    if (!record) {
      ++replay.damaged;
      replayed({.at = last, .what = LostRecord{}});  // it may have been a lease's end
      continue;
    }
    ++replay.records;
    if (const auto* loss = std::get_if<LostRecord>(&record->what)) replay.lost += loss->records;
    last = record->at;
    replayed(*record);
  }
  return replay;
}

}  // namespace sharedgpu
