// SPDX-License-Identifier: Apache-2.0
// The messages that sessions, the command and the Slurm plugins exchange with the arbiter.
//
// Every message is one Unix seqpacket datagram of exactly sizeof(Message) bytes: a header and one body, with
// unused bytes zero. Both ends run on one host, so the byte order is the host's. A receiver drops the
// connection of a peer whose message has another size, another magic or too old a version. The arbiter also
// drops the connection of a peer that sends an unknown type; sessions ignore messages of unknown types.
// Memory is stated as totals (the bytes that are resident now), not as differences ("4 more"). So a lost or
// repeated message cannot make the memory accounting wrong for long. Below, "administrators" are root,
// SlurmUser and AdminUsers.
//
// The messages of a session, in order: Hello -> Welcome (+ the lease page's descriptor); Attach -> Attached;
// then Usage before every growth (answered by Verdict) and after every shrink. A turn: Restore (repeated as
// GPU memory is freed) -> Ready -> the arbiter opens the gate -> ... -> the arbiter closes the gate and sends
// Revoke -> Released -> Evict as other tenants need GPU memory (answered by Usage as handles are evicted).
//
// CUDA kernels of one session of a tenant may wait for work of another session of this tenant that has sent
// Released. The arbiter then sends Step to the session that has sent Released. The session lets each waiting
// thread submit once, drains, and sends Released again. The arbiter repeats this until all of the tenant's
// sessions have drained.
//
// To add a message:
//   1. In this file, add a MessageType with a number that no message ever had, and a struct with kType and
//      kSince; raise kProtocolVersion. Add a field of an existing message at the end of the message, and list
//      the field in versions.h.
//   2. If peers send the message to the arbiter, follow the recipe in arbiter/daemon/message_table.h. If
//      sessions send or receive the message, change interposer/session/arbiter_link.cpp (send_all(),
//      send_report(), handle()) and outbox.h. Send the message only to peers whose Channel::version() is at
//      least the message's kSince.
//   3. Test the message:
//      - each message: tests/unit/protocol/wire_golden.cpp with wire.golden (see tests/golden);
//      - to the arbiter: tests/unit/arbiter/daemon/message_table.cpp and any_bytes.cpp, tests/fuzz/crowd.h;
//      - to the core: tests/fuzz/messages.cpp, world_programs.cpp and hostile_clients.cpp of
//        tests/property/arbiter;
//      - of sessions: a test beside tests/unit/interposer/process/deadlines.cpp.
//   4. Add a row to docs/design/protocol.md, and raise the protocol's version in CHANGELOG.md.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "protocol/units.h"

