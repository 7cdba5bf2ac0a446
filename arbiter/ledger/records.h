// SPDX-License-Identifier: Apache-2.0
// The types of the ledger's records, and functions that write a record as a line and read it back.
//
// Each type of record describes its lines in one place. kKinds has the word for each kind of the record, and
// the meaning of this kind. fields() passes the fields to a visitor, in their order in the line. The code
// that writes lines, the code that reads lines, and the test that makes the table in docs/ledger.md are such
// visitors. A visitor is called with the name and the value of a field:
//   v(name, value)            each line has the field;
//   v.newer(name, value)      lines of older versions end before this field; lines in which this and all
//                             later fields are zero also end before it, so that older arbiters can read them;
//   v.where_known(name, ...)  an optional value; a line without the value ends before this field;
//   v.unbounded(name, time)   a time that is never added to another time, and so may have any value.
// The format and the order of the fields must not change: arbiters of other versions read and write the same
// files. The reader skips fields after the last one that it knows, since a newer arbiter may have written the
// line.
//
// To add a field: append a call of v.newer() to fields(), so that lines without the field can still be read.
// To add a record: add a struct here and its type in Record::what. Add a method of LedgerVisitor in reader.h,
// its call in reader.cpp, and the effect of the record in history.h and history.cpp. If the effect must
// survive the removal of older files, add it to History::checkpoint(), too. After adding a field or a record:
//   1. Write the record by Journal::record() in the part of arbiter/daemon/ where the event happens.
//   2. Test the record in lines.cpp, ledger.cpp and checkpoint.cpp of tests/unit/arbiter/ledger, and
//      add it to golden.cpp there; regenerate records.golden (see tests/golden).
//   3. Copy the record's row into docs/ledger.md; tests/unit/arbiter/ledger/page.cpp prints the expected
//      table. If users should see the record, show it in arbiter/cli/ledger.cpp.
//
// Pure functions; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "arbiter/core/model/gpu_condition.h"
#include "arbiter/core/model/lease_book.h"
#include "arbiter/ledger/energy_book.h"
#include "arbiter/ledger/figures.h"
#include "arbiter/ledger/tenant_name.h"

namespace sharedgpu {

struct RecordKind {
  std::string_view word;
  std::string_view meaning;  // for docs/ledger.md
};

struct BootRecord {
  std::string boot_id;
  Nanoseconds booted{};

  static constexpr RecordKind kKinds[] = {
      {"boot",
       "an arbiter started. Later times count from this boot of the host. The second field is the "
       "time of that boot by the real-time clock; without it `sharedgpu ledger` shows times as if "
       "the host had booted at the start of 1970"}};
  static void fields(auto& v, auto& r) {
    v("boot id", r.boot_id);
    v.newer("nanoseconds from 1970 to that boot", r.booted);
  }
};

struct TenantRecord {
  TenantId tenant;
  TenantName name;
  std::uint32_t uid = 0;

  static constexpr RecordKind kKinds[] = {
      {"tenant",
       "from this line on, the number stands for this tenant. START is the start time of the process "
       "in clock ticks"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("uid", r.uid);
    v("name", r.name);
  }
};

struct OptionsRecord {
  TenantId tenant;
  JobOptions options;
  Bytes brought = {};  // as TenantInfo::brought

  static constexpr RecordKind kKinds[] = {
      {"options",
       "the options that the job or the run stated. \"Backend given\" is 1 if it stated a backend, "
       "else 0"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("memory cap", r.options.memory);
    v("units", r.options.units);
    v("share", r.options.share_request);
    v("share limit", r.options.share_limit);
    v("priority", r.options.priority);
    v.unbounded("deadline", r.options.deadline);
    v("backend", r.options.backend);
    v("backend given", r.options.backend_given);
    v.newer("GPUs", r.options.gpus);
    v.newer("host memory of units", r.brought);
  }
};

struct ClassRecord {
  TenantId tenant;
  JobClass job_class;
  ArrayElement element = {};

  static constexpr RecordKind kKinds[] = {
      {"class",
       "the job's partition and QOS, with a dash for an unknown one, and the number of requeues. For an "
       "element of a job array, also the number of the array and the index of the element"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("partition", r.job_class.partition);
    v("QOS", r.job_class.qos);
    v("restarts", r.job_class.restarts);
    v.newer("array", r.element.array);
    v.newer("index in the array", r.element.index);
  }
};

struct GangRecord {
  TenantId tenant;
  std::uint32_t nodes = 0;
  std::string coordinator;

  static constexpr RecordKind kKinds[] = {
      {"gang",
       "the number of nodes of the job, and the node whose arbiter coordinates the job's turns; zero "
       "and a dash if the job has one node"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("nodes", r.nodes);
    v("node", r.coordinator);
  }
};

struct GroupRecord {
  TenantId tenant;
  Bytes limit;

