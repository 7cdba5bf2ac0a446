// SPDX-License-Identifier: Apache-2.0
// Compares the lines of the ledger with records.golden. Sites keep ledgers for years. So this version must
// read the lines of all earlier versions, and must write lines in the same format.
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "arbiter/ledger/records.h"
#include "tests/unit/golden.h"

namespace sharedgpu {
namespace {

GpuUuid gpu(std::uint8_t first) {
  GpuUuid uuid;
  for (std::uint8_t i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<std::uint8_t>(first + i);
  return uuid;
}

TenantName named(std::uint32_t job, std::uint8_t run, std::uint32_t pid) {
  TenantName name;
  name.job = job;
  for (std::uint8_t i = 0; run != 0 && i < 16; ++i) name.run.bytes[i] = static_cast<std::uint8_t>(run + i);
  name.process = {.pid = pid, .started = pid == 0 ? 0 : std::uint64_t{10'000'000'014}};
  return name;
}

OptionsRecord options(Backend backend) {
  return {.tenant = TenantId{20},
          .options = {.memory = {10'000'000'021},
                      .units = 22,
                      .share_request = 23,
                      .share_limit = 24,
                      .priority = -25,
                      .deadline = Nanoseconds(10'000'000'026),
                      .backend = backend,
                      .backend_given = backend != Backend::swap,
                      .gpus = 27}};
}

ClassRecord job_class(const char* partition, const char* qos) {
  ClassRecord record{.tenant = TenantId{30}, .job_class = {}};
  std::snprintf(record.job_class.partition, sizeof record.job_class.partition, "%s", partition);
  std::snprintf(record.job_class.qos, sizeof record.job_class.qos, "%s", qos);
  record.job_class.restarts = 31;
  return record;
}

PlaceRecord place(std::uint32_t gpus) {
  PlaceRecord record{.tenant = TenantId{40}, .pid = 41, .started = 10'000'000'042, .units = 43, .gpus = {}};
  record.gpus.count = gpus;
  for (std::uint32_t i = 0; i < gpus; ++i)
    record.gpus.gpu[i] = gpu(static_cast<std::uint8_t>(0x40 + 0x10 * i));
  return record;
}

LeaseRecord lease(bool grant) {
  return {.grant = grant,
          .epoch = Epoch{70},
          .key = {.tenant = TenantId{71}, .gpu = gpu(0x72), .step = {.job = 73, .step = 4294967291}}};
}

// Each kind of record in all its forms. All fields of a record have different values.
std::vector<Record> records() {
  const std::string longest(JobClass::kLongest, 'p');
  std::vector<Record> all;
  const auto add = [&](const decltype(Record::what)& what) {
    all.push_back({.at = Nanoseconds(9'000'000'000'001), .what = what});
  };
  add(BootRecord{.boot_id = "8de26f41-1aca-4c64-aa60-1b67c44ca8e3",
                 .booted = Nanoseconds(1'763'000'000'000'000'002)});
  add(TenantRecord{.tenant = TenantId{10}, .name = named(11, 0, 0), .uid = 12});
  add(TenantRecord{.tenant = TenantId{10}, .name = named(0, 0x13, 0), .uid = 12});
  add(TenantRecord{.tenant = TenantId{10}, .name = named(0, 0, 13), .uid = 12});
  for (const Backend backend : {Backend::swap, Backend::managed, Backend::native}) add(options(backend));
  ClassRecord of_element = job_class("long", "high");
  of_element.element = {.array = 32, .index = 33};
  add(of_element);
  add(job_class("", ""));
  add(job_class(longest.c_str(), "high"));
  for (const std::uint32_t gpus : {0u, 1u, GpuList::kMost}) add(place(gpus));
  add(EndRecord{.tenant = TenantId{50}});
  add(SessionRecord{.session = SessionId{60},
                    .tenant = TenantId{61},
                    .step = {.job = 62, .step = 63},
                    .pid = 64,
                    .started = 10'000'000'065,
                    .task = 66});
  add(SessionRecord{.session = SessionId{60},
                    .tenant = TenantId{61},
                    .step = {.job = 62, .step = 63},
                    .pid = 64,
                    .started = 10'000'000'065});
  add(AttachRecord{.session = SessionId{67}, .gpu = gpu(0x68)});
  add(GoneRecord{.session = SessionId{69}});
  add(lease(true));
  add(lease(false));
  add(CheckpointRecord{.tenant = TenantId{80}, .session = SessionId{81}, .epoch = Epoch{82}});
  add(CompleteRecord{});
  add(StepTimeRecord{
      .tenant = TenantId{83}, .step = {.job = 84, .step = 85}, .time = Nanoseconds(10'000'000'086)});
  add(GpuTimeRecord{.tenant = TenantId{87}, .gpu = gpu(0x88), .time = Nanoseconds(10'000'000'089)});
  add(UsedRecord{
      .tenant = TenantId{90},
      .step = {.job = 91, .step = 92},
      .figures = {.moved = {.evicted = {10'000'000'093}, .restored = {10'000'000'094}},
                  .waited = Nanoseconds(10'000'000'095),
                  .overuse = Nanoseconds(10'000'000'096),
                  .handoffs = 97,
                  .footprint = {10'000'000'098},
                  .resident = {10'000'000'099},
                  .backends = 5,
                  .host = {10'000'000'100},
                  .entering = Nanoseconds(10'000'000'101),
                  .evicting = Nanoseconds(10'000'000'102),
                  .exchanges = {.moved = {.evicted = {10'000'000'103}, .restored = {10'000'000'104}},
                                .moving = Nanoseconds(10'000'000'105),
                                .waited = Nanoseconds(10'000'000'106),
                                .copied = {10'000'000'107},
                                .fastest = {10'000'000'108},
                                .slowed = Nanoseconds(10'000'000'109)}}});
  add(EnergyRecord{.tenant = TenantId{99}, .gpu = gpu(0x88), .energy = {10'000'000'101}});
  add(BeginRecord{.tenant = TenantId{100}});
  add(OverRecord{.tenant = TenantId{101}});
  add(GpuRecord{.gpu = gpu(0x10), .condition = 2, .fault = "Xid_79", .drain = "-"});
  add(GpuRecord{.gpu = gpu(0x10), .condition = 0, .fault = "-", .drain = "the_fan"});
  add(LossRecord{.tenant = TenantId{110}, .gpu = gpu(0x10), .fault = "Xid_79"});
  add(GangRecord{.tenant = TenantId{111}, .nodes = 3, .coordinator = "n1"});
  add(GroupRecord{.tenant = TenantId{112}, .limit = {10'000'000'113}});
  add(PastLossRecord{.tenant = TenantId{111}, .gpu = gpu(0x10), .fault = "Xid_79"});
  add(SeenRecord{});
  add(LostRecord{.records = 102});
  return all;
}

std::string sealed(const std::string& text) {
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(text));
  return checksum + text;
}

// Lines that an arbiter of this version does not write in normal operation: lines of older versions, lines
// with extreme, wrong or unknown contents, and damaged lines.
std::vector<std::string> foreign_lines() {
  const std::string seen = sealed(" 9000000000001 seen");
  const std::string hex = "00112233445566778899aabbccddeeff";
  std::vector<std::string> lines;
  const auto add = [&](const std::string& text) { lines.push_back(sealed(" 9000000000001 " + text)); };
  // Records without the fields that later versions added.
  add("boot 8de26f41-1aca-4c64-aa60-1b67c44ca8e3");
  add("options 20 10000000021 22 23 24 -25 10000000026 1 1");
  add("used 90 91 92 10000000093 10000000094 10000000095 10000000096 97 10000000098 10000000099");
  add("attach 67 00112233445566778899AABBCCDDEEFF");
  // the largest valid numbers, and numbers that are too large
  add("lost 18446744073709551615");
  add("lost 18446744073709551616");
  add("steptime 83 84 85 4611686018427387903");
  add("steptime 83 84 85 4611686018427387904");
  add("tenant 10 4294967296 job 11");
  // fields with wrong contents
  add("options 20 10000000021 22 23 24 -25 10000000026 3 1 27");
  add("steptime 83 84 85 -1");
  add("lost -1");
  add("lost 1x");
  add("attach 67 " + hex.substr(1));
  add("attach 67 " + hex + "0");
  add("attach 67 " + hex.substr(1) + "g");
  add("tenant 10 12 other 11");
  add("class 30 " + std::string(JobClass::kLongest + 1, 'p') + " high 31");
  std::string many = "place 40 41 42 43";
  for (std::uint32_t i = 0; i <= GpuList::kMost; ++i) many += " " + hex;
  add(many);
  // too few fields, too many, none, an unknown kind
  add("gone");
  add("gone 69 70");
  add("gone 69 ");
  add("gone  69");
  add("");
  add("arrived 1");
  lines.push_back(sealed(" -1 seen"));
  lines.push_back(sealed(" 4611686018427387904 seen"));
  lines.push_back(sealed("9000000000001 seen"));
  lines.push_back(sealed(""));
  // damaged
  lines.push_back(seen.substr(0, seen.size() - 1));
  lines.push_back("0" + seen.substr(1));
  lines.push_back(seen.substr(1));
  lines.push_back(seen + "\r");
  lines.emplace_back(8, '\0');
  lines.emplace_back();
  return lines;
}

std::string printable(const std::string& line) {
  std::string text;
  for (const char c : line) {
    char escaped[5] = {c};
    if (c < ' ' || c > '~') std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
    text += escaped;
  }
  return text;
}

TEST_CASE("golden: lines of the ledger") {
  std::string text =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Made by golden.cpp; tests/golden says how to write it again.\n\n"
      "# Each kind of record, as it is written and read.\n";
  std::vector<bool> kinds(std::variant_size_v<decltype(Record::what)>, false);
  for (const Record& record : records()) {
    const std::string line = format_record(record);
    text += line;
    kinds[record.what.index()] = true;
    INFO(line);
    REQUIRE(line.ends_with('\n'));
    const auto read = parse_record(std::string_view(line).substr(0, line.size() - 1));
    REQUIRE(read);
    CHECK(read->what.index() == record.what.index());
    CHECK(format_record(*read) == line);
  }
  CHECK(std::vector<bool>(kinds.size(), true) == kinds);
  text += "\n# Lines that are not written so, and what they are read as.\n";
  for (const std::string& line : foreign_lines()) {
    const auto read = parse_record(line);
    text += "'" + printable(line) + "'\n    = " + (read ? format_record(*read) : "refused\n");
  }
  CHECK(test::is_golden("records.golden", text));
}

}  // namespace
}  // namespace sharedgpu