namespace sharedgpu {

inline constexpr std::uint32_t kProtocolMagic = 0x53475055;  // "SGPU"

// The two ends of a connection may have different versions, because jobs, with their interposers and
// slurmstepds, keep running while the arbiter is upgraded. So messages only grow: a new field is added at the
// end of a message, and the value zero of the field means the behaviour without the field. Each new field
// raises the version and is listed in versions.h. Two ends of different versions use the lower version.
inline constexpr std::uint16_t kProtocolVersion = 15;
inline constexpr std::uint16_t kOldestVersion = 4;  // the oldest version that a peer may have

enum class Backend : std::uint8_t { swap = 0, managed = 1, native = 2 };

enum class MessageType : std::uint16_t {
  invalid = 0,
  // session -> arbiter
  hello = 1,
  attach = 2,
  usage = 3,
  want = 4,
  idle = 5,
  ready = 6,
  released = 7,
  memory_query = 8,
  borrow = 9,
  lend = 10,
  deadlines = 11,
  give_back = 12,
  refusal_query = 13,
  // the command and the Slurm plugins -> arbiter
  status_query = 32,
  run_request = 33,
  register_job = 34,
  lease_query = 35,
  // 37 is unused: earlier versions had the message Set
  suspend_job = 38,
  job_query = 39,
  set_lines = 40,
  end_job = 41,
  drain_gpus = 42,
  register_gang = 43,
  gpu_loss_query = 44,
  join_run = 45,
  reload_settings = 46,
  exchange_query = 47,
  // any process of a tenant -> arbiter
  gpu_query = 36,
  // arbiter -> session
  welcome = 64,
  attached = 65,
  verdict = 66,
  restore = 67,
  revoke = 68,
  evict = 69,
  memory_view = 70,
  wanted = 77,
  lent = 78,
  step = 79,
  prepare = 80,
  others_wait = 81,
  cancelled = 86,
  refusal_reply = 90,
  notice = 93,
  // arbiter -> anyone
  refused = 71,
  status_reply = 72,
  run_reply = 73,
  register_reply = 74,
  lease_reply = 75,
  end_job_reply = 85,
  drain_reply = 87,
  register_gang_reply = 88,
  gpu_reply = 76,
  set_reply = 82,
  suspend_reply = 83,
  job_reply = 84,
  gpu_loss_reply = 89,
  join_reply = 91,
  reload_reply = 92,
  exchange_reply = 94,
};

// The secret name of a run (a command that `sharedgpu run` has started): 128 random bits, which the arbiter
// sends in RunReply. Zero: no run.
struct RunToken {
  std::uint8_t bytes[16] = {};
  constexpr auto operator<=>(const RunToken&) const = default;
};

// Opens a session. The arbiter reads the job from the peer's cgroup, and the pid and uid from SO_PEERCRED.
// The arbiter accepts the token only if the peer is outside any Slurm job, and runs as the user for whom the
// token was issued.
struct Hello {
  static constexpr MessageType kType = MessageType::hello;
  RunToken token;
  // The fields from `resuming` to `epoch` give the session's state when it reconnects. The arbiter checks
  // `held` against its ledger.
  std::uint8_t resuming = 0;
  std::uint8_t held = 0;   // 1: the session held a lease (its gate was open) when the connection broke
  std::uint8_t wants = 0;  // 1: a thread waits at the gate
  Backend backend = Backend::swap;
  Epoch epoch;  // the epoch of the last turn
  // The GPU of this session; zero in a process's first session before Attach. A process has one session for
  // each of its GPUs.
  GpuUuid gpu;
};

// Carries the lease page's descriptor. The gate is still closed, unless the session has reconnected and keeps
// its lease.
struct Welcome {
  static constexpr MessageType kType = MessageType::welcome;
  SessionId session;
  TenantId tenant;
  // The tenant's epoch at present. Restore states the epoch of each later turn.
  Epoch epoch;
  Backend backend = Backend::swap;
};

// The arbiter does not serve the peer, and closes the connection. `reason` tells the user why. A process that
// is refused at cuInit() uses plain CUDA, or its cuInit() fails if OnNoArbiter=fail. Peers of all versions
// understand this message, and only this one.
struct Refused {
  static constexpr MessageType kType = MessageType::refused;
  char reason[160] = {};  // NUL-terminated
};

// The session is about to use a GPU. A session has one GPU.
struct Attach {
  static constexpr MessageType kType = MessageType::attach;
  GpuUuid gpu;
  // The driver's total memory and name of the GPU. The arbiter uses `total` and `name` only if it cannot ask
  // the driver itself.
  Bytes total;
  char name[64] = {};  // for example "NVIDIA H200"
  // A random number by which other sessions of the tenant import memory from this session. Zero: this session
  // exports nothing.
  std::uint64_t lender = 0;
};

struct Attached {
  static constexpr MessageType kType = MessageType::attached;
  GpuUuid gpu;
  // The value for cuDeviceTotalMem: the GPU's capacity, or the job's own limit if that is lower. If
  // `oversize` is set, the capacity includes the host memory that the session may use for away memory beyond
  // the GPU.
  Bytes capacity;
  std::uint8_t oversize = 0;  // 1: the session may have away memory (Usage::away)
};

// The memory of a session on its GPU.
struct MemoryUse {
  Bytes swappable;  // evictable bytes, resident or not, in whole handles
  Bytes resident;   // the part of `swappable` on the GPU now
  Bytes pinned;     // allocated and not evictable: arrays, pools, some memory from cuMemCreate
  // The estimated memory that the driver takes for contexts and modules. This memory is not a part of the
  // capacity.
  Bytes context;
  Bytes host;  // host memory allocated for swap
  // Evictable memory that is to become pinned memory without being moved; the session asks the arbiter for
  // this. Until the arbiter answers, this memory is a part of `swappable`, of `resident` and of `pinned`.
  // When the arbiter has granted the request, the memory is a part of `pinned` only.
  Bytes settling = {};
  // The most evicted memory that all processes under the session's host memory limits can hold together;
  // zero: no limit.
  Bytes host_limit = {};
  constexpr Bytes footprint() const { return minus(swappable + pinned, settling); }
};

// The bytes that a session has copied between the GPU and the host, without the bytes that it reported over
// earlier connections to the arbiter. Memory that needed no copy is not included: contents that have not
// changed since the last copy, and contents whose words are all equal.
struct Traffic {
  Bytes evicted;
  Bytes restored;
  constexpr auto operator<=>(const Traffic&) const = default;
};
constexpr Traffic operator+(Traffic a, Traffic b) {
  return {.evicted = a.evicted + b.evicted, .restored = a.restored + b.restored};
}
// Returns a - b for each count, or zero where b is larger.
constexpr Traffic minus(Traffic a, Traffic b) {
  return {.evicted = minus(a.evicted, b.evicted), .restored = minus(a.restored, b.restored)};
}

// The costs of away memory (Usage::away) for a session, without the costs that it reported over earlier
// connections to the arbiter.
struct Exchanges {
  Traffic moved = {};    // the bytes that exchanges have copied; a part of Usage::moved
  Nanoseconds moving{};  // the time in which exchanges moved handles
  // The time for which threads of the program have waited for exchanges; each thread counts by itself. The
  // time includes waits for exchanges that were given up, and waits for the GPU's earlier work.
  Nanoseconds waited{};
  // An exchange copies in both directions at the same time, so only the bytes of the direction that copied
  // more count. `copied` is the sum of these bytes over all exchanges, and `fastest` is the most such bytes
  // per second in one exchange. copied / fastest is the time that all exchanges would have taken at the speed
  // of the fastest exchange.
  Bytes copied = {};
  Bytes fastest = {};
  // The additional time that kernels took because operands were away, estimated from the times of a few
  // launches. Kernels without a timed launch do not count. If a kernel was never timed with all operands on
  // the GPU, its whole time counts.
  Nanoseconds slowed{};
  constexpr auto operator<=>(const Exchanges&) const = default;