  static constexpr RecordKind kKinds[] = {
      {"group",
       "the run gets a control group with this limit of host memory, in bytes; zero if the group "
       "could not be made"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("limit", r.limit);
  }
};

struct PlaceRecord {
  TenantId tenant;
  std::uint32_t pid = 0;
  std::uint64_t started = 0;
  unsigned units = 1;
  GpuList gpus;

  static constexpr RecordKind kKinds[] = {
      {"place",
       "the process was informed that the tenant is placed on these GPUs (no GPU: the user chose the "
       "GPUs), with this number of units on each. This record tells a later arbiter that the tenant "
       "continues to exist while the process lives"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("pid", r.pid);
    v("start", r.started);
    v("units", r.units);
    v("GPU", r.gpus);
  }
};

struct EndRecord {
  TenantId tenant;

  static constexpr RecordKind kKinds[] = {
      {"end",
       "a tenant that is no job has ended, or the arbiter has forgotten a job without processes; the "
       "tenant's number is invalid from here on"}};
  static void fields(auto& v, auto& r) { v("tenant", r.tenant); }
};

struct SessionRecord {
  SessionId session;
  TenantId tenant;
  StepName step;
  std::uint32_t pid = 0;
  std::uint64_t started = 0;
  std::optional<std::uint32_t> task = {};

  static constexpr RecordKind kKinds[] = {
      {"session",
       "the arbiter has accepted a process. The task is the number of the process's task on the "
       "node, and missing if Slurm has no cgroups for tasks. The tasks of a step share its lease: a "
       "task counts as holding the lease while the step holds it and the task has a session"}};
  static void fields(auto& v, auto& r) {
    v("session", r.session);
    v("tenant", r.tenant);
    v("step", r.step);
    v("pid", r.pid);
    v("start", r.started);
    v.where_known("task", r.task);
  }
};

struct AttachRecord {
  SessionId session;
  GpuUuid gpu;

  static constexpr RecordKind kKinds[] = {{"attach", "the session uses this GPU"}};
  static void fields(auto& v, auto& r) {
    v("session", r.session);
    v("GPU", r.gpu);
  }
};

struct GoneRecord {
  SessionId session;

  static constexpr RecordKind kKinds[] = {{"gone", "the session has ended"}};
  static void fields(auto& v, auto& r) { v("session", r.session); }
};

// The kind of this record is "grant" if `grant` is true, otherwise "release".
struct LeaseRecord {
  bool grant = false;
  Epoch epoch;
  LeaseKey key;

  static constexpr RecordKind kKinds[] = {
      {"grant", "the step's lease on the GPU begins: the gate is about to open"},
      {"release", "the lease ends: the last session of the tenant has drained, or died"}};
  static void fields(auto& v, auto& r) {
    v("epoch", r.epoch);
    v("tenant", r.key.tenant);
    v("GPU", r.key.gpu);
    v("step", r.key.step);
  }
};

struct CheckpointRecord {
  TenantId tenant;
  SessionId session;
  Epoch epoch;

  static constexpr RecordKind kKinds[] = {
      {"checkpoint",
       "the file continues an older file. The records from here to `complete` state again what is "
       "still valid of the older files. The fields are the highest numbers used so far"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("session", r.session);
    v("epoch", r.epoch);
  }
};

struct CompleteRecord {
  static constexpr RecordKind kKinds[] = {{"complete", "the checkpoint ends"}};
  static void fields(auto&, auto&) {}
};

struct StepTimeRecord {
  TenantId tenant;
  StepName step;
  Nanoseconds time{};

  static constexpr RecordKind kKinds[] = {
      {"steptime", "in a checkpoint: the sum of the step's leases that have ended"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("step", r.step);
    v("nanoseconds", r.time);
  }
};

struct GpuTimeRecord {
  TenantId tenant;
  GpuUuid gpu;
  Nanoseconds time{};

  static constexpr RecordKind kKinds[] = {
      {"gputime", "in a checkpoint: the tenant's lease time on the GPU, up to its oldest open lease there"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("GPU", r.gpu);
    v("nanoseconds", r.time);
  }
};

struct UsedRecord {
  TenantId tenant;
  StepName step;
  Figures figures;

  static constexpr RecordKind kKinds[] = {
      {"used",
       "the totals of the step so far, other than its lease time. A record with the step `0 0` has "
       "the totals of the whole tenant; outside of Slurm there are only such records. Backends are "
       "those of the sessions, as the sum of 1 for swap, 2 for managed and 4 for native"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("step", r.step);
    v("bytes evicted", r.figures.moved.evicted);
    v("bytes restored", r.figures.moved.restored);
    v("nanoseconds waited", r.figures.waited);
    v("nanoseconds of overuse", r.figures.overuse);
    v("handoffs", r.figures.handoffs);
    v("highest footprint", r.figures.footprint);
    v("highest resident", r.figures.resident);
    v.newer("backends", r.figures.backends);
    v.newer("highest host memory of its control group", r.figures.host);
    v.newer("nanoseconds of entering", r.figures.entering);
    v.newer("nanoseconds of evicting", r.figures.evicting);
    v.newer("bytes that exchanges evicted", r.figures.exchanges.moved.evicted);
    v.newer("bytes that exchanges restored", r.figures.exchanges.moved.restored);
    v.newer("nanoseconds of exchanges", r.figures.exchanges.moving);
    v.newer("nanoseconds waited for exchanges", r.figures.exchanges.waited);
    v.newer("bytes of exchanges in the direction that copied more", r.figures.exchanges.copied);
    v.newer("highest speed of an exchange in bytes per second", r.figures.exchanges.fastest);
    v.newer("nanoseconds by which kernels took longer with operands away", r.figures.exchanges.slowed);
  }
};

struct EnergyRecord {
  TenantId tenant;
  GpuUuid gpu;
  Energy energy;

