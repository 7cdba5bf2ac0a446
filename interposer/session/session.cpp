// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/session.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "interposer/driver/call.h"
#include "interposer/gate/closing.h"
#include "interposer/gate/gate.h"
#include "interposer/session/device_session.h"
#include "interposer/session/log.h"

namespace sharedgpu::session {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kPatience = 100ms;  // between looks at what another thread is at

enum class State : std::uint32_t { unused, starting, plain, failed, managed };
enum class Attachment : std::uint32_t { none, under_way, done };

// All of this process's sessions.
class Sessions final : public gate::GateListener {
 public:
  CUresult start();
  void attach(CUdevice device);
  bool is_managed() const { return state_.load(std::memory_order_acquire) == State::managed; }
  bool nothing_attached() const { return memory_count_.load(std::memory_order_acquire) == 0; }
  // The session of an attached device that is shared out; null: none.
  DeviceSession* of(CUdevice device) const;
  std::span<Memory* const> memories() const {
    return {memories_.data(), memory_count_.load(std::memory_order_acquire)};
  }
  Contexts& contexts() { return contexts_; }
  Captures& captures() { return captures_; }
  Borrowing& borrowing() { return borrowing_; }
  // The session whose memory it is; null: none.
  DeviceSession* of(const Memory& memory) const;
  bool is_lender(std::uint64_t number) const;
  void after_fork();
  std::span<const CUdevice> devices() const {
    return {attached_.data(), memory_count_.load(std::memory_order_acquire)};
  }
  // From the turn thread of one session.
  void tend_also(void (*also)()) {
    if (DeviceSession* first = all_[0].load(std::memory_order_acquire)) first->set_also_tend(also);
  }
  void measure_by(Nanoseconds (*submission)()) {
    if (DeviceSession* first = all_[0].load(std::memory_order_acquire)) first->measure_by(submission);
  }
  void on_wait() override;
  bool all_resident() override;
  void give_turn_back();

 private:
  struct Device {
    std::atomic<Attachment> attachment{Attachment::none};
    std::atomic<DeviceSession*> session{nullptr};
  };

  State connect();
  static Borrowing::Answer ask_lender(LoanName name, std::uint32_t piece);
  DeviceSession* make();
  DeviceSession* next_session(CUdevice device);
  void publish(CUdevice device, DeviceSession* session);

  std::atomic<State> state_{State::unused};
  Wakeup changed_;  // state_ or an attachment

  Settings settings_;
  Contexts contexts_;
  Captures captures_;
  Borrowing borrowing_{ask_lender};
  ContextDrain drain_{contexts_};
  std::array<Device, kMostDevices> devices_;

