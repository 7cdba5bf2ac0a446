// SPDX-License-Identifier: Apache-2.0
// The records with which a new file of the ledger begins.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "arbiter/ledger/history.h"
#include "tests/unit/arbiter/ledger/some_records.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using namespace test;

// Returns, as text, the state of an arbiter that starts with this history.
std::string told(History history, Nanoseconds now) {
  std::string text;
  for (const Record& record : history.finish({.boot_id = "b-1"}, even_ones_live, now))
    text += format_record(record);
  for (const auto& [id, tenant] : history.tenants.all()) {
    text += format_record({.at = {}, .what = OptionsRecord{.tenant = id, .options = tenant.options}});
    text += format_record(
        {.at = {},
         .what = ClassRecord{.tenant = id, .job_class = tenant.job_class, .element = tenant.element}});
    text += std::to_string(tenant.group_limit.count) + " ";
    text += std::to_string(tenant.nodes) + tenant.coordinator + " " + tenant.label() + " " +
            std::to_string(tenant.uid) + " " + std::to_string(tenant.anchored) + " " +
            std::to_string(history.recovered.leases.of_tenant(id, now).count()) + "\n";
    for (const auto& [step, time] : history.recovered.leases.steps_of(id, now))
      text += " step " + std::to_string(step.step) + ": " + std::to_string(time.count()) + " " +
              std::to_string(history.recovered.leases.of_step(step, now).count()) + "\n";
    for (const GpuLoss& loss : tenant.losses)
      text += " lost " + std::to_string(loss.gpu.bytes[0]) + ": " + loss.fault + "\n";
    for (const auto& [gpu, energy] : history.figures.energy().of(id))
      text += " energy " + std::to_string(gpu.bytes[0]) + ": " + std::to_string(energy.millijoules) + "\n";
    for (const StepName& step : {StepName{}, kStep})
      text += format_record(
          {.at = {},
           .what = UsedRecord{.tenant = id, .step = step, .figures = history.figures.of(id, step)}});
  }
  for (const auto& [key, open] : history.recovered.leases.open())
    text += format_record(
        {.at = open.since, .what = LeaseRecord{.grant = true, .epoch = open.epoch, .key = key}});
  for (const auto& [id, placement] : history.recovered.placements)
    text += "placed " + std::to_string(id.value) + " " + std::to_string(placement.units) + " " +
            std::to_string(placement.gpus.size()) + " " + std::to_string(history.keepers.at(id).size()) +
            "\n";
  text += std::to_string(history.last_session.value) + " " +
          std::to_string(history.recovered.last_epoch.value) + " " +
          std::to_string(history.tenants.last().value) + " " +
          std::to_string(history.recovered.expected_sessions) + " " +
          std::to_string(history.recovered.last_record.count());
  for (std::uint32_t pid = 0; pid < 8; ++pid)
    for (const GpuUuid& gpu : kGpus) text += " " + std::to_string(history.take_session(pid, 1, gpu).id.value);
  return text;
}

// Two jobs, a run and a process.
std::vector<Record> four_tenants() {
  TenantRecord run{.tenant = TenantId{3}, .name = {}, .uid = 1};
  run.name.run.bytes[0] = 3;
  TenantRecord process{.tenant = TenantId{4}, .name = {}, .uid = 2};
  process.name.process = {.pid = 4, .started = 1};
  return {kBoot,
          job_record(1s, 1, 1),
          job_record(1s, 2, 2),
          {.at = 1s, .what = run},
          {.at = 1s, .what = process}};
}

