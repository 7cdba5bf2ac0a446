// SPDX-License-Identifier: Apache-2.0
// Compares the layout of every message and of the lease page, as text, with wire.golden. A library of one
// version talks to an arbiter of another version, so no part of the layout may change by accident.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "protocol/lease_page.h"
#include "protocol/messages.h"
#include "protocol/versions.h"
#include "tests/unit/golden.h"

namespace sharedgpu {
namespace {

struct Field {
  std::size_t offset = 0;
  std::size_t size = 0;
  std::string kind;
  std::string name;
  bool is_leaf = true;     // false if the next fields are the parts of this field
  std::size_t times = 1;   // number of elements, if the field is a part of an array's element
  std::size_t stride = 0;  // bytes from one element to the next
};
using Fields = std::vector<Field>;

template <class T>
struct Tag {};

template <class T>
const char* kind_of(Tag<T>) {
  if (std::is_enum_v<T>) return "enum";
  return std::is_signed_v<T> ? "signed" : "unsigned";
}
const char* kind_of(Tag<char>) { return "text"; }
const char* kind_of(Tag<unsigned char>) { return "unsigned"; }
const char* kind_of(Tag<Bytes>) { return "bytes"; }
const char* kind_of(Tag<Nanoseconds>) { return "nanoseconds"; }
const char* kind_of(Tag<GpuUuid>) { return "uuid"; }
const char* kind_of(Tag<RunToken>) { return "token"; }
template <class Of>
const char* kind_of(Tag<Id<Of>>) {
  return "id";
}
template <class T>
const char* kind_of(Tag<std::atomic<T>>) {
  return kind_of(Tag<T>{});
}

template <class T>
concept HasParts = requires(Tag<T> tag) {
  fields_of(tag);
};

// Returns the field of type T, followed by its parts if T is a structure of this project.
template <class T>
Fields field(std::size_t offset, const std::string& name) {
  using One = std::remove_extent_t<T>;
  const std::size_t count = sizeof(T) / sizeof(One);
  const std::string times = std::is_array_v<T> ? std::to_string(count) + " x " : "";
  if constexpr (HasParts<One>) {
    Fields all = {
        {.offset = offset, .size = sizeof(T), .kind = times + "structure", .name = name, .is_leaf = false}};
    for (Field part : fields_of(Tag<One>{})) {
      part.offset += offset;
      part.name.insert(0, name + (std::is_array_v<T> ? "[0]." : "."));
      if (std::is_array_v<T>) {
        part.times = count;
        part.stride = sizeof(One);
      }
      all.push_back(part);
    }
    return all;
  } else {
    return {{.offset = offset, .size = sizeof(T), .kind = times + kind_of(Tag<One>{}), .name = name}};
  }
}

Fields join(std::initializer_list<Fields> all) {
  Fields fields;
  for (const Fields& each : all) fields.insert(fields.end(), each.begin(), each.end());
  return fields;
}

#define FIELD(Structure, member) field<decltype(Structure::member)>(offsetof(Structure, member), #member)

// Structures within messages.
Fields fields_of(Tag<MemoryUse>) {
  return join({FIELD(MemoryUse, swappable), FIELD(MemoryUse, resident), FIELD(MemoryUse, pinned),
               FIELD(MemoryUse, context), FIELD(MemoryUse, host), FIELD(MemoryUse, settling),
               FIELD(MemoryUse, host_limit)});
}
Fields fields_of(Tag<Traffic>) { return join({FIELD(Traffic, evicted), FIELD(Traffic, restored)}); }
Fields fields_of(Tag<Exchanges>) {
  return join({FIELD(Exchanges, moved), FIELD(Exchanges, moving), FIELD(Exchanges, waited),
               FIELD(Exchanges, copied), FIELD(Exchanges, fastest), FIELD(Exchanges, slowed)});
}
Fields fields_of(Tag<LoanName>) { return join({FIELD(LoanName, lender), FIELD(LoanName, loan)}); }
Fields fields_of(Tag<JobOptions>) {
  return join({FIELD(JobOptions, memory), FIELD(JobOptions, units), FIELD(JobOptions, share_request),
               FIELD(JobOptions, share_limit), FIELD(JobOptions, priority), FIELD(JobOptions, deadline),
               FIELD(JobOptions, backend), FIELD(JobOptions, backend_given), FIELD(JobOptions, gpus)});
}
Fields fields_of(Tag<JobClass>) {
  return join({FIELD(JobClass, partition), FIELD(JobClass, qos), FIELD(JobClass, restarts)});
}
Fields fields_of(Tag<ArrayElement>) { return join({FIELD(ArrayElement, array), FIELD(ArrayElement, index)}); }
Fields fields_of(Tag<DeviceSet>) { return FIELD(DeviceSet, bits); }
Fields fields_of(Tag<GpuList>) {
  return join({FIELD(GpuList, count), FIELD(GpuList, known), FIELD(GpuList, gpu)});
}
Fields fields_of(Tag<StepName>) { return join({FIELD(StepName, job), FIELD(StepName, step)}); }
Fields fields_of(Tag<GpuReply::Process>) {
  return join({FIELD(GpuReply::Process, pid), FIELD(GpuReply::Process, used)});
}

// Messages, in the order of messages.h.
Fields fields_of(Tag<Hello>) {
  return join({FIELD(Hello, token), FIELD(Hello, resuming), FIELD(Hello, held), FIELD(Hello, wants),
               FIELD(Hello, backend), FIELD(Hello, epoch), FIELD(Hello, gpu)});
}
Fields fields_of(Tag<Welcome>) {
  return join(
      {FIELD(Welcome, session), FIELD(Welcome, tenant), FIELD(Welcome, epoch), FIELD(Welcome, backend)});
}
Fields fields_of(Tag<Refused>) { return FIELD(Refused, reason); }
Fields fields_of(Tag<Notice>) { return FIELD(Notice, text); }
Fields fields_of(Tag<Cancelled>) { return FIELD(Cancelled, reason); }
Fields fields_of(Tag<Attach>) {
  return join({FIELD(Attach, gpu), FIELD(Attach, total), FIELD(Attach, name), FIELD(Attach, lender)});
}
Fields fields_of(Tag<Attached>) {
  return join({FIELD(Attached, gpu), FIELD(Attached, capacity), FIELD(Attached, oversize)});
}
Fields fields_of(Tag<Usage>) {
  return join({FIELD(Usage, request), FIELD(Usage, use), FIELD(Usage, stuck), FIELD(Usage, job_host_limit),
               FIELD(Usage, moved), FIELD(Usage, away), FIELD(Usage, exchanges), FIELD(Usage, uncharged)});
}
Fields fields_of(Tag<Verdict>) {
  return join(
      {FIELD(Verdict, request), FIELD(Verdict, granted), FIELD(Verdict, allowed), FIELD(Verdict, host_most)});
}
Fields fields_of(Tag<Want>) { return FIELD(Want, host_short); }
Fields fields_of(Tag<Idle>) { return join({FIELD(Idle, epoch), FIELD(Idle, idle)}); }
Fields fields_of(Tag<Deadlines>) { return join({FIELD(Deadlines, met), FIELD(Deadlines, missed)}); }
Fields fields_of(Tag<GiveBack>) { return FIELD(GiveBack, epoch); }
Fields fields_of(Tag<Restore>) { return join({FIELD(Restore, epoch), FIELD(Restore, allowed)}); }
Fields fields_of(Tag<Ready>) { return join({FIELD(Ready, epoch), FIELD(Ready, use), FIELD(Ready, moved)}); }
Fields fields_of(Tag<Revoke>) { return join({FIELD(Revoke, epoch), FIELD(Revoke, order)}); }
Fields fields_of(Tag<Step>) { return join({FIELD(Step, epoch), FIELD(Step, allowed), FIELD(Step, order)}); }
Fields fields_of(Tag<OthersWait>) { return {}; }
Fields fields_of(Tag<Released>) {
  return join({FIELD(Released, epoch), FIELD(Released, order), FIELD(Released, wants),
               FIELD(Released, overuse), FIELD(Released, use), FIELD(Released, submission)});
}
Fields fields_of(Tag<Evict>) { return FIELD(Evict, allowed); }
Fields fields_of(Tag<Prepare>) { return join({FIELD(Prepare, host), FIELD(Prepare, sharers)}); }
Fields fields_of(Tag<MemoryQuery>) { return FIELD(MemoryQuery, request); }
Fields fields_of(Tag<MemoryView>) {
  return join({FIELD(MemoryView, request), FIELD(MemoryView, total), FIELD(MemoryView, free),
               FIELD(MemoryView, away)});
}
Fields fields_of(Tag<RefusalQuery>) {
  return join({FIELD(RefusalQuery, request), FIELD(RefusalQuery, size), FIELD(RefusalQuery, pinned)});
}
Fields fields_of(Tag<RefusalReply>) {
  return join({FIELD(RefusalReply, request), FIELD(RefusalReply, bound), FIELD(RefusalReply, told),
               FIELD(RefusalReply, units), FIELD(RefusalReply, most), FIELD(RefusalReply, needed),
               FIELD(RefusalReply, brought), FIELD(RefusalReply, host)});
}
Fields fields_of(Tag<Borrow>) {
  return join({FIELD(Borrow, request), FIELD(Borrow, name), FIELD(Borrow, piece)});
}
Fields fields_of(Tag<Wanted>) {
  return join({FIELD(Wanted, ticket), FIELD(Wanted, name), FIELD(Wanted, piece)});
}
Fields fields_of(Tag<Lend>) {
  return join({FIELD(Lend, ticket), FIELD(Lend, outcome), FIELD(Lend, pieces), FIELD(Lend, size)});
}
Fields fields_of(Tag<Lent>) {
  return join({FIELD(Lent, request), FIELD(Lent, outcome), FIELD(Lent, pieces), FIELD(Lent, size)});
}
Fields fields_of(Tag<StatusQuery>) { return {}; }
Fields fields_of(Tag<StatusReply>) { return FIELD(StatusReply, size); }
Fields fields_of(Tag<SetLines>) { return FIELD(SetLines, text); }
Fields fields_of(Tag<SetReply>) { return FIELD(SetReply, done); }
Fields fields_of(Tag<ReloadSettings>) { return {}; }
Fields fields_of(Tag<ReloadReply>) { return join({FIELD(ReloadReply, done), FIELD(ReloadReply, size)}); }
Fields fields_of(Tag<DrainGpus>) {
  return join({FIELD(DrainGpus, drained), FIELD(DrainGpus, gpus), FIELD(DrainGpus, reason)});
}
Fields fields_of(Tag<DrainReply>) { return FIELD(DrainReply, done); }
Fields fields_of(Tag<RunRequest>) {
  return join({FIELD(RunRequest, options), FIELD(RunRequest, chosen), FIELD(RunRequest, devices),
               FIELD(RunRequest, vouched), FIELD(RunRequest, uid), FIELD(RunRequest, host_memory)});
}
Fields fields_of(Tag<RunReply>) {
  return join({FIELD(RunReply, token), FIELD(RunReply, tenant), FIELD(RunReply, gpus),
               FIELD(RunReply, threads), FIELD(RunReply, confined), FIELD(RunReply, units)});
}
Fields fields_of(Tag<JoinRun>) { return FIELD(JoinRun, token); }
Fields fields_of(Tag<JoinReply>) { return FIELD(JoinReply, inside); }
Fields fields_of(Tag<RegisterJob>) {
  return join({FIELD(RegisterJob, step), FIELD(RegisterJob, uid), FIELD(RegisterJob, options),
               FIELD(RegisterJob, devices), FIELD(RegisterJob, whole), FIELD(RegisterJob, job_class),
               FIELD(RegisterJob, gang), FIELD(RegisterJob, brought), FIELD(RegisterJob, element)});
}
Fields fields_of(Tag<RegisterGang>) {
  return join({FIELD(RegisterGang, job), FIELD(RegisterGang, uid), FIELD(RegisterGang, nodes),
               FIELD(RegisterGang, coordinator)});
}
Fields fields_of(Tag<RegisterGangReply>) { return FIELD(RegisterGangReply, accepted); }
Fields fields_of(Tag<RegisterReply>) {
  return join({FIELD(RegisterReply, accepted), FIELD(RegisterReply, gpus), FIELD(RegisterReply, whole),
               FIELD(RegisterReply, threads)});
}
Fields fields_of(Tag<SuspendJob>) { return join({FIELD(SuspendJob, step), FIELD(SuspendJob, suspended)}); }
Fields fields_of(Tag<SuspendReply>) { return FIELD(SuspendReply, accepted); }
Fields fields_of(Tag<EndJob>) { return FIELD(EndJob, job); }
Fields fields_of(Tag<EndJobReply>) { return FIELD(EndJobReply, accepted); }
Fields fields_of(Tag<LeaseQuery>) { return FIELD(LeaseQuery, step); }
Fields fields_of(Tag<LeaseReply>) {
  return join({FIELD(LeaseReply, step), FIELD(LeaseReply, lease), FIELD(LeaseReply, known),
               FIELD(LeaseReply, moved), FIELD(LeaseReply, waited)});
}
Fields fields_of(Tag<JobQuery>) { return FIELD(JobQuery, job); }
Fields fields_of(Tag<JobReply>) {
  return join({FIELD(JobReply, job), FIELD(JobReply, known), FIELD(JobReply, lives),
               FIELD(JobReply, backends), FIELD(JobReply, lease), FIELD(JobReply, waited),
               FIELD(JobReply, overuse), FIELD(JobReply, handoffs), FIELD(JobReply, moved),
               FIELD(JobReply, footprint), FIELD(JobReply, resident), FIELD(JobReply, models),
               FIELD(JobReply, losses)});
}
Fields fields_of(Tag<ExchangeQuery>) { return FIELD(ExchangeQuery, job); }
Fields fields_of(Tag<ExchangeReply>) {
  return join({FIELD(ExchangeReply, job), FIELD(ExchangeReply, known), FIELD(ExchangeReply, exchanges)});
}
Fields fields_of(Tag<GpuLossQuery>) { return join({FIELD(GpuLossQuery, job), FIELD(GpuLossQuery, place)}); }
Fields fields_of(Tag<GpuLossReply>) {
  return join({FIELD(GpuLossReply, job), FIELD(GpuLossReply, known), FIELD(GpuLossReply, gpu),
               FIELD(GpuLossReply, fault)});
}
Fields fields_of(Tag<GpuQuery>) {
  return join({FIELD(GpuQuery, token), FIELD(GpuQuery, gpu), FIELD(GpuQuery, first)});
}
Fields fields_of(Tag<GpuReply>) {
  return join({FIELD(GpuReply, known), FIELD(GpuReply, processes), FIELD(GpuReply, total),
               FIELD(GpuReply, free), FIELD(GpuReply, process)});
}

// The whole datagram, and the lease page.
Fields fields_of(Tag<Message>) {
  return join({FIELD(Message, magic), FIELD(Message, version), FIELD(Message, type), FIELD(Message, reserved),
               FIELD(Message, body)});
}
Fields fields_of(Tag<LeasePage>) {
  return join({FIELD(LeasePage, magic), FIELD(LeasePage, version), FIELD(LeasePage, gate),
               FIELD(LeasePage, oversubscribed), FIELD(LeasePage, queue_us), FIELD(LeasePage, contended),
               FIELD(LeasePage, turn_ends)});
}

#undef FIELD

std::string row(const std::string& number, const std::string& offset, std::size_t size,
                const std::string& kind, const std::string& since, const std::string& name) {
  char text[160];
  std::snprintf(text, sizeof text, "%7s %6s %5zu  %-14s %5s  %s\n", number.c_str(), offset.c_str(), size,
                kind.c_str(), since.c_str(), name.c_str());
  return text;
}

// The version that added the field to a message of that type; "-": all supported versions have the field.
std::string version_of(MessageType type, const Field& field) {
  for (const AddedField& added : kAddedFields)
    if (added.type == type && field.offset >= added.offset && field.offset < added.offset + added.size)
      return std::to_string(added.version);
  return "-";
}

template <class Body>
std::string rows(MessageType type, const char* name) {
  const std::string number = std::to_string(unsigned(type));
  std::string since = "-";
  if constexpr (requires { Body::kSince; }) since = std::to_string(Body::kSince);
  std::string text = row(number, "-", sizeof(Body), "message", since, name);
  for (const Field& field : fields_of(Tag<Body>{}))
    text += row(number, std::to_string(field.offset), field.size, field.kind, version_of(type, field),
                field.name);
  return text;
}

// Returns true if the listed fields cover all bytes of the structure except its padding.
template <class Structure>
bool is_whole() {
  alignas(Structure) unsigned char bytes[sizeof(Structure)];
  std::fill(std::begin(bytes), std::end(bytes), 0xff);
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(reinterpret_cast<Structure*>(bytes));
#else
  return true;
#endif
  std::vector<bool> listed(sizeof(Structure), false);
  for (const Field& field : fields_of(Tag<Structure>{}))
    for (std::size_t i = 0; field.is_leaf && i < field.times; ++i)
      std::fill_n(listed.begin() + long(field.offset + i * field.stride), field.size, true);
  const auto is_used = [](unsigned char byte) { return byte != 0; };
  return std::equal(listed.begin(), listed.end(), std::begin(bytes),
                    [&](bool is_listed, unsigned char byte) { return is_listed == is_used(byte); });
}

template <class Body>
std::string message(MessageType type, const char* name) {
  INFO(name);
  CHECK(Body::kType == type);
  CHECK((std::is_empty_v<Body> || is_whole<Body>()));
  return rows<Body>(type, name);
}

// Returns an empty text if no message has this number. The switch has no `default`, so that the compiler
// warns about missing message types.
std::string message(MessageType type) {
#define MESSAGE(value, Body) \
  case MessageType::value:   \
    return message<Body>(type, #Body);
  switch (type) {
    case MessageType::invalid:
      return {};
      MESSAGE(hello, Hello)
      MESSAGE(attach, Attach)
      MESSAGE(usage, Usage)
      MESSAGE(want, Want)
      MESSAGE(idle, Idle)
      MESSAGE(ready, Ready)
      MESSAGE(released, Released)
      MESSAGE(memory_query, MemoryQuery)
      MESSAGE(borrow, Borrow)
      MESSAGE(lend, Lend)
      MESSAGE(deadlines, Deadlines)
      MESSAGE(give_back, GiveBack)
      MESSAGE(refusal_query, RefusalQuery)
      MESSAGE(status_query, StatusQuery)
      MESSAGE(run_request, RunRequest)
      MESSAGE(register_job, RegisterJob)
      MESSAGE(lease_query, LeaseQuery)
      MESSAGE(suspend_job, SuspendJob)
      MESSAGE(job_query, JobQuery)
      MESSAGE(set_lines, SetLines)
      MESSAGE(end_job, EndJob)
      MESSAGE(drain_gpus, DrainGpus)
      MESSAGE(reload_settings, ReloadSettings)
      MESSAGE(register_gang, RegisterGang)
      MESSAGE(gpu_loss_query, GpuLossQuery)
      MESSAGE(gpu_query, GpuQuery)
      MESSAGE(join_run, JoinRun)
      MESSAGE(exchange_query, ExchangeQuery)
      MESSAGE(welcome, Welcome)
      MESSAGE(attached, Attached)
      MESSAGE(verdict, Verdict)
      MESSAGE(restore, Restore)
      MESSAGE(revoke, Revoke)
      MESSAGE(evict, Evict)
      MESSAGE(memory_view, MemoryView)
      MESSAGE(wanted, Wanted)
      MESSAGE(lent, Lent)
      MESSAGE(step, Step)
      MESSAGE(prepare, Prepare)
      MESSAGE(others_wait, OthersWait)
      MESSAGE(cancelled, Cancelled)
      MESSAGE(refusal_reply, RefusalReply)
      MESSAGE(notice, Notice)
      MESSAGE(refused, Refused)
      MESSAGE(status_reply, StatusReply)
      MESSAGE(run_reply, RunReply)
      MESSAGE(register_reply, RegisterReply)
      MESSAGE(lease_reply, LeaseReply)
      MESSAGE(end_job_reply, EndJobReply)
      MESSAGE(drain_reply, DrainReply)
      MESSAGE(reload_reply, ReloadReply)
      MESSAGE(register_gang_reply, RegisterGangReply)
      MESSAGE(gpu_reply, GpuReply)
      MESSAGE(set_reply, SetReply)
      MESSAGE(suspend_reply, SuspendReply)
      MESSAGE(job_reply, JobReply)
      MESSAGE(gpu_loss_reply, GpuLossReply)
      MESSAGE(join_reply, JoinReply)
      MESSAGE(exchange_reply, ExchangeReply)
  }
#undef MESSAGE
  return {};
}

// The values that fields may have, and bounds on which library and arbiter rely.
std::string constants() {
  std::string text;
  const auto value = [&](std::uint64_t number, const char* name) {
    char line[120];
    std::snprintf(line, sizeof line, "%20llu  %s\n", static_cast<unsigned long long>(number), name);
    text += line;
  };
#define VALUE(name) value(std::uint64_t(name), #name)
  VALUE(kProtocolMagic);
  VALUE(kProtocolVersion);
  VALUE(kOldestVersion);
  VALUE(LeasePage::kMagic);
  VALUE(LeasePage{}.version);
  VALUE(LeasePage::kSize);
  VALUE(LeasePage::is_open(0));
  VALUE(LeasePage::is_open(1));
  VALUE(Backend::swap);
  VALUE(Backend::managed);
  VALUE(Backend::native);
  VALUE(Bound::job);
  VALUE(Bound::units);
  VALUE(Bound::own);
  VALUE(Bound::gpu);
  VALUE(LoanOutcome::given);
  VALUE(LoanOutcome::unknown);
  VALUE(LoanOutcome::later);
  VALUE(LoanOutcome::failed);
  VALUE(kLien);
  VALUE(kSettlePatience.count());
  VALUE(kHighestPriority);
  VALUE(JobOptions::kMostUnits);
  VALUE(JobClass::kLongest);
  VALUE(GpuList::kMost);
  VALUE(GpuReply::kProcesses);
#undef VALUE
  return text;
}

TEST_CASE("golden: messages and lease page") {
  std::string text =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Made by wire_golden.cpp; tests/golden says how to write it again.\n"
      "# since: the version of the protocol that added it; -: every version that is understood has it.\n";
  const std::string head = "\n#number offset  size  kind           since  name\n";
  text += head;
  for (unsigned number = 0; number <= 0xffff; ++number) text += message(static_cast<MessageType>(number));
  CHECK(is_whole<Message>());
  CHECK(is_whole<LeasePage>());
  text += "\n# the datagram\n" + rows<Message>(MessageType::invalid, "Message");
  text += "\n# the lease page\n" + rows<LeasePage>(MessageType::invalid, "LeasePage");
  text += "\n#              value  name\n" + constants();
  CHECK(test::is_golden("wire.golden", text));
}

}  // namespace
}  // namespace sharedgpu
