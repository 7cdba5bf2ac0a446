// SPDX-License-Identifier: Apache-2.0
// The messages that sessions, the command and the Slurm plugins exchange with the arbiter.
//
// Every message is one Unix seqpacket datagram of exactly sizeof(Message) bytes: a header and one body,
// unused bytes zero. Both ends run on one host and byte order is the host's. A receiver drops the connection
// of a peer that sends another size, another magic, too old a version or an unknown type. Numbers are
// absolute (bytes resident now, not "4 more"), so that a lost or repeated message cannot make the books
// drift.
//
// The life of a session: Hello -> Welcome (+ the lease page's descriptor); Attach -> Attached; then Usage
// before every growth (answered by Verdict) and after every shrinking. A turn: Restore (repeated as room is
// freed) -> Ready -> the arbiter opens the gate -> ... -> the arbiter closes the gate and sends Revoke ->
// Released -> Evict as others need the room (answered by Usage as handles go).
//
// If some of a tenant's sessions have said Released and the kernels of others wait for those: Step ->
// Released, repeated until all have said it.
//
// To add a message:
//   1. Here: a MessageType, whose number no message had before, and a struct with kType and kSince; raise
//      kProtocolVersion. A field that is added to a message goes behind the others and into versions.h.
//   2. If peers send it to the arbiter: the recipe in arbiter/daemon/message_table.h. If sessions send
//      or receive it: interposer/session/service.cpp (send_all(), send_report(), handle()) and outbox.h. It
//      goes only to peers whose Channel::version() has it.
//   3. Tests: tests/unit/protocol/wire_golden.cpp with wire.golden (see tests/golden),
//      tests/unit/arbiter/message_table.cpp and any_bytes.cpp, tests/fuzz/messages.cpp; a test of the session
//      beside tests/unit/interposer/deadlines_test.cpp. If it changes decisions: tests/property/arbiter/
//      world.cpp sends it. docs/design/protocol.md has a row for it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "protocol/units.h"

namespace sharedgpu {

inline constexpr std::uint32_t kProtocolMagic = 0x53475055;  // "SGPU"
// Libraries and arbiters of different versions meet: jobs run on while the arbiter is upgraded. So messages
// only grow: what is added goes behind what there was, means at zero what was meant without it, raises the
// version, and is entered in versions.h. Ends of two versions speak the lower one.
inline constexpr std::uint16_t kProtocolVersion = 11;
inline constexpr std::uint16_t kOldestVersion = 4;  // that is still understood

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
  // the command and the Slurm plugins -> arbiter
  status_query = 32,
  run_request = 33,
  register_job = 34,
  lease_query = 35,
  // 37 was Set, of a policy and a quantum for the node
  suspend_job = 38,
  job_query = 39,
  set_lines = 40,
  end_job = 41,
  drain_gpus = 42,
  register_gang = 43,
  gpu_loss_query = 44,
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
};

// Names a run that the arbiter issued with run_reply; 128 random bits. Zero: none.
struct RunToken {
  std::uint8_t bytes[16] = {};
  constexpr auto operator<=>(const RunToken&) const = default;
};

// Opens a session. The job is read from the peer's cgroup, the pid and uid from SO_PEERCRED; the token counts
// only for a peer in no Slurm job, and only with the uid that it was issued to.
struct Hello {
  static constexpr MessageType kType = MessageType::hello;
  RunToken token;
  // After the arbiter's death: the session's state as it stood. `held` is checked against the ledger.
  std::uint8_t resuming = 0;
  std::uint8_t held = 0;   // a lease was held (the gate was open) when the connection broke
  std::uint8_t wants = 0;  // a thread waits at the gate
  Backend backend = Backend::swap;
  Epoch epoch;  // of the last turn
  GpuUuid gpu;  // that this session is for, if it has one yet: a process has a session for each of its GPUs
};

// The lease page's descriptor comes with this message. The gate is open at once where all footprints fit.
struct Welcome {
  static constexpr MessageType kType = MessageType::welcome;
  SessionId session;
  TenantId tenant;
  Epoch epoch;  // of the turn in which the gate is open; counts up with every turn
  Backend backend = Backend::swap;
};