Record any_record(std::mt19937& random, Nanoseconds at) {
  auto upto = [&](unsigned most) { return std::uniform_int_distribution<unsigned>(0, most)(random); };
  const TenantId tenant{upto(3) + 1};
  const SessionId session{upto(7) + 1};
  const GpuUuid& gpu = kGpus[upto(1)];
  switch (upto(15)) {
    case 0: {
      OptionsRecord record{.tenant = tenant, .options = {}};
      record.options.units = upto(8);
      return {.at = at, .what = record};
    }
    case 1: {
      PlaceRecord record{.tenant = tenant, .pid = upto(7), .started = 1, .units = upto(3) + 1, .gpus = {}};
      record.gpus.count = 1 + upto(1);
      std::copy(kGpus, kGpus + record.gpus.count, record.gpus.gpu);
      return {.at = at, .what = record};
    }
    case 2:
      return {.at = at,
              .what = SessionRecord{
                  .session = session, .tenant = tenant, .step = kStep, .pid = upto(7), .started = 1}};
    case 3:
      return {.at = at, .what = AttachRecord{.session = session, .gpu = gpu}};
    case 4:
      return {.at = at, .what = GoneRecord{.session = session}};
    case 5:
      return {
          .at = at,
          .what = UsedRecord{
              .tenant = tenant,
              .step = upto(1) == 0 ? StepName{} : kStep,
              .figures = {
                  .waited = at, .handoffs = upto(9), .footprint = mebibytes(1), .host = mebibytes(upto(2))}}};
    case 6: {
      ClassRecord record{.tenant = tenant, .job_class = {}};
      record.job_class = {.partition = "long", .qos = "", .restarts = upto(2)};
      record.element = {.array = upto(1), .index = upto(2)};
      return {.at = at, .what = record};
    }
    case 7:
      return {.at = at, .what = GangRecord{.tenant = tenant, .nodes = 2 + upto(1), .coordinator = "n1"}};
    case 8:
      return {.at = at,
              .what = LossRecord{.tenant = tenant, .gpu = gpu, .fault = upto(1) == 0 ? "Xid_79" : "-"}};
    case 9:
      return {.at = at, .what = GroupRecord{.tenant = tenant, .limit = mebibytes(upto(2))}};
    case 10:
      return {.at = at, .what = EnergyRecord{.tenant = tenant, .gpu = gpu, .energy = {upto(9)}}};
    default: {
      const bool is_job = tenant.value < 3;  // only jobs have steps
      const StepName step{.job = is_job ? static_cast<std::uint32_t>(tenant.value) : 0,
                          .step = is_job ? upto(1) : 0};
      return lease(upto(1) == 0, at, tenant.value, step, gpu);
    }
  }
}

TEST_CASE("A history that is read from a checkpoint knows what the old history knew") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    History old;
    for (const Record& record : four_tenants()) old.add(record);
    Nanoseconds now = 1s;
    auto next = [&] { return any_record(random, now += 1ms); };
    for (int i = 0; i < 60; ++i) old.add(next());
    History fresh;
    for (const Record& record : old.checkpoint(even_ones_live)) {
      const std::string line = format_record(record);
      const auto read = parse_record(std::string_view(line).substr(0, line.size() - 1));
      REQUIRE(read);
      fresh.add(*read);
    }
    INFO("seed " << seed);
    REQUIRE(told(fresh, now) == told(old, now));
    for (int i = 0; i < 60; ++i) {
      const Record record = next();
      old.add(record);
      fresh.add(record);
    }
    REQUIRE(told(fresh, now + 5s) == told(old, now + 5s));
    // A part of a checkpoint changes nothing if it is read after the records that the checkpoint summarizes.
    const std::vector<Record> again = old.checkpoint(even_ones_live);
    for (std::size_t i = 0; i < again.size() / 2; ++i) fresh.add(again[i]);
    REQUIRE(told(fresh, now + 9s) == told(old, now + 9s));
  }
}

TEST_CASE("No number is used twice, and a checkpoint leaves out jobs whose last records are old") {
  History old;
  old.add(kBoot);
  old.add(job_record(1s, 1, 11));
  old.add(lease(true, 1s));
  old.add(lease(false, 2s));
  old.add(job_record(24h * 61, 2, 12));
  TenantRecord run{.tenant = TenantId{7}, .name = {}, .uid = 1};
  run.name.run.bytes[0] = 1;
  old.add({.at = 24h * 61, .what = run});
  old.add({.at = 24h * 61, .what = EndRecord{.tenant = TenantId{7}}});
  History fresh;
  for (const Record& record : old.checkpoint(even_ones_live)) fresh.add(record);
  CHECK(fresh.tenants.find(TenantId{1}) == nullptr);
  CHECK(fresh.tenants.find(TenantId{2}) != nullptr);
  TenantName name;
  name.job = 13;
  CHECK(fresh.tenants.get(name, 1).id == TenantId{8});
}