  static constexpr RecordKind kKinds[] = {
      {"energy", "the tenant's energy on the GPU so far, see [Energy](metrics.md#energy)"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("GPU", r.gpu);
    v("millijoules", r.energy.millijoules);
  }
};

struct BeginRecord {
  TenantId tenant;

  static constexpr RecordKind kKinds[] = {
      {"begin", "the job was requeued and runs here again: its totals begin at zero, under the same number"}};
  static void fields(auto& v, auto& r) { v("tenant", r.tenant); }
};

struct OverRecord {
  TenantId tenant;

  static constexpr RecordKind kKinds[] = {
      {"over",
       "slurmd's epilog has reported the end of the job's run on this node; the next `options` "
       "record of the job is for another run"}};
  static void fields(auto& v, auto& r) { v("tenant", r.tenant); }
};

// The health of a GPU, and whether it is drained. The texts have no blanks; a dash stands for an empty text.
struct GpuRecord {
  GpuUuid gpu;
  std::uint32_t condition = 0;  // GpuCondition
  std::string fault = "-";
  std::string drain = "-";

  static constexpr RecordKind kKinds[] = {
      {"gpu",
       "the state of the GPU from here on. The condition is 0 if healthy, 1 if the GPU has failed "
       "and needs a reset, 2 if it is lost. The fault is the reason for the condition. The drain is "
       "the reason for which an administrator has drained the GPU, or a dash if it is not drained"}};
  static void fields(auto& v, auto& r) {
    v("GPU", r.gpu);
    v("condition", r.condition);
    v("fault", r.fault);
    v("drain", r.drain);
  }
};

struct LossRecord {
  TenantId tenant;
  GpuUuid gpu;
  std::string fault = "-";

  static constexpr RecordKind kKinds[] = {
      {"loss",
       "the tenant used the GPU, or was placed on it, when the GPU was lost. The fault is the reason "
       "for the loss. The tenant's lease on this GPU ends because of the loss, or ended a moment "
       "before"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("GPU", r.gpu);
    v("fault", r.fault);
  }
};

struct PastLossRecord {
  TenantId tenant;
  GpuUuid gpu;
  std::string fault = "-";

  static constexpr RecordKind kKinds[] = {
      {"pastloss",
       "in a checkpoint: the tenant used the GPU, or was placed on it, when the GPU was lost. The "
       "fault is the reason for the loss"}};
  static void fields(auto& v, auto& r) {
    v("tenant", r.tenant);
    v("GPU", r.gpu);
    v("fault", r.fault);
  }
};

struct SeenRecord {
  static constexpr RecordKind kKinds[] = {
      {"seen",
       "all open leases are still held. While there are leases, the arbiter writes this record after "
       "each second without another record"}};
  static void fields(auto&, auto&) {}
};

// `records` is zero if this record stands for a damaged line.
struct LostRecord {
  std::uint64_t records = 0;

  static constexpr RecordKind kKinds[] = {
      {"lost", "before this record, this number of records could not be written"}};
  static void fields(auto& v, auto& r) { v("count", r.records); }
};

struct Record {
  Nanoseconds at{};
  std::variant<BootRecord, TenantRecord, OptionsRecord, ClassRecord, GangRecord, GroupRecord, PlaceRecord,
               EndRecord, SessionRecord, AttachRecord, GoneRecord, LeaseRecord, CheckpointRecord,
               CompleteRecord, StepTimeRecord, GpuTimeRecord, UsedRecord, EnergyRecord, BeginRecord,
               OverRecord, GpuRecord, LossRecord, PastLossRecord, SeenRecord, LostRecord>
      what;
};

// One line, including its newline.
std::string format_record(const Record& record);
// Parses a line without its newline. Returns nullopt if its checksum or its content is wrong.
std::optional<Record> parse_record(std::string_view line);
// Returns true for an undamaged line of a kind that this version does not know: a newer arbiter has written
// it.
bool is_of_unknown_kind(std::string_view line);

std::uint32_t crc32c(std::string_view data);

// word_of() converts a text to a word without blanks, for a record; text_of() converts it back, but with a
// blank for each underscore and for each character that the word cannot have. A dash stands for an empty
// text.
std::string word_of(std::string_view text);
std::string text_of(std::string_view word);

}  // namespace sharedgpu
