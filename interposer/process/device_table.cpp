// SPDX-License-Identifier: Apache-2.0
#include "interposer/process/device_table.h"

#include <cstring>
#include <utility>

#include "interposer/session/log.h"

namespace sharedgpu {

using session::DeviceSession;
using session::Handshake;
using session::TurnParts;

bool DeviceTable::begin(Handshake& hands, const TurnParts& parts) {
  DeviceSession* first = make(parts);
  first->listen_to(settings_.deadlines);
  return first->begin(hands, settings_.outcome_if_unmanaged());
}

DeviceSession* DeviceTable::make(const TurnParts& parts) {
  std::lock_guard lock(mutex_);
  auto* made = new DeviceSession(settings_, parts, {made_});
  sessions_[made_++].store(made, std::memory_order_release);
  return made;
}

void DeviceTable::attach(CUdevice device) {
  if (device < 0 || device >= static_cast<CUdevice>(kMost)) return;
  Device& mine = devices_[static_cast<std::size_t>(device)];
  Attachment expected = Attachment::none;
  if (mine.attachment.compare_exchange_strong(expected, Attachment::under_way, std::memory_order_acq_rel)) {
    DeviceSession* session = next_session(device);
    if (session != nullptr) session->attach(device);
    publish(device, session);
    return;
  }
  changed_.wait_until([&] { return mine.attachment.load(std::memory_order_acquire) == Attachment::done; });
}

// Returns the session that cuInit has opened for the first device, and a new session for every other device;
// null if the arbiter grants no session, or the new session cannot begin.
DeviceSession* DeviceTable::next_session(CUdevice device) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(first_is_free_, false)) return sessions_[0].load(std::memory_order_relaxed);
  }
  Hello hello;
  hello.token = settings_.token;
  hello.gpu = session::describe(device).gpu;
  Handshake hands = session::shake_hands(settings_.socket, hello, settings_.arbiter_timeout);
  if (hands.result != Handshake::Result::welcome) {
    say("GPU %d is not managed, because the arbiter %s (%s); this process uses the GPU with plain CUDA",
        static_cast<int>(device), hands.result == Handshake::Result::refused ? "refused" : "does not answer",
        hands.result == Handshake::Result::refused ? hands.reason : std::strerror(hands.error));
    return nullptr;
  }
  DeviceSession* session = make(parts_);
  return session->begin(hands, "this process uses the GPU with plain CUDA") ? session : nullptr;
}

void DeviceTable::publish(CUdevice device, DeviceSession* session) {
  Device& mine = devices_[static_cast<std::size_t>(device)];
  if (session != nullptr && session->memory() != nullptr) {
    std::lock_guard lock(mutex_);
    const unsigned count = count_.load(std::memory_order_relaxed);
    memories_[count] = session->memory();
    attached_[count] = device;
    count_.store(count + 1, std::memory_order_release);
    mine.session.store(session, std::memory_order_release);
  }
  mine.attachment.store(Attachment::done, std::memory_order_release);
  changed_.raise();
}

DeviceSession* DeviceTable::session(CUdevice device) const {
  const auto index = static_cast<std::size_t>(device);
  return index < kMost ? devices_[index].session.load(std::memory_order_acquire) : nullptr;
}

Memory* DeviceTable::memory(CUdevice device) const {
  const DeviceSession* mine = session(device);
  return mine != nullptr ? mine->memory() : nullptr;
}

std::optional<Place> DeviceTable::find(CUdeviceptr address) const {
  const auto all = memories();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (auto range = all[i]->find(address)) return Place{all[i], attached_[i], *range};
  return std::nullopt;
}

}  // namespace sharedgpu