TEST_CASE("A run that is over stays over, wherever a power cut tears the checkpoint") {
  History old;
  old.add(kBoot);
  old.add(job_record(1s, 1, 11));
  OptionsRecord stated{.tenant = TenantId{1}, .options = {}};
  stated.options.units = 3;
  old.add({.at = 1s, .what = stated});
  old.add({.at = 2s, .what = OverRecord{.tenant = TenantId{1}}});
  const std::vector<Record> records = History(old).checkpoint(even_ones_live);
  for (std::size_t written = 0; written <= records.size(); ++written) {
    History fresh = old;  // the previous file is read as well
    for (std::size_t i = 0; i < written; ++i) fresh.add(records[i]);
    CHECK(fresh.tenants.find(TenantId{1})->over);
  }
  History after;
  for (const Record& record : records) after.add(record);
  CHECK(after.tenants.find(TenantId{1})->over);
  CHECK(after.tenants.find(TenantId{1})->options.units == old.tenants.find(TenantId{1})->options.units);
}

TEST_CASE("A job with a process here is kept, however old its last record is") {
  const auto kept = [](bool gone) {
    History old;
    old.add(kBoot);
    old.add(job_record(1s, 1, 11));
    old.add({.at = 1s,
             .what = SessionRecord{
                 .session = SessionId{1}, .tenant = TenantId{1}, .step = kStep, .pid = 2, .started = 1}});
    if (gone) old.add({.at = 2s, .what = GoneRecord{.session = SessionId{1}}});
    old.add(job_record(24h * 61, 2, 12));
    History fresh;
    for (const Record& record : old.checkpoint(even_ones_live)) fresh.add(record);
    return fresh.tenants.find(TenantId{1}) != nullptr;
  };
  CHECK(kept(false));
  CHECK_FALSE(kept(true));
}

// Returns a new history that has read only the checkpoint of `old`.
History after_checkpoint(History old) {
  History fresh;
  for (const Record& record : old.checkpoint(even_ones_live)) fresh.add(record);
  return fresh;
}

std::set<std::uint64_t> tenants_of(const History& history) {
  std::set<std::uint64_t> ids;
  for (const auto& [id, tenant] : history.tenants.all()) ids.insert(id.value);
  return ids;
}

Record run_record(Nanoseconds at, std::uint64_t id) {
  TenantRecord run{.tenant = TenantId{id}, .name = {}, .uid = 1};
  run.name.run.bytes[0] = static_cast<std::uint8_t>(id);
  return {.at = at, .what = run};
}
Record session_record(std::uint64_t session, std::uint64_t tenant, std::uint32_t pid, Nanoseconds at = 1s) {
  return {.at = at,
          .what = SessionRecord{.session = SessionId{session},
                                .tenant = TenantId{tenant},
                                .step = kStep,
                                .pid = pid,
                                .started = 1}};
}
Record place_record(std::uint64_t tenant, std::uint32_t pid) {
  PlaceRecord place{.tenant = TenantId{tenant}, .pid = pid, .started = 1, .units = 2, .gpus = {}};
  place.gpus.count = 1;
  place.gpus.gpu[0] = kGpus[0];
  return {.at = 1s, .what = place};
}

TEST_CASE("A job is kept for a week after its last record") {
  const Nanoseconds last = 72h;
  const std::vector<std::vector<Record>> anything = {
      {job_record(last, 1, 11)},
      {{.at = last, .what = OptionsRecord{.tenant = TenantId{1}, .options = {}}}},
      {session_record(1, 1, 2, last), {.at = last, .what = GoneRecord{.session = SessionId{1}}}},
      {lease(true, 71h), lease(false, last)},
      {{.at = last, .what = UsedRecord{.tenant = TenantId{1}, .step = {}, .figures = {}}}}};
  for (const std::vector<Record>& records : anything)
    for (const bool in_time : {true, false}) {
      History old;
      old.add(kBoot);
      old.add(job_record(1s, 1, 11));
      for (const Record& record : records) old.add(record);
      // A checkpoint keeps the time of each job's last record: the week until the job is forgotten does not
      // begin again.
      old.add(job_record(last + 24h, 2, 12));
      History fresh = after_checkpoint(old);
      fresh.add(job_record(last + 24h * 7 + (in_time ? 0ns : 1ns), 2, 12));
      INFO(format_record(records.back()));
      CHECK(tenants_of(after_checkpoint(fresh)).count(1) == (in_time ? 1 : 0));
    }
}