// The peer is not served, and why; the connection is closed next. A session that is refused runs as plain
// CUDA would. The one message that peers of all versions understand.
struct Refused {
  static constexpr MessageType kType = MessageType::refused;
  char reason[160] = {};  // NUL-terminated
};

// The session is about to use a GPU. One GPU per session in this version.
struct Attach {
  static constexpr MessageType kType = MessageType::attach;
  GpuUuid gpu;
  Bytes total;         // as the driver tells it; believed only where the arbiter could not ask itself
  char name[64] = {};  // e.g. "NVIDIA H200"
  // Under this number others of the tenant may borrow from the session; random. Zero: it lends nothing.
  std::uint64_t lender = 0;
};

struct Attached {
  static constexpr MessageType kType = MessageType::attached;
  GpuUuid gpu;
  Bytes capacity;  // what cuDeviceTotalMem shows: the arbiter's capacity, or the job's own lower cap
};

// The memory of a session on its GPU.
struct MemoryUse {
  Bytes swappable;  // what takes turns on the GPU, resident or not; whole handles
  Bytes resident;   // the part of `swappable` on the GPU now
  Bytes pinned;     // allocated on the GPU and not swappable: arrays, pools, the program's own VMM
  Bytes context;  // what the driver took for contexts and modules, as measured; not counted against capacity
  Bytes host;     // host memory taken for swap
  // The part of `resident` that is in `pinned` too, while leave is asked to keep it there for good. Of a
  // Usage that asks, it is granted as pinned, and no longer swappable.
  Bytes settling = {};
  // The most that the session's limits of host memory can ever hold of the swappable memory of all processes
  // that they bind; zero: no limit.
  Bytes host_limit = {};
  constexpr Bytes footprint() const { return minus(swappable + pinned, settling); }
};

// The bytes that a session has copied between the GPU and the host, since the connection that reports them
// began. Memory that did not have to be copied (it had not changed, or one word describes it) does not count.
struct Traffic {
  Bytes evicted;
  Bytes restored;
  constexpr auto operator<=>(const Traffic&) const = default;
};
constexpr Traffic operator+(Traffic a, Traffic b) {
  return {.evicted = a.evicted + b.evicted, .restored = a.restored + b.restored};
}
// The excess of `a` over `b`.
constexpr Traffic minus(Traffic a, Traffic b) {
  return {.evicted = minus(a.evicted, b.evicted), .restored = minus(a.restored, b.restored)};
}

// Tells the books; asks leave to grow where `request` is not zero (the growth is already in `use`, and
// `resident` is what is there before the growth).
struct Usage {
  static constexpr MessageType kType = MessageType::usage;
  std::uint64_t request = 0;
  MemoryUse use;
  std::uint8_t stuck = 0;     // an Evict could not be obeyed in full: no host room, or the context is lost
  Bytes job_host_limit = {};  // as use.host_limit, of all steps of the job together
  Traffic moved = {};
};

// To memory that settles, asked for while a turn ends, the answer comes within this: the turn may be unable
// to end before. A session that waits for much longer takes the arbiter for gone.
inline constexpr Nanoseconds kSettlePatience = std::chrono::seconds(10);

// Answers a Usage that asked. Refused: this footprint can never be resident here, or nobody can make room for
// it while turns end; the session takes it back and returns CUDA_ERROR_OUT_OF_MEMORY. Granted: `allowed` is
// what may be resident now. To a session that holds a lease, and has not said Released since its gate was
// closed, the answer comes when the room is there. To others it may be less than the growth needs; the new
// memory then comes with the next Restore.
struct Verdict {
  static constexpr MessageType kType = MessageType::verdict;
  std::uint64_t request = 0;
  std::uint8_t granted = 0;
  Bytes allowed;
  // Refused since the host memory that the session shares with others of its tenant can never hold more than
  // this of what they evict; zero: for want of device memory.
  Bytes host_most = {};
};

// A thread waits at the closed gate; or what was evicted is in the way of the job's own use of its host
// memory, and has to come back before the kernel ends the job for that.
struct Want {
  static constexpr MessageType kType = MessageType::want;
  std::uint8_t host_short = 0;
};

// While the page says contended: nothing was submitted, and the GPU has had nothing of ours to do, for
// `idle`, part of which may have been before it said so.
struct Idle {
  static constexpr MessageType kType = MessageType::idle;
  Epoch epoch;
  Nanoseconds idle{};
};

