// SPDX-License-Identifier: Apache-2.0
// Every line of the ledger, byte by byte, since arbiters of different versions read each other's lines.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "arbiter/ledger/records.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

struct Written {
  const char* line;
  Record record;
};

std::vector<Written> all_lines() {
  const TenantId tenant{12};
  const StepName batch{.job = 1234, .step = 0xfffffffb};
  const GpuUuid gpu{
      {0x4f, 0xc7, 0x4b, 0x0d, 0xaa, 0x91, 0x5e, 0x7f, 0x80, 0x81, 0x82, 0x83, 0xf4, 0xf5, 0xf6, 0xff}};
  const GpuUuid other{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
  TenantName job;
  job.job = 1234;
  TenantName run;
  for (std::uint8_t i = 0; i < 16; ++i) run.run.bytes[i] = static_cast<std::uint8_t>(0xf0 + i);
  TenantName process;
  process.process = {.pid = 4711, .started = 18446744073709551615u};
  JobOptions all;
  all.memory = gibibytes(24);
  all.units = 3;
  all.share_request = 30;
  all.share_limit = 60;
  all.priority = -5;
  all.deadline = 7s;
  all.backend = Backend::managed;
  all.backend_given = 1;
  all.gpus = 2;
  GpuList two;
  two.count = 2;
  two.gpu[0] = gpu;
  two.gpu[1] = other;
  Figures figures;
  figures.moved = {.evicted = mebibytes(1), .restored = mebibytes(2)};
  figures.waited = 3s;
  figures.overuse = 4s;
  figures.handoffs = 5;
  figures.footprint = mebibytes(6);
  figures.resident = mebibytes(7);
  figures.backends = 5;
  figures.host = mebibytes(8);
  const LeaseKey key{.tenant = tenant, .gpu = gpu, .step = batch};
  const Nanoseconds at{3512223906937};
  return {
      {"549775aa 3512223906937 boot 8de26f41-1aca-4c64-aa60-1b67c44ca8e3 1763000000000000000",
       {at, BootRecord{.boot_id = "8de26f41-1aca-4c64-aa60-1b67c44ca8e3", .booted = 1763000000000000000ns}}},
      {"dd567914 3512223906937 tenant 12 1000 job 1234",
       {at, TenantRecord{.tenant = tenant, .name = job, .uid = 1000}}},
      {"a4579134 3512223906937 tenant 12 0 run f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
       {at, TenantRecord{.tenant = tenant, .name = run, .uid = 0}}},
      {"5585b104 3512223906937 tenant 12 4294967295 process 4711 18446744073709551615",
       {at, TenantRecord{.tenant = tenant, .name = process, .uid = 4294967295}}},
      {"65868700 3512223906937 options 12 25769803776 3 30 60 -5 7000000000 1 1 2",
       {at, OptionsRecord{.tenant = tenant, .options = all}}},
      {"b5cb14b3 3512223906937 options 12 0 0 0 0 0 0 0 0",
       {at, OptionsRecord{.tenant = tenant, .options = {}}}},
      {"1e769efe 3512223906937 class 12 long high 3",
       {at, ClassRecord{.tenant = tenant, .job_class = {"long", "high", 3}}}},
      {"7a0e3eb9 3512223906937 class 12 - - 0",
       {at, ClassRecord{.tenant = tenant, .job_class = {"", "", 0}}}},
      {"87108d46 3512223906937 class 12 long - 3 15 1",
       {at, ClassRecord{.tenant = tenant, .job_class = {"long", "", 3}, .element = {15, 1}}}},
      {"48e2ed05 3512223906937 class 12 - - 0 15",
       {at, ClassRecord{.tenant = tenant, .job_class = {"", "", 0}, .element = {15, 0}}}},
      {"aa7493cd 3512223906937 gang 12 2 n1",
       {at, GangRecord{.tenant = tenant, .nodes = 2, .coordinator = "n1"}}},
      {"5bbc791f 3512223906937 gang 12 0 -",
       {at, GangRecord{.tenant = tenant, .nodes = 0, .coordinator = "-"}}},
      {"92d77ecb 3512223906937 group 12 8589934592",
       {at, GroupRecord{.tenant = tenant, .limit = gibibytes(8)}}},
      {"8d130532 3512223906937 place 12 44 99 4 4fc74b0daa915e7f80818283f4f5f6ff "
       "000102030405060708090a0b0c0d0e0f",
       {at, PlaceRecord{.tenant = tenant, .pid = 44, .started = 99, .units = 4, .gpus = two}}},
      {"25a7b5d1 3512223906937 place 12 44 99 0",
       {at, PlaceRecord{.tenant = tenant, .pid = 44, .started = 99, .units = 0, .gpus = {}}}},
      {"0e96f3cd 3512223906937 end 12", {at, EndRecord{.tenant = tenant}}},
      {"7af3c70c 3512223906937 session 5 12 1234 4294967291 44 99",
       {at,
        SessionRecord{.session = SessionId{5}, .tenant = tenant, .step = batch, .pid = 44, .started = 99}}},
      {"7ad047d9 3512223906937 session 5 12 1234 4294967291 44 99 0",
       {at,
        SessionRecord{
            .session = SessionId{5}, .tenant = tenant, .step = batch, .pid = 44, .started = 99, .task = 0}}},
      {"0419f258 3512223906937 attach 5 4fc74b0daa915e7f80818283f4f5f6ff",
       {at, AttachRecord{.session = SessionId{5}, .gpu = gpu}}},
      {"a07fc765 3512223906937 gone 5", {at, GoneRecord{.session = SessionId{5}}}},
      {"06ed3efd 3512223906937 grant 77 12 4fc74b0daa915e7f80818283f4f5f6ff 1234 4294967291",
       {at, LeaseRecord{.grant = true, .epoch = Epoch{77}, .key = key}}},
      {"484c9201 3512223906937 release 77 12 4fc74b0daa915e7f80818283f4f5f6ff 1234 4294967291",
       {at, LeaseRecord{.grant = false, .epoch = Epoch{77}, .key = key}}},
      {"baca53e5 3512223906937 checkpoint 12 5 77",
       {at, CheckpointRecord{.tenant = tenant, .session = SessionId{5}, .epoch = Epoch{77}}}},
      {"4da672d3 3512223906937 complete", {at, CompleteRecord{}}},
      {"97a965a6 3512223906937 steptime 12 1234 4294967291 5000000000",
       {at, StepTimeRecord{.tenant = tenant, .step = batch, .time = 5s}}},
      {"dc6e1913 3512223906937 gputime 12 000102030405060708090a0b0c0d0e0f 5000000000",
       {at, GpuTimeRecord{.tenant = tenant, .gpu = other, .time = 5s}}},
      {"f8b65300 3512223906937 used 12 1234 4294967291 1048576 2097152 3000000000 4000000000 5 6291456 "
       "7340032 5 8388608",
       {at, UsedRecord{.tenant = tenant, .step = batch, .figures = figures}}},
      {"7be05d09 3512223906937 used 12 0 0 0 0 0 0 0 0 0",
       {at, UsedRecord{.tenant = tenant, .step = {}, .figures = {}}}},
      {"7569e72e 3512223906937 energy 12 000102030405060708090a0b0c0d0e0f 5000",
       {at, EnergyRecord{.tenant = tenant, .gpu = other, .energy = {5000}}}},
      {"372202ae 3512223906937 begin 12", {at, BeginRecord{.tenant = tenant}}},
      {"e59fff8b 3512223906937 over 12", {at, OverRecord{.tenant = tenant}}},
      {"d9d6436d 3512223906937 gpu 4fc74b0daa915e7f80818283f4f5f6ff 2 Xid_79 -",
       {at, GpuRecord{.gpu = gpu, .condition = 2, .fault = "Xid_79", .drain = "-"}}},
      {"0af37be0 3512223906937 gpu 4fc74b0daa915e7f80818283f4f5f6ff 0 - the_fan",
       {at, GpuRecord{.gpu = gpu, .condition = 0, .fault = "-", .drain = "the_fan"}}},
      {"0b8033ef 3512223906937 loss 12 4fc74b0daa915e7f80818283f4f5f6ff Xid_79",
       {at, LossRecord{.tenant = tenant, .gpu = gpu, .fault = "Xid_79"}}},
      {"94c5ba69 3512223906937 pastloss 12 4fc74b0daa915e7f80818283f4f5f6ff Xid_79",
       {at, PastLossRecord{.tenant = tenant, .gpu = gpu, .fault = "Xid_79"}}},
      {"7d78d497 3512223906937 seen", {at, SeenRecord{}}},
      {"c9a0dba2 3512223906937 lost 12", {at, LostRecord{.records = 12}}},
      {"2244b41d 0 seen", {0ns, SeenRecord{}}},
  };
}

std::optional<Record> parse_body(const std::string& body) {
  const std::string text = " " + body;
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(text));
  return parse_record(checksum + text);
}

