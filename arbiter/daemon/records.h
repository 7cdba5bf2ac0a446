// SPDX-License-Identifier: Apache-2.0
// The ledger's lines: how a record is written and read. docs/ledger.md is the format's page.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "arbiter/core/lease_book.h"
#include "arbiter/daemon/figures.h"
#include "arbiter/daemon/tenants.h"

namespace sharedgpu {

// The arbiter started; times count from this boot of the host, which was `booted` after 1970, by the clock of
// that moment.
struct BootRecord {
  std::string boot_id;
  Nanoseconds booted{};
};
struct TenantRecord {
  TenantId tenant;
  TenantName name;
  std::uint32_t uid = 0;
};
struct OptionsRecord {
  TenantId tenant;
  JobOptions options;
};
// Where Slurm has put the job.
struct ClassRecord {
  TenantId tenant;
  JobClass job_class;
};
// A process, with which the tenant lasts for a later arbiter, was told which GPUs the tenant is placed on;
// none: the user chose them.
struct PlaceRecord {
  TenantId tenant;
  std::uint32_t pid = 0;
  std::uint64_t started = 0;
  unsigned units = 1;  // that it counts with on each
  GpuList gpus;
};
struct EndRecord {  // of a tenant that is no job: its number and name mean nothing from here on
  TenantId tenant;
};
struct SessionRecord {
  SessionId session;
  TenantId tenant;
  StepName step;
  std::uint32_t pid = 0;
  std::uint64_t started = 0;
  std::optional<std::uint32_t> task = {};  // of the step, where it is known
};
struct AttachRecord {
  SessionId session;
  GpuUuid gpu;
};
struct GoneRecord {
  SessionId session;
};
struct LeaseRecord {
  bool grant = false;
  Epoch epoch;
  LeaseKey key;
};
// A file of the ledger that continues another begins with one. What follows, up to the CompleteRecord, is
// what still counts of all before, and the numbers are the highest that were given.
struct CheckpointRecord {
  TenantId tenant;
  SessionId session;
  Epoch epoch;
};
struct CompleteRecord {};
// In checkpoints: the closed leases of a step, and those of a tenant on a GPU, come to that time.
struct StepTimeRecord {
  TenantId tenant;
  StepName step;
  Nanoseconds time{};
};
struct GpuTimeRecord {
  TenantId tenant;
  GpuUuid gpu;
  Nanoseconds time{};
};
// What the step comes to so far; of no step: what the tenant does.
struct UsedRecord {
  TenantId tenant;
  StepName step;
  Figures figures;
};
// The job runs anew, under its old number: what it came to before is over.
struct BeginRecord {
  TenantId tenant;
};
// The job's run is over here, until there are options again.
struct OverRecord {
  TenantId tenant;
};
// Whoever holds a lease holds it still.
struct SeenRecord {};
// So many records before this one could not be written; none: one was damaged.
struct LostRecord {
  std::uint64_t records = 0;
};

struct Record {
  Nanoseconds at{};
  std::variant<BootRecord, TenantRecord, OptionsRecord, ClassRecord, PlaceRecord, EndRecord, SessionRecord,
               AttachRecord, GoneRecord, LeaseRecord, CheckpointRecord, CompleteRecord, StepTimeRecord,
               GpuTimeRecord, UsedRecord, BeginRecord, OverRecord, SeenRecord, LostRecord>
      what;
};

// One line, its newline included.
std::string format_record(const Record& record);
// The record of a line without its newline; nullopt where checksum or content is wrong.
std::optional<Record> parse_record(std::string_view line);

std::uint32_t crc32c(std::string_view data);

std::string format_hex(const std::uint8_t (&bytes)[16]);
bool parse_hex(std::string_view text, std::uint8_t (&bytes)[16]);

}  // namespace sharedgpu