  std::mutex mutex_;  // of those who write what follows
  std::array<std::atomic<DeviceSession*>, kMostDevices> all_{};
  unsigned made_ = 0;
  bool first_is_free_ = true;  // cuInit's session has no GPU yet
  std::array<Memory*, kMostDevices> memories_{};
  std::array<CUdevice, kMostDevices> attached_{};
  std::atomic<unsigned> memory_count_{0};
};

// Made at the first use and never destroyed.
constinit std::atomic<Sessions*> existing{nullptr};

Sessions& the() {
  Sessions* found = existing.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto* made = new Sessions;
  if (existing.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

// The child has none of our threads, and must not use the parent's connections or locks: the parent's
// sessions are forgotten, memory and all. The driver does not work in the child either.
void in_child() {
  gate::after_fork();
  if (Sessions* parents = existing.load(std::memory_order_acquire)) parents->after_fork();
  existing.store(nullptr, std::memory_order_release);
}

CUresult Sessions::start() {
  State expected = State::unused;
  if (state_.compare_exchange_strong(expected, State::starting, std::memory_order_acq_rel)) {
    state_.store(connect(), std::memory_order_release);
    changed_.raise();
  }
  for (;;) {
    std::uint32_t seen = changed_.seen();
    State state = state_.load(std::memory_order_acquire);
    if (state == State::failed) return CUDA_ERROR_SYSTEM_NOT_READY;
    if (state != State::starting) return CUDA_SUCCESS;
    changed_.wait(seen, kPatience);
  }
}

State Sessions::connect() {
  settings_ = read_settings([](const char* name) -> const char* { return std::getenv(name); },
                            [](const char* name, const char* value, const char* expected) {
                              say("%s='%s' is not %s; ignored", name, value, expected);
                            });
  // Before anything is waited for: a child that is forked meanwhile must begin anew.
  static constinit std::atomic<bool> watching_forks{false};
  if (!watching_forks.exchange(true)) pthread_atfork(nullptr, nullptr, in_child);
  Hello hello;
  hello.token = settings_.token;
  Handshake hands = shake_hands(settings_.socket, hello, settings_.arbiter_timeout);
  if (hands.result != Handshake::Result::welcome) {
    const bool fail = settings_.fail_without_arbiter;
    const char* outcome = fail ? "cuInit fails, as OnNoArbiter=fail wants" : "running as plain CUDA";
    if (hands.result == Handshake::Result::refused)
      say("refused by the arbiter (%s); %s", hands.reason, outcome);
    else
      say("no arbiter at %s (%s); %s", settings_.socket, std::strerror(hands.error), outcome);
    return fail ? State::failed : State::plain;
  }
  gate::arm(*this);
  DeviceSession* first = make();
  first->listen_to(settings_.deadlines);
  return first->begin(hands) ? State::managed : State::plain;
}

DeviceSession* Sessions::make() {
  std::lock_guard lock(mutex_);
  auto* made = new DeviceSession(settings_, drain_, {made_});
  all_[made_++].store(made, std::memory_order_release);
  return made;
}

// The gate is that of all GPUs of the process.
void Sessions::on_wait() {
  for (const auto& session : all_)
    if (DeviceSession* each = session.load(std::memory_order_acquire)) each->want();
}

bool Sessions::all_resident() {
  return std::ranges::all_of(memories(), [](const Memory* memory) {
    const MemoryUse use = memory->use();
    return use.resident >= use.swappable;
  });
}

void Sessions::give_turn_back() {
  for (const auto& session : all_)
    if (DeviceSession* each = session.load(std::memory_order_acquire)) each->give_turn_back();
}

// --- Attaching ---

void Sessions::attach(CUdevice device) {
  if (!is_managed() || device < 0 || device >= static_cast<CUdevice>(kMostDevices)) return;
  Device& mine = devices_[static_cast<std::size_t>(device)];
  Attachment expected = Attachment::none;
  if (mine.attachment.compare_exchange_strong(expected, Attachment::under_way, std::memory_order_acq_rel)) {
    DeviceSession* session = next_session(device);
    if (session != nullptr) session->attach(device);
    publish(device, session);
    return;
  }
  for (;;) {
    std::uint32_t seen = changed_.seen();
    if (mine.attachment.load(std::memory_order_acquire) == Attachment::done) return;
    changed_.wait(seen, kPatience);
  }
}

// The first device gets the session that cuInit opened, each other one a new one; null: there is none to be
// had.
DeviceSession* Sessions::next_session(CUdevice device) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(first_is_free_, false)) return all_[0].load(std::memory_order_relaxed);
  }
  Hello hello;
  hello.token = settings_.token;
  hello.gpu = describe(device).gpu;
  Handshake hands = shake_hands(settings_.socket, hello, settings_.arbiter_timeout);
  if (hands.result != Handshake::Result::welcome) {
    say("GPU %d is not shared out, since the arbiter %s (%s); it is plain CUDA's", static_cast<int>(device),
        hands.result == Handshake::Result::refused ? "refused" : "does not answer",
        hands.result == Handshake::Result::refused ? hands.reason : std::strerror(hands.error));
    return nullptr;
  }
  DeviceSession* session = make();
  return session->begin(hands) ? session : nullptr;
}

void Sessions::publish(CUdevice device, DeviceSession* session) {
  Device& mine = devices_[static_cast<std::size_t>(device)];
  if (session != nullptr && session->memory() != nullptr) {
    std::lock_guard lock(mutex_);
    unsigned count = memory_count_.load(std::memory_order_relaxed);
    memories_[count] = session->memory();
    attached_[count] = device;
    memory_count_.store(count + 1, std::memory_order_release);
    mine.session.store(session, std::memory_order_release);
  }
  mine.attachment.store(Attachment::done, std::memory_order_release);
  changed_.raise();
}

// All sessions of the process are of one tenant: any of them may ask.
Borrowing::Answer Sessions::ask_lender(LoanName name, std::uint32_t piece) {
  DeviceSession* first = the().all_[0].load(std::memory_order_acquire);
  return the().is_managed() && first != nullptr ? first->borrow(name, piece) : Borrowing::Answer{};
}

DeviceSession* Sessions::of(const Memory& memory) const {
  for (const auto& session : all_)
    if (DeviceSession* each = session.load(std::memory_order_acquire); each && each->memory() == &memory)
      return each;
  return nullptr;
}

bool Sessions::is_lender(std::uint64_t number) const {
  for (const auto& session : all_)
    if (DeviceSession* each = session.load(std::memory_order_acquire);
        each && each->lending().number() == number)
      return true;
  return false;
}