std::string body_of(const Record& record) {
  const std::string line = format_record(record);
  return line.substr(9, line.size() - 10);
}

TEST_CASE("Each record is written as this line, and read from it") {
  std::set<std::size_t> kinds;
  for (const auto& [line, record] : all_lines()) {
    CHECK(format_record(record) == std::string(line) + "\n");
    const auto read = parse_record(line);
    REQUIRE(read);
    CHECK(read->what.index() == record.what.index());
    CHECK(format_record(*read) == std::string(line) + "\n");
    kinds.insert(record.what.index());
  }
  CHECK(kinds.size() == std::variant_size_v<decltype(Record::what)>);
}

constexpr char kSame[] = "";

struct Accepted {
  const char* body;
  const char* written;  // the line written again; null if the line is refused
};

constexpr Accepted kBodies[] = {
    {"5 boot 8de26f41", kSame},
    {"5 boot 8de26f41 0", "5 boot 8de26f41"},
    {"5 boot", nullptr},
    {"5 boot 8de26f41 x", nullptr},
    {"5 boot 8de26f41 -1", nullptr},
    {"5 boot 8de26f41 4611686018427387904", nullptr},
    {"5 boot 8de26f41 4611686018427387903", kSame},
    {"5 boot 8de26f41 1 2", "5 boot 8de26f41 1"},
    {"5 boot 8de26f41 1  2", nullptr},
    {"5 boot 8de26f41 1 ", nullptr},
    {"5 boot a b", nullptr},
    {"5 tenant 1 2", nullptr},
    {"5 tenant 1 2 job", nullptr},
    {"5 tenant 1 2 job 3 4", "5 tenant 1 2 job 3"},
    {"5 tenant 1 2 job 4294967296", nullptr},
    {"5 tenant 1 2 run 4fc74b0daa915e7f80818283f4f5f6ff", kSame},
    {"5 tenant 1 2 run 4fc74b0daa915e7f80818283f4f5f6f", nullptr},
    {"5 tenant 1 2 run 4FC74B0DAA915E7F80818283F4F5F6FF",
     "5 tenant 1 2 run 4fc74b0daa915e7f80818283f4f5f6ff"},
    {"5 tenant 1 2 process 3", nullptr},
    {"5 tenant 1 2 process 3 4", kSame},
    {"5 tenant 1 2 step 3 4", nullptr},
    {"5 tenant 18446744073709551616 2 job 1", nullptr},
    {"5 tenant 1 4294967296 job 1", nullptr},
    {"5 options 1 2 3 4 5 6 7 1 1", kSame},
    {"5 options 1 2 3 4 5 -6 -7 2 9 3", "5 options 1 2 3 4 5 -6 -7 2 1 3"},
    {"5 options 1 2 3 4 5 6 7 3 1 1", nullptr},
    {"5 options 1 2 3 4 5 6 9223372036854775807 1 1 1 18446744073709551615", kSame},
    {"5 options 1 2 3 4 5 6 9223372036854775808 1 1 1", nullptr},
    {"5 options 1 2 3 4 5 2147483648 7 1 1 1", nullptr},
    {"5 options 1 2 3 4 5 6 7 1", nullptr},
    {"5 options 1 2 3 4 5 6 7 1 1 0 1", kSame},
    {"5 options 1 2 3 4 5 6 7 1 1 1 1 1", "5 options 1 2 3 4 5 6 7 1 1 1 1"},
    {"5 options 1 -2 3 4 5 6 7 1 1 1", nullptr},
    {"5 class 1 - - 0", kSame},
    {"5 class 1 -- x 0", kSame},
    {"5 class 1 ppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp q 1", kSame},
    {"5 class 1 pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp q 1", nullptr},
    {"5 class 1 p q", nullptr},
    {"5 class 1 p q 18446744073709551616", nullptr},
    {"5 place 1 2 3 4", kSame},
    {"5 place 1 2 3", nullptr},
    {"5 place 1 2 3 4 x", nullptr},
    {"5 end", nullptr},
    {"5 end 1", kSame},
    {"5 end 1 2", "5 end 1"},
    {"5 end -1", nullptr},
    {"5 session 1 2 3 4 5 6", kSame},
    {"5 session 1 2 3 4 5 6 7", kSame},
    {"5 session 1 2 3 4 5 6 7 8", "5 session 1 2 3 4 5 6 7"},
    {"5 session 1 2 3 4 5", nullptr},
    {"5 session 1 2 3 4 5 6 x", nullptr},
    {"5 attach 1", nullptr},
    {"5 attach 1 4fc74b0daa915e7f80818283f4f5f6ff", kSame},
    {"5 attach 1 x", nullptr},
    {"5 attach 1 4fc74b0daa915e7f80818283f4f5f6ff00", nullptr},
    {"5 gone 1", kSame},
    {"5 gone", nullptr},
    {"5 grant 1 2 4fc74b0daa915e7f80818283f4f5f6ff 3 4", kSame},
    {"5 grant 1 2 4fc74b0daa915e7f80818283f4f5f6ff 3", nullptr},
    {"5 release 1 2 4fc74b0daa915e7f80818283f4f5f6ff 3 4", kSame},
    {"5 release 1 2 4fc74b0daa915e7f80818283f4f5f6ff 3 4 5",
     "5 release 1 2 4fc74b0daa915e7f80818283f4f5f6ff 3 4"},
    {"5 release 1 2 3 4", nullptr},
    {"5 checkpoint 1 2 3", kSame},
    {"5 checkpoint 1 2", nullptr},
    {"5 complete", kSame},
    {"5 complete 1", "5 complete"},
    {"5 steptime 1 2 3 4", kSame},
    {"5 steptime 1 2 3 -4", nullptr},
    {"5 steptime 1 2 3 4611686018427387904", nullptr},
    {"5 gputime 1 4fc74b0daa915e7f80818283f4f5f6ff 4", kSame},
    {"5 gputime 1 4", nullptr},
    {"5 used 1 9 0 1 2 3 4 5 6 7", kSame},
    {"5 used 1 9 0 1 2 3 4 5 6 7 8", kSame},
    {"5 used 1 9 0 1 2 3 4 5 6 7 8 9", kSame},
    {"5 used 1 9 0 1 2 3 4 5 6", nullptr},
    {"5 used 1 9 0 1 2 -3 4 5 6 7 8", nullptr},
    {"5 used 1 9 0 1 2 3 4 5 6 7 4294967296", nullptr},
    {"5 energy 1 4fc74b0daa915e7f80818283f4f5f6ff 4", kSame},
    {"5 energy 1 4fc74b0daa915e7f80818283f4f5f6ff", nullptr},
    {"5 energy 1 4fc74b0daa915e7f80818283f4f5f6ff -4", nullptr},
    {"5 begin 1", kSame},
    {"5 begin", nullptr},
    {"5 over 1", kSame},
    {"5 over 1 1", "5 over 1"},
    {"5 seen", kSame},
    {"5 seen 1", "5 seen"},
    {"5 lost 1", kSame},
    {"5 lost", nullptr},
    {"5 lost 007", "5 lost 7"},
    {"5 lost +7", nullptr},
    {"-0 seen", "0 seen"},
    {"-1 seen", nullptr},
    {"4611686018427387903 seen", kSame},
    {"4611686018427387904 seen", nullptr},
    {"5", nullptr},
    {"5 ", nullptr},
    {"5 grants 1", nullptr},
    {"5  seen", nullptr},
    {"5 seen ", nullptr},
    {"seen", nullptr},
    {"5 lost 1\t", nullptr},
    {"5 lost 0x1", nullptr},
};

TEST_CASE("A line with a right checksum is read only if its words are valid") {
  for (const auto& [body, written] : kBodies) {
    CAPTURE(body);
    const auto read = parse_body(body);
    CHECK(read.has_value() == (written != nullptr));
    if (read && written != nullptr) CHECK(body_of(*read) == (*written == '\0' ? body : written));
  }
}

TEST_CASE("A placement has room for as many GPUs as a message") {
  std::string body = "5 place 1 2 3 4";
  for (unsigned count = 0; count <= GpuList::kMost; ++count) {
    const auto read = parse_body(body);
    REQUIRE(read);
    CHECK(std::get<PlaceRecord>(read->what).gpus.count == count);
    CHECK(body_of(*read) == body);
    body += " 4fc74b0daa915e7f80818283f4f5f6ff";
  }
  CHECK_FALSE(parse_body(body));
}

}  // namespace
}  // namespace sharedgpu