  constexpr Nanoseconds moving_at_best() const {
    if (fastest == Bytes{}) return {};
    return from_seconds(static_cast<double>(copied.count) / static_cast<double>(fastest.count));
  }
};
// Adds the bytes and times, and takes the higher of the two speeds. A sum of times is at most the largest
// value of the type.
constexpr Exchanges operator+(const Exchanges& a, const Exchanges& b) {
  const auto sum = [](Nanoseconds x, Nanoseconds y) {
    return x > Nanoseconds::max() - y ? Nanoseconds::max() : x + y;
  };
  return {.moved = a.moved + b.moved,
          .moving = sum(a.moving, b.moving),
          .waited = sum(a.waited, b.waited),
          .copied = a.copied + b.copied,
          .fastest = std::max(a.fastest, b.fastest),
          .slowed = sum(a.slowed, b.slowed)};
}
// Returns a - b for each count, or zero where b is larger, with the speed of a.
constexpr Exchanges minus(const Exchanges& a, const Exchanges& b) {
  const auto rest = [](Nanoseconds x, Nanoseconds y) { return x > y ? x - y : Nanoseconds{}; };
  return {.moved = minus(a.moved, b.moved),
          .moving = rest(a.moving, b.moving),
          .waited = rest(a.waited, b.waited),
          .copied = minus(a.copied, b.copied),
          .fastest = a.fastest,
          .slowed = rest(a.slowed, b.slowed)};
}

// Reports memory use. If `request` is not zero, the session also asks for permission to grow. In this case
// `use` has the values after the growth, except use.resident, which is the value before the growth.
//
// One request grows either `use` or `away`. If `away` is larger than the arbiter has granted, the request is
// about `away` alone: `away` includes the growth, and growth of `use` in this message is not granted. A
// request for growth of `use` may state a lower `away`, because the new device memory takes the contents of
// away memory. The arbiter decides about the request with the lower value. It counts the earlier amount until
// it grants the request, or until a report without a request states less. While a session waits for the
// answer to such a request, its reports without a request count this memory in both `use` and `away`.
struct Usage {
  static constexpr MessageType kType = MessageType::usage;
  static constexpr std::uint16_t kAway = 14;       // the first version with away memory
  static constexpr std::uint16_t kExchanges = 15;  // the first version with `exchanges`
  std::uint64_t request = 0;
  MemoryUse use;
  // 1: the session could not evict all that Evict demanded, since no host memory is left or the context is
  // lost.
  std::uint8_t stuck = 0;
  // The same as use.host_limit, but computed from the host memory limits that all steps of the job share.
  Bytes job_host_limit = {};
  Traffic moved = {};
  // Away memory: host memory with the contents of handles for which the window has no room. It is mapped at
  // the addresses of these handles. It is a part of neither `use.swappable` nor `use.host`.
  Bytes away = {};
  Exchanges exchanges = {};
  // The session's host memory for which no cgroup is charged: away memory, and unused host memory that is
  // kept for exchanges. It may be less than `away`, which also includes memory that is only requested, and
  // memory for which the window has room. Sessions of older versions report only `away`; the value is then
  // zero.
  Bytes uncharged = {};
};

// The arbiter answers a request to pin memory without moving it (MemoryUse::settling) within this time. The
// arbiter must not delay the answer, because the drain at the end of a turn may be waiting for the requesting
// thread. A session that waits much longer than this time assumes that the arbiter is gone.
inline constexpr Nanoseconds kSettlePatience = std::chrono::seconds(10);

// The answer to a Usage whose `request` is not zero. The growth is refused if the footprint would exceed the
// job's own limit or could never be resident on the GPU, or if the tenant's evicted memory would exceed a
// host memory limit. Growth of pinned memory is also refused if the memory of another tenant could then never
// be resident. Any growth is refused if the end of a turn would otherwise wait too long for the answer. The
// session then undoes the growth and returns CUDA_ERROR_OUT_OF_MEMORY. If the growth is granted, `allowed` is
// the new resident limit. A session that holds a lease gets the answer when enough GPU memory is free for the
// growth, unless it has sent Released after its gate was closed. Other sessions may get a limit that is too
// low for the growth. The new memory then becomes resident with the next Restore. The arbiter answers a
// request for away memory without waiting for GPU memory, and such a Verdict does not raise the resident
// limit.
struct Verdict {
  static constexpr MessageType kType = MessageType::verdict;
  std::uint64_t request = 0;
  std::uint8_t granted = 0;
  Bytes allowed;
  // The reason of a refusal. Nonzero: the tenant's sessions share host memory that can hold at most this much
  // evicted memory. Zero: device memory is lacking, or the job's own limit would be exceeded.
  Bytes host_most = {};
};

// A thread waits at the closed gate. If `host_short` is set, the job needs the host memory that its evicted
// memory occupies. The evicted memory must then be restored before the Linux kernel kills the job.
struct Want {
  static constexpr MessageType kType = MessageType::want;
  std::uint8_t host_short = 0;
};

// For the time `idle`, the session has submitted nothing, and the GPU has had no work of the session. Sent
// only while `contended` is set in the lease page, but the time `idle` may have begun before `contended` was
// set.
struct Idle {
  static constexpr MessageType kType = MessageType::idle;
  Epoch epoch;
  Nanoseconds idle{};
};

// The numbers of deadlines met and missed according to the reports that the session has read from the
// deadline pipe since its last Deadlines message, see docs/design/scheduling.md. The reports may be of any
// process of the tenant. Since version 7; never sent to an arbiter of an earlier version.
struct Deadlines {
  static constexpr MessageType kType = MessageType::deadlines;
  static constexpr std::uint16_t kSince = 7;
  std::uint64_t met = 0;
  std::uint64_t missed = 0;
};

// The session yields its turn: its next submission would not end within the turn, and other tenants wait for
// the GPU. Since version 8; the lease page of an arbiter of an earlier version lacks the end of the turn.
struct GiveBack {
  static constexpr MessageType kType = MessageType::give_back;
  static constexpr std::uint16_t kSince = 8;
  Epoch epoch;
};

// The session restores its memory until all of it is resident, or `allowed` is reached. When all its memory
// is resident, the session sends Ready. The arbiter sends Restore again, with the same epoch and a larger
// `allowed`, as other tenants free GPU memory.
struct Restore {
  static constexpr MessageType kType = MessageType::restore;
  Epoch epoch;
  Bytes allowed;
};

// All of the session's memory is resident; the arbiter opens the gates when all the tenant's sessions are
// ready.
struct Ready {
  static constexpr MessageType kType = MessageType::ready;
  Epoch epoch;
  MemoryUse use;
  Traffic moved = {};
};

// The arbiter has closed the gate: the session must drain and send Released. The drain also waits until every
// thread that has passed the gate has left it.
struct Revoke {
  static constexpr MessageType kType = MessageType::revoke;
  Epoch epoch;
  // The number of this order. It is unique even across restarts of the arbiter.
  std::uint64_t order = 0;
};

// Sent to a session that has sent Released while other sessions of its tenant still drain. The work of the
// other sessions on the GPU may wait for work that this session has not submitted yet. The lease continues.
// The session restores its missing memory, lets each waiting thread submit once, drains and sends Released
// again.
struct Step {
  static constexpr MessageType kType = MessageType::step;
  Epoch epoch;
  Bytes allowed;
  std::uint64_t order = 0;  // the number of this order, as in Revoke
};

// The arbiter has just set `contended` in the lease page. The session checks at once whether it is idle, and
// does not wait for its next regular check.
struct OthersWait {
  static constexpr MessageType kType = MessageType::others_wait;
};

// The arbiter will send SIGTERM to the process in a moment. The session prints `reason` on the user's
// standard error. A session of an earlier version ignores this message.
struct Cancelled {
  static constexpr MessageType kType = MessageType::cancelled;
  static constexpr std::uint16_t kSince = 9;
  char reason[160] = {};  // NUL-terminated
};

// A line for the user, which the session prints on standard error. The arbiter sends a line to one session of
// the tenant. Since version 13.
struct Notice {
  static constexpr MessageType kType = MessageType::notice;
  static constexpr std::uint16_t kSince = 13;
  char text[240] = {};  // NUL-terminated
};

// The session has drained: no submission is in progress, and the GPU has finished all work of the session.
struct Released {
  static constexpr MessageType kType = MessageType::released;
  Epoch epoch;
  std::uint64_t order = 0;  // number of the Revoke or Step that Released answers; the arbiter ignores answers
                            // to earlier orders
  std::uint8_t wants = 0;   // 1: threads wait at the gate
  Nanoseconds overuse{};    // the time from Revoke to this Released
  MemoryUse use;
  // The smoothed GPU time of one submission of the session; zero if unknown.
  Nanoseconds submission{};
};

// The session evicts handles, least recently used first, until at most `allowed` bytes are resident. The
// session reports progress with Usage at least every 256 MiB, and once at the end. If host memory is lacking,
// some memory stays on the GPU. The last Usage then has a `resident` above `allowed`, and sets `stuck`.
struct Evict {
  static constexpr MessageType kType = MessageType::evict;
  Bytes allowed;
};

// The most host memory that evictions of this session are expected to need at once. The session can allocate
// this memory in advance. Zero: no eviction is expected, and the session may free unused host memory. The
// arbiter sends Prepare before the first Evict, when the amount or `sharers` has grown, and when the amount
// has been smaller for some seconds. `sharers` is the number of the tenant's sessions, since all of them
// allocate from the host memory of one job, perhaps at the same time.
struct Prepare {
  static constexpr MessageType kType = MessageType::prepare;
  Bytes host;
  std::uint32_t sharers = 1;
};

// Asks for the values of cuMemGetInfo; answered by MemoryView.
struct MemoryQuery {
  static constexpr MessageType kType = MessageType::memory_query;
  std::uint64_t request = 0;
};
struct MemoryView {
  static constexpr MessageType kType = MessageType::memory_view;
  std::uint64_t request = 0;
  Bytes total;
  Bytes free;       // the bytes that this tenant may allocate in addition to its present memory
  Bytes away = {};  // the part of `free` that would be away memory, because the GPU has no room for it
};

// The limit that an allocation would exceed.
enum class Bound : std::uint8_t {
  none = 0,
  job = 1,    // the cgroup limit on the job's host memory
  units = 2,  // the host memory of the job's units (SwapPerUnit=)
  own = 3,    // the limit that the job has stated for its device memory
  gpu = 4,    // the allocation exceeds the GPU's memory and also the job's host memory, the units' host
              // memory or the job's own limit
};

// An allocation of the program was refused. The session asks which limit the allocation exceeds, to tell the
// user. Since version 12.
struct RefusalQuery {
  static constexpr MessageType kType = MessageType::refusal_query;
  static constexpr std::uint16_t kSince = 12;
  std::uint64_t request = 0;
  Bytes size = {};          // size of the refused allocation
  std::uint8_t pinned = 0;  // 1: the allocation is memory that cannot be evicted
};
struct RefusalReply {
  static constexpr MessageType kType = MessageType::refusal_reply;
  static constexpr std::uint16_t kSince = 12;
  std::uint64_t request = 0;
  Bound bound = Bound::none;
  std::uint8_t told = 0;    // 1: the job's user has had a message about this limit; a message about `job`,
                            // `units` or `own` counts for all three
  std::uint32_t units = 0;  // if the bound is `units`: how many units would suffice; zero if the node has
                            // fewer units than that
  Bytes most = {};          // the limit; for `job`, only the part of the limit that may hold evicted memory
  Bytes needed = {};   // the size that the tenant would have with this allocation: for `job` and `units`, its
                       // evictable bytes; for `own` and `gpu`, its footprint on this GPU
  Bytes brought = {};  // the host memory of the job's units; zero: unlimited
  Bytes host = {};     // the host memory that the job's sessions hold for swap now
};

// Sessions of one tenant export device memory to each other (cuIpcGetMemHandle). The importer sends Borrow to
// the arbiter. The arbiter connects the two sessions by a socket pair: it sends one socket to the importer
// with Lent, and the other socket to the exporter with Wanted. The exporter sends Lend with the memory's
// descriptor through its socket. Each Lend carries the descriptor of one piece of the allocation. With an
// arbiter before version 9, there is no socket pair: the exporter sends Lend to the arbiter, which copies
// outcome, pieces, size and descriptor to Lent.
struct LoanName {
  std::uint64_t lender = 0;  // the number of the exporter, as in its Attach
  std::uint64_t loan = 0;    // the random number of the allocation
  constexpr auto operator<=>(const LoanName&) const = default;
};

// With this piece number, Borrow requests the exporter's lock file instead of memory. In this file, importers
// lock the exports that they have open, so that the exporter sees which exports are in use.
inline constexpr std::uint32_t kLien = ~std::uint32_t{0};

enum class LoanOutcome : std::uint8_t {
  given,    // the descriptor of the piece comes with the message
  unknown,  // no session of this tenant exports this memory
  later,    // the arbiter has restarted, and the exporter may reconnect later
  failed,   // the exporter failed to export the memory, or the arbiter to connect the two sessions
  asked,    // the exporter answers through the descriptor that comes with the message
};

struct Borrow {
  static constexpr MessageType kType = MessageType::borrow;
  std::uint64_t request = 0;
  LoanName name;
  std::uint32_t piece = 0;
};
// Asks the exporter for a piece; the exporter answers with Lend.
struct Wanted {
  static constexpr MessageType kType = MessageType::wanted;
  std::uint64_t ticket = 0;  // Lend repeats this number; used only by arbiters before version 9
  LoanName name;
  std::uint32_t piece = 0;
};
struct Lend {
  static constexpr MessageType kType = MessageType::lend;
  std::uint64_t ticket = 0;
  LoanOutcome outcome = LoanOutcome::failed;
  std::uint32_t pieces = 0;  // the number of pieces of the allocation
  Bytes size;                // the size of this piece
};
// Answers Borrow.
struct Lent {
  static constexpr MessageType kType = MessageType::lent;
  // The first version of the protocol in which the arbiter connects importer and exporter.
  static constexpr std::uint16_t kPaired = 9;
  std::uint64_t request = 0;
  LoanOutcome outcome = LoanOutcome::failed;
  std::uint32_t pieces = 0;
  Bytes size;
};

// Asks for the status. StatusReply comes with the descriptor of a file that has the JSON text. The peer must
// read the file at once, because the arbiter empties it after some further answers. A peer that finds fewer
// than `size` bytes in the file sends its query again.
struct StatusQuery {
  static constexpr MessageType kType = MessageType::status_query;
};
struct StatusReply {
  static constexpr MessageType kType = MessageType::status_reply;
  std::uint64_t size = 0;  // bytes of text
};

// An administrator sends new settings, as lines of sharedgpu.conf, for the node or for the GPUs of a section.
// The settings are valid until a later message replaces or clears them, or the arbiter ends.
struct SetLines {
  static constexpr MessageType kType = MessageType::set_lines;
  char text[240] = {};  // NUL-terminated
};
struct SetReply {
  static constexpr MessageType kType = MessageType::set_reply;
  std::uint8_t done = 0;  // 0: the sender lacks permission
};

// An administrator makes the arbiter read its configuration file again. Since version 13.
struct ReloadSettings {
  static constexpr MessageType kType = MessageType::reload_settings;
  static constexpr std::uint16_t kSince = 13;
};
// If `done` is set, the descriptor of a file with `size` bytes of JSON text comes with the message, see
// docs/status-json.md.
struct ReloadReply {
  static constexpr MessageType kType = MessageType::reload_reply;
  static constexpr std::uint16_t kSince = 13;
  std::uint8_t done = 0;  // 0: the sender lacks permission
  std::uint64_t size = 0;
};

// An administrator drains these GPUs, or ends the drain. The arbiter places no tenant on a drained GPU. A
// drain outlives restarts of the arbiter and the host. Since version 10.
struct DrainGpus {
  static constexpr MessageType kType = MessageType::drain_gpus;
  static constexpr std::uint16_t kSince = 10;
  std::uint8_t drained = 0;
  char gpus[119] = {};    // "0", "1,4-7" or UUIDs, as in the header of a [gpu] section of sharedgpu.conf;
                          // NUL-terminated
  char reason[100] = {};  // NUL-terminated
};
struct DrainReply {
  static constexpr MessageType kType = MessageType::drain_reply;
  static constexpr std::uint16_t kSince = 10;
  std::uint8_t done = 0;  // 0: the sender lacks permission
};

inline constexpr std::int32_t kHighestPriority = 1000;  // the lowest priority is -1000

// The options that a job may state. Zero means that the job does not state the option.
struct JobOptions {
  static constexpr std::uint32_t kMostUnits = 1'000'000;  // the most units of a job on one node
  Bytes memory;                     // the largest footprint that the job may have (--sharedgpu-memory)
  std::uint32_t units = 0;          // the job's units of gres/sharedgpu; 0 means 1
  std::uint32_t share_request = 0;  // percent of GPU time
  std::uint32_t share_limit = 0;
  std::int32_t priority = 0;  // a job with a higher priority goes first
  Nanoseconds deadline{};
  Backend backend = Backend::swap;
  std::uint8_t backend_given = 0;
  std::uint32_t gpus = 0;  // GPUs used on each node; 0 means 1
};

// The job's partition and QOS in Slurm, and how often Slurm has restarted it. A name is empty if it is
// unknown or the job has none. The names are NUL-terminated.
struct JobClass {
  static constexpr std::size_t kLongest = 63;
  char partition[kLongest + 1] = {};
  char qos[kLongest + 1] = {};
  std::uint64_t restarts = 0;
  bool operator==(const JobClass&) const = default;
};

// A job as an element of a job array: users know the job as ARRAY_INDEX. Both numbers are zero if the job is
// no element of an array.
struct ArrayElement {
  std::uint32_t array = 0;
  std::uint32_t index = 0;
  constexpr auto operator<=>(const ArrayElement&) const = default;
};

// GPUs by the minor numbers of their device files, up to 63.
struct DeviceSet {
  std::uint64_t bits = 0;
  constexpr bool empty() const { return bits == 0; }
  constexpr unsigned count() const { return static_cast<unsigned>(std::popcount(bits)); }
  constexpr bool has(unsigned minor) const { return minor < 64 && (bits >> minor & 1) != 0; }
};

// The placement of a tenant: its processes see these GPUs, in this order. Empty if the arbiter does not
// choose the tenant's GPUs. A single zero UUID: all GPUs that the tenant could open have failed or are
// drained, and its processes see no GPU.
struct GpuList {
  static constexpr std::uint32_t kMost = 12;
  std::uint32_t count = 0;
  // The number of GPUs on which the arbiter could place the receiver: healthy GPUs that are not drained, and
  // whose device files the receiver can open.
  std::uint32_t known = 0;
  GpuUuid gpu[kMost];
};

// Creates a tenant, outside Slurm, for the command that `sharedgpu run` is about to start. The tenant exists
// as long as this connection, or one of the tenant's sessions, exists.
struct RunRequest {
  static constexpr MessageType kType = MessageType::run_request;
  JobOptions options;
  std::uint8_t chosen = 0;  // 1: the user has chosen the GPUs, and the arbiter must not choose them
  DeviceSet devices = {};   // the devices that the user's processes can open; empty if unknown
  // 1: a batch system has counted the units, and the tenant belongs to `uid`. Accepted from administrators
  // only.
  std::uint8_t vouched = 0;
  std::uint32_t uid = 0;
  // The host memory for the program itself, without the memory for its units (SwapPerUnit=). Set only if
  // `vouched` is set. Zero: not stated.
  Bytes host_memory = {};
};
struct RunReply {
  static constexpr MessageType kType = MessageType::run_reply;
  RunToken token;  // for SHAREDGPU_TOKEN
  TenantId tenant;
  GpuList gpus = {};
  // The percentage of a GPU's threads that the tenant's processes may use under MPS
  // (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE); zero: the processes run without MPS.
  std::uint32_t threads = 0;
  std::uint32_t confined = 0;  // 1: the run has a control group that limits its host memory, and the sender
                               // is in this group
  std::uint64_t units = 0;  // the units that the arbiter counts for the run, if RunRequest::vouched was set
};
// RunReply must have no padding: if a body of this size ends in padding, GCC 12's __builtin_clear_padding
// clears the wrong bytes.
static_assert(std::has_unique_object_representations_v<RunReply>);

// Asks to enter the run's control group. Sent by a process that is about to execute a program of the run. The
// arbiter accepts the token under the same conditions as in Hello. Since version 12.
struct JoinRun {
  static constexpr MessageType kType = MessageType::join_run;
  static constexpr std::uint16_t kSince = 12;
  RunToken token;
};
struct JoinReply {
  static constexpr MessageType kType = MessageType::join_reply;
  static constexpr std::uint16_t kSince = 12;
  std::uint8_t inside = 0;  // 1: the process is in the run's control group
};

// The numbers of a Slurm step. `step` has the values of slurm_step_id_t's step_id, see step_names.h.
struct StepName {
  std::uint32_t job = 0;
  std::uint32_t step = 0;
  constexpr auto operator<=>(const StepName&) const = default;
};

// The job's units and options. From slurmstepd; allowed only for administrators. At the first RegisterJob
// of a job, the arbiter places the job on GPUs. The placement lasts as long as a session of the job exists,
// or a process that has sent this message for the job.
struct RegisterJob {
  static constexpr MessageType kType = MessageType::register_job;
  StepName step;
  std::uint32_t uid = 0;
  JobOptions options;
  // The GPUs that belong to the step's units, if the step can open their device files; empty if unknown.
  DeviceSet devices = {};
  DeviceSet whole = {};  // GPUs that the step holds alone, through gres/gpu
  JobClass job_class = {};
  std::uint8_t gang = 0;  // 1: the arbiter has just accepted a RegisterGang for the job
  // The host memory that the job gets for the step's units, if SwapPerUnit= differs between the types of
  // units. Zero: the amount is the same for all types, or the amount is unknown. kUnlimited: SwapPerUnit=
  // states no size for one of the types.
  static constexpr Bytes kMostBrought{std::uint64_t{1} << 62};
  static constexpr Bytes kUnlimited{~std::uint64_t{0}};
  Bytes brought = {};
  ArrayElement element = {};
};
struct RegisterReply {
  static constexpr MessageType kType = MessageType::register_reply;
  std::uint8_t accepted = 0;
  GpuList gpus = {};
  // The number of GPUs that the step holds alone, through gres/gpu. These GPUs are the first of `gpus`. Zero
  // if GpuList is too short for all these GPUs and one shared GPU, if the arbiter does not know all these
  // GPUs, or if it chooses no shared GPU.
  std::uint32_t whole = 0;
  std::uint32_t threads = 0;  // as in RunReply
};

// The job has several nodes, and the arbiter of its first node coordinates its turns. From slurmstepd,
// before RegisterJob; allowed only for administrators. Since version 11.
struct RegisterGang {
  static constexpr MessageType kType = MessageType::register_gang;
  static constexpr std::uint16_t kSince = 11;
  static constexpr std::size_t kLongest = 199;
  std::uint32_t job = 0;
  std::uint32_t uid = 0;
  std::uint32_t nodes = 0;  // the number of the job's nodes
  // The Slurm name of the job's first node; NUL-terminated.
  char coordinator[kLongest + 1] = {};
};
struct RegisterGangReply {
  static constexpr MessageType kType = MessageType::register_gang_reply;
  static constexpr std::uint16_t kSince = 11;
  std::uint8_t accepted = 0;
};

// Slurm suspends the job, or resumes it. From slurmstepd, which repeats the message every few seconds while
// the job is suspended; allowed only for administrators. After the first message of a suspension, the
// job's sessions release the lease and evict memory as far as they can before Slurm stops them.
struct SuspendJob {
  static constexpr MessageType kType = MessageType::suspend_job;
  StepName step;
  std::uint8_t suspended = 0;
};
struct SuspendReply {
  static constexpr MessageType kType = MessageType::suspend_reply;
  std::uint8_t accepted = 0;
};

// The job has ended on this node. From slurmd's epilog; allowed only for administrators. If Slurm starts
// the job again, the arbiter counts this as another run of the job.
struct EndJob {
  static constexpr MessageType kType = MessageType::end_job;
  std::uint32_t job = 0;
};
struct EndJobReply {
  static constexpr MessageType kType = MessageType::end_job_reply;
  std::uint8_t accepted = 0;
};

// The totals of one step on this node so far, for all GPUs, including finished sessions. Allowed for
// administrators and the job's own user.
struct LeaseQuery {
  static constexpr MessageType kType = MessageType::lease_query;
  StepName step;
};
struct LeaseReply {
  static constexpr MessageType kType = MessageType::lease_reply;
  StepName step;
  Nanoseconds lease{};
  std::uint8_t known = 0;  // 0: no session of this step ever connected, or the sender may not ask
  Traffic moved = {};      // the bytes copied between the GPUs and the host
  Nanoseconds waited{};    // the time for which the step has waited for a lease
};

// The totals of a job on this node so far, for all its steps and GPUs, including finished sessions. Allowed
// for administrators and the job's own user.
struct JobQuery {
  static constexpr MessageType kType = MessageType::job_query;
  std::uint32_t job = 0;
};
struct JobReply {
  static constexpr MessageType kType = MessageType::job_reply;
  std::uint32_t job = 0;
  std::uint8_t known = 0;  // 0: the arbiter has no record of the job, or the sender may not ask
  // 1: a process of the job is running, or the arbiter does not know yet whether a GPU loss has ended the
  // job's last process.
  std::uint8_t lives = 0;
  std::uint8_t backends = 0;  // the backends of the job's sessions, one bit for each Backend
  // If several steps of the job hold the lease at the same time, this time counts only once.
  Nanoseconds lease{};
  Nanoseconds waited{};
  Nanoseconds overuse{};
  std::uint64_t handoffs = 0;
  Traffic moved = {};
  Bytes footprint = {};  // the largest footprint so far
  Bytes resident = {};   // the most resident memory so far
  // The models of the GPUs that the job held, each model once, separated by ';'; NUL-terminated.
  char models[128] = {};
  std::uint32_t losses = 0;  // the number of GPUs lost during this run of the job
};

// The exchanges of a job's programs on this node so far, for all its steps and GPUs, including finished
// sessions. Allowed for administrators and the job's own user. Since version 15.
struct ExchangeQuery {
  static constexpr MessageType kType = MessageType::exchange_query;
  static constexpr std::uint16_t kSince = 15;
  std::uint32_t job = 0;
};
struct ExchangeReply {
  static constexpr MessageType kType = MessageType::exchange_reply;
  static constexpr std::uint16_t kSince = 15;
  std::uint32_t job = 0;
  std::uint8_t known = 0;  // 0: the arbiter has no record of the job, or the sender may not ask
  Exchanges exchanges = {};
};

// Asks for one of the GPUs that the job has lost in its current run. Allowed for administrators and the job's
// own user.
struct GpuLossQuery {
  static constexpr MessageType kType = MessageType::gpu_loss_query;
  static constexpr std::uint16_t kSince = 11;
  std::uint32_t job = 0;
  std::uint32_t place = 0;  // the index of the loss, from 0
};
struct GpuLossReply {
  static constexpr MessageType kType = MessageType::gpu_loss_reply;
  static constexpr std::uint16_t kSince = 11;
  std::uint32_t job = 0;
  std::uint8_t known = 0;  // 0: no loss at this index, or the sender may not ask
  GpuUuid gpu;
  char fault[64] = {};  // why the GPU was lost; NUL-terminated
};

// Asks for the memory and the processes of a GPU as the sender's tenant sees them. The sender answers NVML
// calls of a program, and may have no session. The arbiter identifies the tenant of the process as it does
// for Hello. A process without a tenant sees the GPU as if no other process used it.
struct GpuQuery {
  static constexpr MessageType kType = MessageType::gpu_query;
  RunToken token;
  GpuUuid gpu;
  // The index of the first process to report, from 0. One reply may be too small for all of the tenant's
  // processes.
  std::uint32_t first = 0;
};
struct GpuReply {
  static constexpr MessageType kType = MessageType::gpu_reply;
  static constexpr std::uint32_t kProcesses = 13;
  struct Process {
    std::uint32_t pid = 0;
    Bytes used;  // the process's footprint
  };
  std::uint8_t known = 0;       // 0: the arbiter does not manage this GPU for this tenant
  std::uint32_t processes = 0;  // number of the tenant's processes on this GPU that are visible in the
                                // sender's PID namespace, including those that this reply cannot hold
  Bytes total;
  Bytes free;
  Process process[kProcesses];
};

// One datagram.
struct Message {
  static constexpr std::size_t kBodySize = 240;

  std::uint32_t magic = kProtocolMagic;
  std::uint16_t version = kProtocolVersion;
  MessageType type = MessageType::invalid;
  std::uint64_t reserved = 0;
  alignas(8) unsigned char body[kBodySize] = {};

  template <class Body>
  static Message of(const Body& content) {
    static_assert(std::is_trivially_copyable_v<Body> && sizeof(Body) <= kBodySize && alignof(Body) <= 8);
    Message message;
    message.type = Body::kType;
    Body clean = content;
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&clean);  // otherwise the padding bytes would show the peer a part of this
                                      // process's stack
#endif
    std::memcpy(message.body, &clean, sizeof clean);
    return message;
  }

  // The body. `Body` must be the type that belongs to the message's `type`.
  template <class Body>
  Body as() const {
    Body result;
    std::memcpy(&result, body, sizeof result);
    return result;
  }
};
static_assert(sizeof(Message) == 256);

}  // namespace sharedgpu