// The numbers of deadlines that the program has met and missed since its last report, see
// docs/design/scheduling.md. Since version 7: an earlier arbiter gets none.
struct Deadlines {
  static constexpr MessageType kType = MessageType::deadlines;
  static constexpr std::uint16_t kSince = 7;
  std::uint64_t met = 0;
  std::uint64_t missed = 0;
};

// The session's next submission would not end within its turn, which others wait for: the turn may end at
// once. Since version 8; the page of an earlier arbiter has no end of turns, and so no session has a reason
// to say it.
struct GiveBack {
  static constexpr MessageType kType = MessageType::give_back;
  static constexpr std::uint16_t kSince = 8;
  Epoch epoch;
};

// Bring back memory until all is resident or `allowed` is reached; then, when all is, say Ready. Sent again
// with the same epoch and a larger `allowed` as room is freed.
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

// The gate is closed: drain and say Released. Any thread that passed the gate in time is waited for.
struct Revoke {
  static constexpr MessageType kType = MessageType::revoke;
  Epoch epoch;
  std::uint64_t order = 0;  // the number of this order: no two, of whichever arbiter, have the same
};

// To a session that has said Released, while others of its tenant still drain, perhaps because they wait on
// the GPU for what it has not submitted yet: the lease goes on. Bring back what is missing of the memory, let
// each thread that waits submit once, drain and say Released again.
struct Step {
  static constexpr MessageType kType = MessageType::step;
  Epoch epoch;
  Bytes allowed;
  std::uint64_t order = 0;  // as Revoke's
};

// The page says contended from now on: the session is to look whether it is idle, and not only when it would
// have looked next.
struct OthersWait {
  static constexpr MessageType kType = MessageType::others_wait;
};

// The process is about to be ended, and why: its user reads that on its standard error. SIGTERM follows a
// moment later. A session of an earlier version ignores this message.
struct Cancelled {
  static constexpr MessageType kType = MessageType::cancelled;
  static constexpr std::uint16_t kSince = 9;
  char reason[160] = {};  // NUL-terminated
};

// No submission is under way and the GPU has finished what the session gave it.
struct Released {
  static constexpr MessageType kType = MessageType::released;
  Epoch epoch;
  std::uint64_t order = 0;  // the Revoke or Step that this answers: the last one counts
  std::uint8_t wants = 0;   // threads wait at the gate already
  Nanoseconds overuse{};    // from Revoke to here
  MemoryUse use;
  Nanoseconds submission{};  // how long the GPU is at one of its submissions, smoothed; zero: not known
};

// Evict until `allowed` is resident, least recently used first; tell with Usage as handles go, at least every
// 256 MiB, and once at the end. What cannot be evicted (no host room) stays: then the last Usage says so by a
// `resident` above `allowed` and `stuck`.
struct Evict {
  static constexpr MessageType kType = MessageType::evict;
  Bytes allowed;
};

// The most host memory that evictions of this session are expected to need at once, so that it is there
// before them; zero: none, what is held unused may go back. Sent again when it changes by more than a little.
// It comes before the first Evict, with the number of the tenant's sessions, all of which take from the
// memory of one job, some perhaps at the same time.
struct Prepare {
  static constexpr MessageType kType = MessageType::prepare;
  Bytes host;
  std::uint32_t sharers = 1;
};

// For cuMemGetInfo.
struct MemoryQuery {
  static constexpr MessageType kType = MessageType::memory_query;
  std::uint64_t request = 0;
};
struct MemoryView {
  static constexpr MessageType kType = MessageType::memory_view;
  std::uint64_t request = 0;
  Bytes total;
  Bytes free;  // what this tenant may still allocate
};

// Sessions of one tenant lend each other device memory (cuIpcGetMemHandle). The arbiter connects the two and
// takes no part in what follows: it answers Borrow with Lent and sends Wanted to the lender, each with one
// end of a socket pair. The lender sends Lend with the memory's descriptor through its end. One descriptor a
// message, one piece of an allocation a descriptor. An arbiter before version 9 sends no pair: Lend goes to
// it, and it passes outcome, pieces, size and descriptor on in Lent.
struct LoanName {
  std::uint64_t lender = 0;  // as its Attach said
  std::uint64_t loan = 0;    // random
  constexpr auto operator<=>(const LoanName&) const = default;
};

