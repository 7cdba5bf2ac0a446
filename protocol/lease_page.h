// SPDX-License-Identifier: Apache-2.0
// The lease page: 4 KiB of shared memory per session that the arbiter writes and the session only reads.
//
// The arbiter creates the page as a memfd, and keeps the only writable mapping. It seals the memfd (no
// resize, no later writable mapping), and passes its descriptor with Welcome. Each submission to the GPU
// reads `gate`. The arbiter closes the gate by one store, without any message. See docs/design/gate.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocol/units.h"

namespace sharedgpu {

struct LeasePage {
  static constexpr std::size_t kSize = 4096;
  static constexpr std::uint32_t kMagic = 0x53475031;  // "SGP1"

  std::uint32_t magic = kMagic;
  std::uint32_t version = 1;
  // Odd: open. Even: closed. The value changes at every opening and closing, so a thread can wait with
  // futex() until the value differs from the value that it has read. The futex is shared between processes,
  // because the arbiter wakes the threads of the session. Written by the arbiter only.
  alignas(64) std::atomic<std::uint32_t> gate{0};
  // Nonzero while the tenants of this GPU's domain do not all fit on their GPUs together, or while a limit on
  // the share of one of them is enforced. Each session then limits the backlog of its streams. This field is
  // next to the gate because each submission reads both fields.
  std::atomic<std::uint32_t> oversubscribed{0};
  // The backlog limit in microseconds of GPU time; zero means the default of about 20 ms. Always zero if the
  // arbiter's version lacks this field.
  std::atomic<std::uint32_t> queue_us{0};
  // Nonzero while a tenant of this GPU's domain waits for its turn: each session then checks more often
  // whether it is idle.
  alignas(64) std::atomic<std::uint32_t> contended{0};
  // The end of the turn, in nanoseconds of CLOCK_BOOTTIME; zero: the turn has no fixed end. Nonzero only if
  // the session can yield the tenant's turn: the policy lets no other tenant run beside this one, other
  // tenants wait, the tenant has only this session, and it is not in a gang. Always zero if the arbiter's
  // version lacks this field.
  std::atomic<std::int64_t> turn_ends{0};

  static constexpr bool is_open(std::uint32_t gate_value) { return (gate_value & 1u) != 0; }
};
static_assert(sizeof(LeasePage) <= LeasePage::kSize);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// The arbiter's side: owns the memfd and the writable mapping. Not thread-safe.
class LeasePageWriter {
 public:
  LeasePageWriter() = default;
  ~LeasePageWriter();
  LeasePageWriter(const LeasePageWriter&) = delete;
  LeasePageWriter& operator=(const LeasePageWriter&) = delete;
  LeasePageWriter(LeasePageWriter&& other) noexcept;
  LeasePageWriter& operator=(LeasePageWriter&& other) noexcept;

  // Creates the page with a closed gate. Returns 0 or an errno value.
  int create();
  // Creates the page in `memory`, an empty memfd that allows sealing. Takes ownership of the memfd, and
  // closes it on failure.
  int create(int memory);
  // The descriptor to pass to the session, which this object owns; -1 before create().
  int fd() const { return fd_; }
  // Opens or closes the gate; opening wakes the waiters. Idempotent.
  void set_open(bool open);
  void set_contended(bool contended);
  // `queue` is the backlog limit in GPU time, at most about an hour; zero means the default. The limit
  // applies while `oversubscribed` is true.
  void set_oversubscribed(bool oversubscribed, Nanoseconds queue = {});
  void set_turn_ends(Nanoseconds at);
  bool is_open() const;

 private:
  int fd_ = -1;
  LeasePage* page_ = nullptr;
};

// The session's side: maps the page of `fd` read-only at `address`, or anywhere if `address` is null.
// `address` must be page-aligned; an existing mapping there is replaced atomically. Checks size, seals, magic
// and version. Returns null and sets errno on failure. Does not take ownership of `fd`.
const LeasePage* map_lease_page(int fd, void* address);

// Wakes the threads of this process that sleep in wait_gate().
void wake_gate(const LeasePage& page);

// Sleeps until the gate's value differs from `seen`, or `timeout` has passed. May return early.
void wait_gate(const LeasePage& page, std::uint32_t seen, Nanoseconds timeout);

}  // namespace sharedgpu