void Sessions::after_fork() {
  for (const auto& session : all_)
    if (DeviceSession* each = session.load(std::memory_order_acquire)) each->lending().after_fork();
}

DeviceSession* Sessions::of(CUdevice device) const {
  auto index = static_cast<std::size_t>(device);
  return index < kMostDevices ? devices_[index].session.load(std::memory_order_acquire) : nullptr;
}

// Null before cuInit, and where nothing is shared out.
DeviceSession* session_of(CUdevice device) {
  Sessions* sessions = existing.load(std::memory_order_acquire);
  return sessions != nullptr ? sessions->of(device) : nullptr;
}

}  // namespace

CUresult start() { return the().start(); }

void attach(CUdevice device) { the().attach(device); }

void attach_only_device() {
  int count = 0;
  CUdevice device = 0;
  if (!the().is_managed() || !the().nothing_attached()) return;
  if (SHAREDGPU_REAL(cuDeviceGetCount, &count) != CUDA_SUCCESS || count != 1) return;
  if (SHAREDGPU_REAL(cuDeviceGet, &device, 0) == CUDA_SUCCESS) attach(device);
}

Memory* memory_of(CUdevice device) {
  DeviceSession* session = session_of(device);
  return session != nullptr ? session->memory() : nullptr;
}

std::span<Memory* const> memories() {
  Sessions* sessions = existing.load(std::memory_order_acquire);
  return sessions != nullptr ? sessions->memories() : std::span<Memory* const>{};
}

std::span<const CUdevice> devices() {
  Sessions* sessions = existing.load(std::memory_order_acquire);
  return sessions != nullptr ? sessions->devices() : std::span<const CUdevice>{};
}

std::optional<Place> find(CUdeviceptr address) {
  const auto all = memories();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (auto range = all[i]->find(address)) return Place{all[i], devices()[i], *range};
  return std::nullopt;
}

void set_peer_access(CUdevice device, CUdevice owner, bool allowed) {
  if (DeviceSession* session = session_of(owner)) session->set_peer(device, allowed);
}

Memory* current_memory() {
  CUdevice device = 0;
  if (memories().empty() || SHAREDGPU_REAL(cuCtxGetDevice, &device) != CUDA_SUCCESS) return nullptr;
  return memory_of(device);
}

std::optional<Bytes> capacity(CUdevice device) {
  DeviceSession* session = session_of(device);
  if (session == nullptr) return std::nullopt;
  return session->capacity();
}

Bytes usual_context(CUdevice device) {
  DeviceSession* session = session_of(device);
  return session != nullptr ? session->usual_context() : Bytes{};
}

std::optional<MemoryView> memory_view(CUdevice device) {
  DeviceSession* session = session_of(device);
  if (session == nullptr) return std::nullopt;
  MemoryView view = session->view();
  if (const Memory* memory = session->memory()) view.free = std::min(view.total, view.free + memory->due());
  return view;
}

void measure_by(Nanoseconds (*submission)()) { the().measure_by(submission); }
void give_turn_back() { the().give_turn_back(); }

void tend_also(void (*also)()) { the().tend_also(also); }

bool lend(Memory& memory, CUdeviceptr base, LoanName& name) {
  DeviceSession* session = the().of(memory);
  return session != nullptr && session->lending().lend(memory, base, name);
}

bool is_lender_of(const LoanName& name) { return the().is_lender(name.lender); }

Borrowing& borrowing() { return the().borrowing(); }

Contexts& contexts() { return the().contexts(); }
Captures& captures() { return the().captures(); }

// A per-thread default stream can be asked by its thread alone: taken for busy as long as that lives.
bool idle() { return !gate::activity().own_streams && contexts().idle(); }

void context_added(CUcontext context, CUdevice device, bool primary) {
  contexts().add(context, device, primary);
  attach(device);
  if (DeviceSession* session = session_of(device)) session->follow(contexts());
}

void context_extra(CUcontext context, CUlimit limit, Bytes extra) {
  CUdevice device = 0;
  contexts().set_extra(context, limit, extra);
  if (!contexts().device(context, &device)) return;
  if (DeviceSession* session = session_of(device)) session->follow(contexts());
}

Contexts::Removed context_going(CUcontext context, CUdevice device) {
  Contexts::Removed removed = contexts().remove(context);
  if (DeviceSession* session = session_of(device)) session->follow(contexts());
  return removed;
}

void context_stays(Contexts::Removed context, CUdevice device) {
  contexts().put_back(std::move(context));
  if (DeviceSession* session = session_of(device)) session->follow(contexts());
}

void context_gone(CUcontext context) { captures().drop(context); }

}  // namespace sharedgpu::session