// Instead of a piece: a file in which borrowers lock the loans that they hold, so that the lender can see it.
inline constexpr std::uint32_t kLien = ~std::uint32_t{0};

enum class LoanOutcome : std::uint8_t {
  given,    // the descriptor comes along
  unknown,  // nobody of this tenant lends it
  later,    // the arbiter has begun anew, and the lender may not have come back yet
  failed,   // the lender could not export it
  asked,    // the lender answers through the descriptor that comes along
};

struct Borrow {
  static constexpr MessageType kType = MessageType::borrow;
  std::uint64_t request = 0;
  LoanName name;
  std::uint32_t piece = 0;
};
// To the lender, which answers with Lend.
struct Wanted {
  static constexpr MessageType kType = MessageType::wanted;
  std::uint64_t ticket = 0;  // before version 9: to be repeated in Lend
  LoanName name;
  std::uint32_t piece = 0;
};
struct Lend {
  static constexpr MessageType kType = MessageType::lend;
  std::uint64_t ticket = 0;
  LoanOutcome outcome = LoanOutcome::failed;
  std::uint32_t pieces = 0;  // that the allocation has
  Bytes size;                // of this one
};
// Answers Borrow.
struct Lent {
  static constexpr MessageType kType = MessageType::lent;
  static constexpr std::uint16_t kPaired = 9;  // since when the arbiter connects borrower and lender
  std::uint64_t request = 0;
  LoanOutcome outcome = LoanOutcome::failed;
  std::uint32_t pieces = 0;
  Bytes size;
};

// Answered by StatusReply, with the descriptor of a file that holds the JSON text, to be read at once: the
// arbiter empties it when it has given some more answers. Whoever finds less than `size` bytes asks again.
struct StatusQuery {
  static constexpr MessageType kType = MessageType::status_query;
};
struct StatusReply {
  static constexpr MessageType kType = MessageType::status_reply;
  std::uint64_t size = 0;  // bytes of text
};

// From an administrator: other settings for the arbiter until it ends, as lines of sharedgpu.conf: of the
// node, or of the GPUs of a section.
struct SetLines {
  static constexpr MessageType kType = MessageType::set_lines;
  char text[240] = {};  // NUL-terminated
};
struct SetReply {
  static constexpr MessageType kType = MessageType::set_reply;
  std::uint8_t done = 0;  // 0: the sender may not
};

// From an administrator: no more tenants are to come to these GPUs, or they may again. It lasts until it is
// taken back, over restarts of the arbiter and the host. Since version 10.
struct DrainGpus {
  static constexpr MessageType kType = MessageType::drain_gpus;
  static constexpr std::uint16_t kSince = 10;
  std::uint8_t drained = 0;
  char gpus[119] = {};    // as in a section of sharedgpu.conf: "0", "1,4-7" or UUIDs; NUL-terminated
  char reason[100] = {};  // NUL-terminated
};
struct DrainReply {
  static constexpr MessageType kType = MessageType::drain_reply;
  static constexpr std::uint16_t kSince = 10;
  std::uint8_t done = 0;  // 0: the sender may not
};

inline constexpr std::int32_t kHighestPriority = 1000;  // and the lowest, below zero

// The options that a job may state; zero: it did not.
struct JobOptions {
  static constexpr std::uint32_t kMostUnits = 1'000'000;  // of a job on one node
  Bytes memory;                                           // cap on the footprint (--sharedgpu-memory)
  std::uint32_t units = 0;                                // sharedgpu units held; 0 counts as 1
  std::uint32_t share_request = 0;                        // percent of GPU time
  std::uint32_t share_limit = 0;
  std::int32_t priority = 0;  // the higher one goes first
  Nanoseconds deadline{};
  Backend backend = Backend::swap;
  std::uint8_t backend_given = 0;
  std::uint32_t gpus = 0;  // that it spans on each node; 0 counts as 1
};

