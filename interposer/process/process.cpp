// SPDX-License-Identifier: Apache-2.0
#include "interposer/process/process.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "interposer/driver/call.h"
#include "interposer/gate/gate.h"
#include "interposer/oversize/active.h"
#include "interposer/session/handshake.h"
#include "interposer/session/log.h"

namespace sharedgpu {

using session::DeviceSession;
using session::Handshake;
using session::shake_hands;
using session::TurnParts;
using shared_memory::Imports;
using tracking::Contexts;

namespace {

constinit std::atomic<Process*> instance{nullptr};
constinit std::atomic<bool> watching_forks{false};

}  // namespace

Process* Process::get() {
  Process* const found = instance.load(std::memory_order_acquire);
  if (found == nullptr) return nullptr;
  const State state = found->state();
  return state == State::managed || state == State::starting ? found : nullptr;
}

Process& Process::only() {
  Process* found = instance.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto* made = new Process;
  if (instance.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

// The child of a fork has none of the interposer's threads, and must not use the parent's connections or
// locks. So the child forgets the parent's sessions with all their memory. The parent's CUDA contexts do not
// work in the child either.
void Process::in_child() {
  gate::after_fork();
  oversize::after_fork();
  Process* const parents = instance.exchange(nullptr, std::memory_order_acq_rel);
  if (parents == nullptr) return;
  parents->captures_.after_fork();
  parents->devices_.for_each_session([](DeviceSession& session) { session.exports().after_fork(); });
}

CUresult Process::start(const Parts& parts) { return only().start_or_wait(parts); }

CUresult Process::start_or_wait(const Parts& parts) {
  State expected = State::unused;
  if (state_.compare_exchange_strong(expected, State::starting, std::memory_order_acq_rel)) {
    state_.store(connect(parts), std::memory_order_release);
    changed_.raise();
  }
  changed_.wait_until([this] { return state() != State::starting; });
  return state() == State::failed ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

Process::State Process::connect(const Parts& parts) {
  settings_ = session::read_settings([](const char* name) -> const char* { return std::getenv(name); },
                                     [](const char* name, const char* value, const char* expected) {
                                       say("%s='%s' is not %s; ignored", name, value, expected);
                                     });
  // Registers the fork handler before the first wait, since a child that is forked during a wait must not
  // start with the state of its parent.
  if (!watching_forks.exchange(true)) pthread_atfork(nullptr, nullptr, in_child);
  Hello hello;
  hello.token = settings_.token;
  Handshake hands = shake_hands(settings_.socket, hello, settings_.arbiter_timeout);
  const State unmanaged = settings_.fail_without_arbiter ? State::failed : State::plain;
  if (hands.result != Handshake::Result::welcome) {
    const char* outcome = settings_.outcome_if_unmanaged();
    if (hands.result == Handshake::Result::refused)
      say("refused by the arbiter (%s); %s", hands.reason, outcome);
    else
      say("no arbiter at %s (%s); %s", settings_.socket, std::strerror(hands.error), outcome);
    return unmanaged;
  }
  gate::arm(*this);
  const TurnParts first{drain_, contexts_, {&imports_, &parts.maintenance}, &parts.submissions};
  return devices_.begin(hands, first) ? State::managed : unmanaged;
}

// The process has one gate for all its GPUs, so every session reports the wait.
void Process::on_wait() {
  devices_.for_each_session([](DeviceSession& session) { session.want(); });
}

bool Process::all_resident() {
  return std::ranges::all_of(devices_.memories(), [](const Memory* memory) {
    const MemoryUse use = memory->use();
    return use.resident >= use.swappable;
  });
}

void Process::give_turn_back() {
  devices_.for_each_session([](DeviceSession& session) { session.give_turn_back(); });
}

// --- Devices ---

void Process::attach(CUdevice device) {
  if (state() == State::managed) devices_.attach(device);
}

void Process::attach_only_device() {
  int count = 0;
  CUdevice device = 0;
  if (!devices_.memories().empty()) return;
  if (SHAREDGPU_REAL(cuDeviceGetCount, &count) != CUDA_SUCCESS || count != 1) return;
  if (SHAREDGPU_REAL(cuDeviceGet, &device, 0) == CUDA_SUCCESS) attach(device);
}

// --- Contexts ---

void Process::follow(CUdevice device) const {
  if (DeviceSession* mine = devices_.session(device)) mine->follow();
}

void Process::context_added(CUcontext context, CUdevice device, bool primary) {
  contexts_.add(context, device, primary);
  attach(device);
  follow(device);
}

void Process::context_extra(CUcontext context, CUlimit limit, Bytes extra) {
  CUdevice device = 0;
  contexts_.set_extra(context, limit, extra);
  if (contexts_.device(context, &device)) follow(device);
}

Contexts::Removed Process::context_going(CUcontext context, CUdevice device) {
  Contexts::Removed removed = contexts_.remove(context);
  follow(device);
  return removed;
}

void Process::context_stays(Contexts::Removed context, CUdevice device) {
  contexts_.put_back(std::move(context));
  follow(device);
}

// --- Memory of other processes ---

// All sessions of the process belong to one tenant, so any session can request the memory.
Imports::Answer Process::ask(LoanName name, std::uint32_t piece) {
  DeviceSession* first = devices_.first();
  return state() == State::managed && first != nullptr ? first->import_piece(name, piece) : Imports::Answer{};
}

bool Process::export_memory(Pinning& memory, CUdeviceptr base, LoanName& name) {
  bool exported = false;
  devices_.for_each_session([&](DeviceSession& each) {
    if (each.memory() == &memory) exported = each.exports().add(memory, base, name);
  });
  return exported;
}

bool Process::is_exporter_of(const LoanName& name) const {
  bool found = false;
  devices_.for_each_session([&](DeviceSession& each) { found |= each.exports().number() == name.lender; });
  return found;
}

// --- Queries ---

namespace process {

std::span<Memory* const> memories() {
  const Process* mine = Process::get();
  return mine != nullptr ? mine->devices().memories() : std::span<Memory* const>{};
}

std::span<const CUdevice> devices() {
  const Process* mine = Process::get();
  return mine != nullptr ? mine->devices().attached() : std::span<const CUdevice>{};
}

DeviceSession* session_of(CUdevice device) {
  const Process* mine = Process::get();
  return mine != nullptr ? mine->devices().session(device) : nullptr;
}

Memory* memory_of(CUdevice device) {
  const Process* mine = Process::get();
  return mine != nullptr ? mine->devices().memory(device) : nullptr;
}

DeviceSession* current_session() {
  const Process* mine = Process::get();
  CUdevice device = 0;
  if (mine == nullptr || mine->devices().memories().empty() ||
      SHAREDGPU_REAL(cuCtxGetDevice, &device) != CUDA_SUCCESS)
    return nullptr;
  return mine->devices().session(device);
}

Memory* current_memory() {
  const DeviceSession* mine = current_session();
  return mine != nullptr ? mine->memory() : nullptr;
}

std::optional<Place> find(CUdeviceptr address) {
  const Process* mine = Process::get();
  return mine != nullptr ? mine->devices().find(address) : std::nullopt;
}

}  // namespace process
}  // namespace sharedgpu
