// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/device_session.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"
#include "interposer/gate/closing.h"
#include "interposer/gate/gate.h"
#include "interposer/memory/driver_device.h"
#include "interposer/oversize/active.h"
#include "interposer/session/backend.h"
#include "interposer/session/log.h"
#include "interposer/session/refusal_text.h"
#include "protocol/ask.h"
#include "protocol/own_thread.h"

namespace sharedgpu::session {

using gate::now;

namespace {

using namespace std::chrono_literals;

// The time for which a refused allocation waits for the reason from the arbiter. The wait is short, because
// only a line on stderr depends on the reason.
constexpr Nanoseconds kExplanationPatience = std::chrono::seconds(1);
constexpr Nanoseconds kPatience = 100ms;        // time between two checks for a lost arbiter
constexpr Nanoseconds kExporterPatience = 10s;  // the longest wait for a piece; an exporting process that
                                                // takes longer is probably stopped
constexpr unsigned kSaidOption = 1, kSaidGpu = 2;
// The most exchanges that make_room() tries. Work that does not end, or the end of a turn, may prevent an
// exchange.
constexpr unsigned kMostExchanges = 8;

// The memory that the driver takes for a context cannot be measured while other processes start and end. So
// this is an estimate: the size seen on large GPUs, or a sixty-fourth of a small GPU.
Bytes context_estimate(Bytes total) { return std::min(Bytes{total.count / 64}, mebibytes(512)); }

// Receives the exporter's answer through a socket pair, which closes when the exporter ends.
shared_memory::Imports::Answer hear_exporter(Channel exporter, Nanoseconds deadline) {
  Message message;
  UniqueFd descriptor;
  if (exporter.wait(deadline - now()) != 0) return {};
  if (exporter.receive(message, descriptor) != 0 || message.type != MessageType::lend)
    return {.outcome = LoanOutcome::unknown, .pieces = 0, .size = {}, .descriptor = {}};
  const auto lend = message.as<Lend>();
  return {lend.outcome, lend.pieces, lend.size, static_cast<UniqueFd&&>(descriptor)};
}

}  // namespace

Attach describe(CUdevice device) {
  Attach attach;
  CUuuid uuid = {};
  if (SHAREDGPU_REAL(cuDeviceGetUuid_v2, &uuid, device) != CUDA_SUCCESS)
    SHAREDGPU_REAL(cuDeviceGetUuid, &uuid, device);
  std::memcpy(attach.gpu.bytes, uuid.bytes, sizeof attach.gpu.bytes);
  std::size_t total = 0;
  SHAREDGPU_REAL(cuDeviceTotalMem_v2, &total, device);
  attach.total = {total};
  SHAREDGPU_REAL(cuDeviceGetName, attach.name, static_cast<int>(sizeof attach.name) - 1, device);
  return attach;
}

// --- Beginning ---

bool DeviceSession::begin(Handshake& hands, const char* otherwise) {
  keep_stderr();
  link_.adopt(hands);
  if (int error = outbox_.doorbell().open()) return give_up("make a pipe", error, otherwise);
  if (int error = launch_threads()) return give_up("start a thread", error, otherwise);
  debug("session %llu of tenant %llu", static_cast<unsigned long long>(hands.welcome.session.value),
        static_cast<unsigned long long>(hands.welcome.tenant.value));
  return true;
}

bool DeviceSession::give_up(const char* action, int error, const char* otherwise) {
  say("cannot %s (%s); %s", action, std::strerror(error), otherwise);
  link_.leave();
  gate::open_for_good(slot_);
  return false;
}

// Returns 0 or an errno value.
int DeviceSession::launch_threads() {
  for (auto* run : {run_turns, run_service}) {
    pthread_t thread;
    if (int error = start_own_thread(&thread, run, this)) return error;
    pthread_detach(thread);
  }
  return 0;
}

void* DeviceSession::run_service(void* session) {
  prctl(PR_SET_NAME, "sharedgpu-talk");
  static_cast<DeviceSession*>(session)->link_.run();
  return nullptr;
}

void* DeviceSession::run_turns(void* session) {
  prctl(PR_SET_NAME, "sharedgpu-turns");  // 15 bytes at most
  // In relaxed mode, this thread's synchronization does not invalidate a capture of another thread.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  SHAREDGPU_REAL(cuThreadExchangeStreamCaptureMode, &mode);
  gate::prepare_to_close();
  static_cast<DeviceSession*>(session)->turns_.run();
  return nullptr;
}

void DeviceSession::attach(CUdevice device) {
  Attach attach = describe(device);
  attach.lender = exports_.number();
  const MadeMemory made = make_memory(link_.backend(), device, *this, contexts_);
  copier_ = made.device;
  device_ = device;
  usual_context_ = context_estimate(attach.total);
  if (made.memory != nullptr) made.memory->set_context_size(usual_context_);
  memory_.store(made.memory, std::memory_order_release);
  turns_.set_memory(made.memory);
  link_.set_gpu(attach, made.memory);
  Request request(MessageType::attach);
  bool answered = ask(request, settings_.arbiter_timeout);
  const Attached attached =
      answered ? request.answer.as<Attached>() : Attached{.gpu = {}, .capacity = attach.total};
  capacity_ = attached.capacity;
  outbox_.usage(false);  // this report also contains the host memory limit
  debug("attached to %s, capacity %llu MiB", attach.name,
        static_cast<unsigned long long>(capacity_.count >> 20));
}

// Called whenever a window opens. Several threads may call it at the same time. Like the memory object, the
// Residence is never freed.
void DeviceSession::went_oversized() {
  if (residence() != nullptr) return;
  auto* fresh = new Residence(*memory()->away_memory(), totals_);
  Residence* expected = nullptr;
  if (!residence_.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) {
    delete fresh;
    return;
  }
  oversize::activate();
  say("this program needs more memory than the GPU can give it; the rest is in host memory, so the program "
      "may run much slower");
}

// Inside the gate, and during a capture, a thread must not wait for the turn thread.
bool DeviceSession::make_room() {
  const AwayMemory& away = *memory()->away_memory();
  for (unsigned exchanges = 0; exchanges < kMostExchanges; ++exchanges) {
    const Bytes excess = away.excess();
    if (excess == Bytes{}) return true;
    if (gate::inside() || gate::capturing()) return false;
    { gate::Pass in_our_turn; }
    const std::vector<CUdeviceptr> out = residence()->leavers(excess);
    if (out.empty()) return false;
    exchange(out, {});
  }
  return away.excess() == Bytes{};
}

// Only one thread at a time reads the contexts and acts on them, so the last thread acts on the newest state.
void DeviceSession::follow() {
  const std::lock_guard lock(following_);
  if (copier_ != nullptr) copier_->use_context(contexts_.any(device_));
  if (Memory* mine = memory()) mine->set_context_size(contexts_.size(device_, usual_context_));
}

void DeviceSession::set_peer(CUdevice peer, bool allowed) {
  if (copier_ == nullptr) return;  // with the native backend, the driver itself gives peers access
  copier_->set_peer(peer, allowed);
  if (allowed) memory()->renew_access();
}

// --- Requests ---

bool DeviceSession::arbiter_gone(Nanoseconds patience) const {
  Nanoseconds since = link_.lost_since();
  return since != Nanoseconds(0) && now() - since >= patience;
}

bool DeviceSession::settles() const {
  const Memory* mine = memory();
  return mine != nullptr && mine->use().settling != Bytes{};
}

// Sends the request and waits for the answer, which the arbiter may delay for a long time. Returns false if
// there has been no connection to the arbiter for `patience`, if the arbiter hangs, if `deadline` has passed,
// or if a drain may be waiting for this thread.
bool DeviceSession::ask(Request& request, Nanoseconds patience, Nanoseconds deadline) {
  requests_.add(request);
  outbox_.poke();
  bool answered = false;
  bool pinged = false;
  std::uint64_t words = link_.words();
  // The arbiter's silence is the sum of waits of at most kPatience each. So a time in which this process was
  // stopped counts for at most kPatience.
  for (Nanoseconds silence{}, waited{};;) {
    std::uint32_t seen = request.done.seen();
    answered = requests_.answered(request);
    if (answered || arbiter_gone(patience) || link_.silent() || now() >= deadline) break;
    // The drain may be waiting for this thread, so this thread stops waiting after some time, even if the
    // arbiter answers other threads.
    const Nanoseconds patient = answer_patience(settings_.arbiter_timeout);
    if (waited >= kSettlePatience + patient && settles() && gate::held() && !gate::is_open()) break;
    if (link_.words() != words) {
      words = link_.words();
      pinged = false;
      silence = {};
    }
    const bool arbiters = request.question != MessageType::borrow;  // for a borrow, another session answers
    if (arbiters && silence >= patient) {
      if (pinged)
        link_.note_silence();
      else
        outbox_.ping();
      pinged = true;
      silence = {};
    }
    Nanoseconds before = now();
    request.done.wait(seen, kPatience);
    const Nanoseconds passed = std::min(now() - before, kPatience);
    silence += passed;
    waited += passed;
  }
  requests_.remove(request);
  return answered;
}

Books::Answer DeviceSession::grow() {
  Request request(MessageType::usage);
  if (ask(request, settings_.arbiter_timeout)) {
    const auto verdict = request.answer.as<Verdict>();
    return {.granted = verdict.granted != 0, .host_most = verdict.host_most};
  }
  // Without an arbiter the growth is granted, and only the driver's own limit remains. While the lease is
  // held, all memory must be resident, so the resident limit grows, too. If the arbiter only hangs, it will
  // decide about the withdrawn request later. So the session also sends a claim, which states the session's
  // memory.
  Memory* mine = memory();
  if (mine != nullptr && gate::held()) mine->set_allowed(std::max(mine->allowed(), mine->use().swappable));
  outbox_.claim();
  return {.granted = true, .lost = true};
}

// Tells the user about a refused allocation, once for each kind of limit; `said` has a bit for each kind.
// Programs retry refused allocations, so the arbiter is not asked any more when both bits are set.
void DeviceSession::refused(const Refusal& refusal) {
  static constinit std::atomic<unsigned> said{0};  // shared by all GPUs
  if (said.load(std::memory_order_relaxed) == (kSaidOption | kSaidGpu)) return;
  RefusalReply why;
  Request request(MessageType::refusal_query);
  request.refusal = {.request = 0, .size = refusal.size, .pinned = refusal.pinned};
  if (ask(request, Nanoseconds(0), now() + kExplanationPatience)) why = request.answer.as<RefusalReply>();
  // Without an answer from the arbiter, the limit is known, but not the value that would suffice. If the
  // program wants more than the whole GPU, no message is needed, because unmanaged CUDA would refuse the
  // allocation, too.
  const bool fits = memory()->use().footprint() + refusal.size <= capacity_;
  if (why.bound == Bound::none && refusal.host_most != Bytes{} && fits)
    why = {.bound = Bound::job, .most = refusal.host_most};
  if (why.bound == Bound::none) return;
  const unsigned kind = why.bound == Bound::gpu ? kSaidGpu : kSaidOption;
  const bool again = (said.fetch_or(kind, std::memory_order_relaxed) & kind) != 0;
  if (!again && why.told == 0) say("%s", describe(why, refusal.host_used, settings_.batch).text);
}

shared_memory::Imports::Answer DeviceSession::import_piece(LoanName name, std::uint32_t piece) {
  const Nanoseconds deadline = now() + kExporterPatience;
  for (;;) {
    Request request(MessageType::borrow);
    request.borrow = {.request = 0, .name = name, .piece = piece};
    if (!ask(request, settings_.arbiter_timeout, deadline)) return {};
    const auto lent = request.answer.as<Lent>();
    if (lent.outcome == LoanOutcome::asked)
      return hear_exporter(Channel(static_cast<UniqueFd&&>(request.descriptor)), deadline);
    if (lent.outcome != LoanOutcome::later)
      return {lent.outcome, lent.pieces, lent.size, static_cast<UniqueFd&&>(request.descriptor)};
    gate::nap(20ms);
  }
}

// The arbiter does not know how much of the job's host memory the program itself uses now. So this function
// limits `free` to growth for which there is host memory, if growth would need host memory.
MemoryView DeviceSession::view() {
  MemoryView view = ask_view();
  Memory* const mine = memory();
  if (mine == nullptr) return view;
  const bool needs_host = view.away != Bytes{} || residence() != nullptr;
  if (needs_host && mine->away_memory() != nullptr)
    view.free = std::min(view.free, mine->away_memory()->growth(minus(view.free, view.away), now()));
  view.free = std::min(view.total, view.free + mine->due());
  return view;
}

MemoryView DeviceSession::ask_view() {
  Request request(MessageType::memory_query);
  if (ask(request, Nanoseconds(0))) return request.answer.as<MemoryView>();
  return {.request = 0, .total = capacity_, .free = minus(capacity_, memory()->use().footprint())};
}

}  // namespace sharedgpu::session