// The partition and the QOS into which Slurm has put a job, and the number of its run; empty: not known, or
// there is none. NUL-terminated.
struct JobClass {
  static constexpr std::size_t kLongest = 63;
  char partition[kLongest + 1] = {};
  char qos[kLongest + 1] = {};
  std::uint64_t restarts = 0;
  bool operator==(const JobClass&) const = default;
};

// GPUs by the minor numbers of their device files, those below 64.
struct DeviceSet {
  std::uint64_t bits = 0;
  constexpr bool empty() const { return bits == 0; }
  constexpr unsigned count() const { return static_cast<unsigned>(std::popcount(bits)); }
  constexpr bool has(unsigned minor) const { return minor < 64 && (bits >> minor & 1) != 0; }
};

// The GPUs that a tenant is placed on: those that its processes are to see, in this order. None: the arbiter
// has no say in it.
struct GpuList {
  static constexpr std::uint32_t kMost = 12;
  std::uint32_t count = 0;
  std::uint32_t known = 0;  // so many does the arbiter hand out in all to those who open what the asker does
  GpuUuid gpu[kMost];
};

// Without Slurm: makes a tenant of the command that `sharedgpu run` is about to start. The tenant lives as
// long as this connection or a session of it does.
struct RunRequest {
  static constexpr MessageType kType = MessageType::run_request;
  JobOptions options;
  std::uint8_t chosen = 0;  // the user named the GPUs himself: it is not placed
  DeviceSet devices = {};   // that it can open; empty: it is not known
  // From root or SlurmUser only: for a batch system that has counted the units. The tenant is that of `uid`.
  std::uint8_t vouched = 0;
  std::uint32_t uid = 0;
};
struct RunReply {
  static constexpr MessageType kType = MessageType::run_reply;
  RunToken token;  // for SHAREDGPU_TOKEN
  TenantId tenant;
  GpuList gpus = {};
  // Percent of a GPU's threads that its processes may use, by MPS (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE); zero:
  // they run without.
  std::uint32_t threads = 0;
  std::uint32_t unused = 0;
};
// GCC 12's __builtin_clear_padding clears other bytes than the last ones where padding ends a body as large.
static_assert(std::has_unique_object_representations_v<RunReply>);

// A Slurm step by its numbers; the step's as slurm_step_id_t has it, see
// step_names.h.
struct StepName {
  std::uint32_t job = 0;
  std::uint32_t step = 0;
  constexpr auto operator<=>(const StepName&) const = default;
};

// From slurmstepd, as root or SlurmUser only: the job's units and options. The first one places the job, for
// as long as a process that said this or a session of the job lives.
struct RegisterJob {
  static constexpr MessageType kType = MessageType::register_job;
  StepName step;
  std::uint32_t uid = 0;
  JobOptions options;
  DeviceSet devices = {};  // that its units stand for and it can open; empty: it is not known
  DeviceSet whole = {};    // GPUs that the step holds beside them, not shared
  JobClass job_class = {};
  std::uint8_t gang = 0;  // the arbiter has accepted a RegisterGang just before
};
struct RegisterReply {
  static constexpr MessageType kType = MessageType::register_reply;
  std::uint8_t accepted = 0;
  GpuList gpus = {};
  // So many of them, the first, are those it holds whole; none where the list has no room for all and a
  // shared one, or the arbiter does not know all.
  std::uint32_t whole = 0;
  std::uint32_t threads = 0;  // as RunReply's
};

// From slurmstepd, as root or SlurmUser only, before RegisterJob: the job has several nodes, and the arbiter
// of its first node coordinates its turns. Since version 11.
struct RegisterGang {
  static constexpr MessageType kType = MessageType::register_gang;
  static constexpr std::uint16_t kSince = 11;
  static constexpr std::size_t kLongest = 199;
  std::uint32_t job = 0;
  std::uint32_t uid = 0;
  std::uint32_t nodes = 0;              // so many does it have
  char coordinator[kLongest + 1] = {};  // the name of the job's first node, as Slurm has it; NUL-terminated
};
struct RegisterGangReply {
  static constexpr MessageType kType = MessageType::register_gang_reply;
  static constexpr std::uint16_t kSince = 11;
  std::uint8_t accepted = 0;
};