TEST_CASE(
    "Runs, and jobs with an open lease, a placement or a process, are kept, however old their last records "
    "are") {
  History old;
  old.add(kBoot);
  for (std::uint32_t id = 1; id <= 10; ++id) old.add(job_record(1s, id, id));
  for (std::uint64_t id : {1, 2})
    old.add(lease(true, 1s, id, {.job = static_cast<std::uint32_t>(id), .step = 0}));
  for (std::uint64_t id : {3, 4}) old.add(place_record(id, 2));
  for (std::uint64_t id : {5, 6}) old.add(session_record(id, id, 4));
  for (std::uint64_t id : {7, 8}) old.add(place_record(id, 3));  // a process that has ended
  for (std::uint64_t id : {11, 12}) old.add(run_record(1s, id));
  old.add(job_record(24h * 61, 13, 13));
  const History fresh = after_checkpoint(old);
  CHECK(tenants_of(fresh) == std::set<std::uint64_t>{1, 2, 3, 4, 5, 6, 11, 12, 13});
  CHECK(fresh.recovered.leases.open().size() == 2);
  REQUIRE(fresh.recovered.placements.size() == 2);
  CHECK(fresh.recovered.placements.at(TenantId{3}).units == 2);
  CHECK(fresh.keepers.size() == 2);
}

TEST_CASE("A checkpoint has no records of unknown things") {
  History old;
  old.add(job_record(1s, 1, 11));
  old.add(session_record(1, 1, 2));
  std::string kinds;
  for (const Record& record : old.checkpoint(even_ones_live))
    kinds += std::visit([]<class What>(const What&) { return std::string(What::kKinds[0].word) + " "; },
                        record.what);
  CHECK(kinds == "checkpoint tenant options session complete ");
}

TEST_CASE("Each GPU has its own lease time, even over a checkpoint with open leases on two GPUs") {
  History old;
  old.add(kBoot);
  old.add(job_record(1s, 1, 9));
  old.add(lease(true, 1s, 1, kStep, kGpus[0]));
  old.add(lease(false, 4s, 1, kStep, kGpus[0]));
  old.add(lease(true, 5s, 1, kStep, kGpus[1]));
  old.add(lease(true, 6s, 1, kStep, kGpus[0]));
  History fresh = after_checkpoint(old);
  for (History* each : {&old, &fresh}) {
    each->add(lease(false, 7s, 1, kStep, kGpus[1]));
    each->add(lease(false, 10s, 1, kStep, kGpus[0]));
    const auto gpus = each->recovered.leases.closed_of(TenantId{1}).gpus;
    CHECK(gpus.at(kGpus[0]) == 7s);
    CHECK(gpus.at(kGpus[1]) == 2s);
    CHECK(each->recovered.leases.of_step(kStep, 20s) == 9s);
    CHECK(each->recovered.leases.of_tenant(TenantId{1}, 20s) == 9s);
  }
}

Record told_of(const GpuUuid& gpu, std::uint32_t condition, const char* drain) {
  return {.at = 2s, .what = GpuRecord{.gpu = gpu, .condition = condition, .fault = "Xid_48", .drain = drain}};
}

std::map<GpuUuid, std::string> gpus_of(const History& history) {
  std::map<GpuUuid, std::string> all;
  for (const auto& [uuid, gpu] : history.gpu_records)
    all[uuid] = std::to_string(gpu.condition) + " " + gpu.fault + " " + gpu.drain;
  return all;
}

TEST_CASE("The state of a GPU is in a checkpoint, and after a boot of the host only the drain remains") {
  using All = std::map<GpuUuid, std::string>;
  History history;
  for (const Record& record : {kBoot, told_of(kGpus[0], 1, "the_fan"), told_of(kGpus[1], 2, "-")})
    history.add(record);
  const All both{{kGpus[0], "1 Xid_48 the_fan"}, {kGpus[1], "2 Xid_48 -"}};
  CHECK(gpus_of(history) == both);
  History next;
  for (const Record& record : history.checkpoint(even_ones_live)) next.add(record);
  CHECK(gpus_of(next) == both);
  next.finish({.boot_id = "b-2"}, even_ones_live, 3s);
  CHECK(gpus_of(next) == All{{kGpus[0], "0 - the_fan"}});
  history.add(told_of(kGpus[1], 0, "-"));
  CHECK(gpus_of(history) == All{{kGpus[0], "1 Xid_48 the_fan"}});
}

}  // namespace
}  // namespace sharedgpu
