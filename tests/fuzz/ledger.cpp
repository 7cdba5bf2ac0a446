// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary bytes as a ledger. The records must be consistent, and the same after writing and reading
// them again.
#include <cstdint>
#include <cstdlib>

#include "arbiter/ledger/history.h"
#include "arbiter/ledger/lease_table.h"
#include "arbiter/ledger/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  History history;
  LeaseTable table;
  auto add = [&](const Record& record) {
    std::string line = format_record(record);
    line.pop_back();
    if (!parse_record(line)) std::abort();
    // Skips times after the first hour: the sum of lease times must not overflow.
    if (record.at > std::chrono::hours(1)) return;
    if (const auto* step = std::get_if<StepTimeRecord>(&record.what); step && step->time > record.at) return;
    if (const auto* gpu = std::get_if<GpuTimeRecord>(&record.what); gpu && gpu->time > record.at) return;
    history.add(record);
    table.add(record);
  };
  replay_ledger(text, add);
  // Gives each line the right checksum. Otherwise the fuzzer would never reach the parsing of the fields.
  while (!text.empty()) {
    std::size_t end = std::min(text.find('\n'), text.size());
    std::string body = " " + std::string(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    char checksum[9];
    std::snprintf(checksum, sizeof checksum, "%08x", crc32c(body));
    if (auto record = parse_record(checksum + body)) add(*record);
  }
  for (const Record& record : history.checkpoint([](pid_t) { return std::uint64_t{1}; }))
    if (std::string line = format_record(record); line.pop_back(), !parse_record(line)) std::abort();
  history.finish(
      {.boot_id = "this-boot"}, [](pid_t) { return std::uint64_t{1}; }, Nanoseconds(1));
  if (!history.recovered.leases.open().empty()) std::abort();
  Nanoseconds each{};
  Nanoseconds all{};
  for (const LeaseRow& row : by_step(table.leases())) all += row.held;
  for (const LeaseRow& row : table.leases()) each += row.held;
  if (each != all) std::abort();
  return 0;
}
