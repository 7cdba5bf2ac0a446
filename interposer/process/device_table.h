// SPDX-License-Identifier: Apache-2.0
// The GPUs that the process uses, with the session and the memory of each. Thread-safe.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <span>

#include "interposer/gate/wakeup.h"
#include "interposer/memory/memory.h"
#include "interposer/session/device_session.h"
#include "interposer/session/handshake.h"
#include "interposer/session/settings.h"

namespace sharedgpu {

// An allocation of the interposer, with its memory object and its device.
struct Place {
  Memory* memory = nullptr;
  CUdevice device = 0;
  AddressRange range;
};

class DeviceTable {
 public:
  static constexpr unsigned kMost = gate::PageSlot::kCount;

  // `parts` is passed to every session except the first. The parts and the settings must outlive the table.
  DeviceTable(const session::Settings& settings, const session::TurnParts& parts)
      : settings_(settings), parts_(parts) {}

  // Begins the first session, on a connection on which the arbiter has sent Welcome. cuInit opens this
  // session, which has no GPU yet. On failure logs the reason and returns false.
  bool begin(session::Handshake& hands, const session::TurnParts& parts);
  // Called when the process is about to use `device`: gives the device the first session if this session has
  // no device yet, otherwise a new session. If the arbiter grants no session, or `device` is not below kMost,
  // the device stays unmanaged. Called after begin().
  void attach(CUdevice device);

  // The session of an attached device; null if the device is not attached, or unmanaged.
  session::DeviceSession* session(CUdevice device) const;
  // The memory of an attached device; null if the device is not attached, or unmanaged.
  Memory* memory(CUdevice device) const;
  // attached() returns all attached devices, and memories() their memory objects, both in the order of
  // attachment.
  std::span<Memory* const> memories() const {
    return {memories_.data(), count_.load(std::memory_order_acquire)};
  }
  std::span<const CUdevice> attached() const {
    return {attached_.data(), count_.load(std::memory_order_acquire)};
  }
  // The interposer's allocation that contains `address`, on any device; nullopt if there is none.
  std::optional<Place> find(CUdeviceptr address) const;

  // The first session; null before begin().
  session::DeviceSession* first() const { return sessions_[0].load(std::memory_order_acquire); }
  // Calls `action` with each session, including sessions without a GPU.
  template <class Action>
  void for_each_session(Action action) const {
    for (const auto& session : sessions_)
      if (session::DeviceSession* each = session.load(std::memory_order_acquire)) action(*each);
  }

 private:
  enum class Attachment : std::uint32_t { none, under_way, done };
  struct Device {
    std::atomic<Attachment> attachment{Attachment::none};
    std::atomic<session::DeviceSession*> session{nullptr};
  };

  session::DeviceSession* make(const session::TurnParts& parts);
  session::DeviceSession* next_session(CUdevice device);
  void publish(CUdevice device, session::DeviceSession* session);

  const session::Settings& settings_;
  const session::TurnParts& parts_;
  gate::Wakeup changed_;  // wakes threads that wait for a change of an attachment
  std::array<Device, kMost> devices_;

  std::mutex mutex_;  // held by a thread that writes the members below
  std::array<std::atomic<session::DeviceSession*>, kMost> sessions_{};
  unsigned made_ = 0;
  bool first_is_free_ = true;
  std::array<Memory*, kMost> memories_{};
  std::array<CUdevice, kMost> attached_{};
  std::atomic<unsigned> count_{0};  // number of entries in memories_ and attached_
};

}  // namespace sharedgpu