// From slurmstepd, as root or SlurmUser only: Slurm stops the job's processes in a moment, or lets them go
// on. The job leaves the GPU meanwhile, as far as it comes.
struct SuspendJob {
  static constexpr MessageType kType = MessageType::suspend_job;
  StepName step;
  std::uint8_t suspended = 0;
};
struct SuspendReply {
  static constexpr MessageType kType = MessageType::suspend_reply;
  std::uint8_t accepted = 0;
};

// From slurmd's epilog, as root or SlurmUser only: the job's run is over here. What comes under its number
// from now on is another one.
struct EndJob {
  static constexpr MessageType kType = MessageType::end_job;
  std::uint32_t job = 0;
};
struct EndJobReply {
  static constexpr MessageType kType = MessageType::end_job_reply;
  std::uint8_t accepted = 0;
};

// The totals of one step on this node so far, all GPUs and finished sessions included. Root, SlurmUser or the
// job's own user.
struct LeaseQuery {
  static constexpr MessageType kType = MessageType::lease_query;
  StepName step;
};
struct LeaseReply {
  static constexpr MessageType kType = MessageType::lease_reply;
  StepName step;
  Nanoseconds lease{};
  std::uint8_t known = 0;  // 0: no session of this step ever came
  Traffic moved = {};      // between the GPUs and the host
  Nanoseconds waited{};    // for a lease
};

// The totals of a job on this node so far, all its steps, GPUs and finished sessions included. Root,
// SlurmUser or the job's own user.
struct JobQuery {
  static constexpr MessageType kType = MessageType::job_query;
  std::uint32_t job = 0;
};
struct JobReply {
  static constexpr MessageType kType = MessageType::job_reply;
  std::uint32_t job = 0;
  std::uint8_t known = 0;  // 0: nothing of this job was ever here
  std::uint8_t lives = 0;  // a process of it does, or it is not known yet whether its last one died of a loss
  std::uint8_t backends = 0;  // a bit for each Backend that its sessions had
  Nanoseconds lease{};        // steps that hold the job's lease side by side count once
  Nanoseconds waited{};
  Nanoseconds overuse{};
  std::uint64_t handoffs = 0;
  Traffic moved = {};
  Bytes footprint = {};      // the highest
  Bytes resident = {};       // the same
  char models[128] = {};     // of the GPUs that it held, each once, by ';'; NUL-terminated
  std::uint32_t losses = 0;  // so many GPUs were lost under this run of it
};

// The GPUs that were lost under this run of a job, one by one. Root, SlurmUser or the job's own user.
struct GpuLossQuery {
  static constexpr MessageType kType = MessageType::gpu_loss_query;
  static constexpr std::uint16_t kSince = 11;
  std::uint32_t job = 0;
  std::uint32_t place = 0;  // from 0 on
};
struct GpuLossReply {
  static constexpr MessageType kType = MessageType::gpu_loss_reply;
  static constexpr std::uint16_t kSince = 11;
  std::uint32_t job = 0;
  std::uint8_t known = 0;  // 0: there is none at this place
  GpuUuid gpu;
  char fault[64] = {};  // why it was lost; NUL-terminated
};

// For what NVML tells, by a process that need not have a session: a GPU as the asker's tenant sees it. Who
// asks is known as for Hello; a process of no tenant sees what it would have to itself.
struct GpuQuery {
  static constexpr MessageType kType = MessageType::gpu_query;
  RunToken token;
  GpuUuid gpu;
  std::uint32_t first = 0;  // of the processes, the first to tell of: more may run than one reply holds
};
struct GpuReply {
  static constexpr MessageType kType = MessageType::gpu_reply;
  static constexpr std::uint32_t kProcesses = 13;
  struct Process {
    std::uint32_t pid = 0;
    Bytes used;  // its footprint
  };
  std::uint8_t known = 0;       // 0: not a GPU that the arbiter hands out to this tenant
  std::uint32_t processes = 0;  // of the tenant on this GPU, those that are not told of included
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
    __builtin_clear_padding(&clean);  // else it would tell the peer what lay on our stack
#endif
    std::memcpy(message.body, &clean, sizeof clean);
    return message;
  }

  // The body, which must be of this message's type.
  template <class Body>
  Body as() const {
    Body result;
    std::memcpy(&result, body, sizeof result);
    return result;
  }
};
static_assert(sizeof(Message) == 256);

}  // namespace sharedgpu
