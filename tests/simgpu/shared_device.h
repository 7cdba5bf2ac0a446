// SPDX-License-Identifier: Apache-2.0
// The device that all processes with the same SIMGPU_STATE share: its memory limit and its engines.
//
// The state is a mapped file. Each process owns one record of the state. The used memory is the sum over the
// records of living processes and over the shared pieces, so the memory of a killed process is free at the
// next allocation or query. A living process is recognized by its lock on the file, since its pid means
// nothing in another PID namespace. All members may be called from any thread.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/units.h"
#include "tests/simgpu/settings.h"

namespace sharedgpu::simgpu {

// CLOCK_MONOTONIC, which all processes of a host share.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Nanoseconds>;
TimePoint now();
void sleep_until(TimePoint end);

enum class Engine { compute, host_to_device, device_to_host };
inline constexpr int kEngines = 3;

struct ProcessUse {
  pid_t pid = 0;  // the pid in the process's own PID namespace
  Bytes memory;   // includes managed memory on the device
  Bytes contexts;
};

// The state of the device for its processes.
enum class Presence : std::uint32_t {
  present,
  lost,      // the device no longer answers
  absent,    // the device is missing from the host
  unusable,  // the device answers NVML, and needs a reset
};

// An error that the device reports through NVML.
struct Report {
  std::uint64_t type = 0;  // nvmlEventType...
  std::uint64_t data = 0;  // the number of an Xid
};

struct DeviceView {
  Bytes total;
  Bytes used;
  Bytes peak;  // maximum of used bytes since the last reset_peak()
  std::uint64_t kernels = 0;
  Bytes copied_in;
  Bytes copied_out;
  Bytes paged;  // managed memory that page faults moved to the device, or that left it to make room
  std::vector<ProcessUse> processes;
};

// Physical memory that several processes may hold: its file and offset.
struct SharedPiece {
  std::uint64_t file = 0;
  std::uint64_t offset = 0;
  bool operator==(const SharedPiece&) const = default;
};

class SharedDevice {
 public:
  // Opens the state, or creates it. If no living process uses the state, the device gets the size `memory`.
  // If `memory` is null, the function only opens an existing state. On failure returns null and sets
  // `problem`. The object is never deleted.
  static SharedDevice* open(const std::string& path, const Bytes* memory, std::string& problem);

  Bytes total() const;
  // Allocates memory for this process. Returns false if the device has too little memory left.
  bool charge(Bytes memory, Bytes contexts = {});
  void give_back(Bytes memory, Bytes contexts = {});

  // Allocates as much of `size` as fits for this process's managed memory, and returns the number of bytes.
  // Any allocation on the device may make managed pages leave, first those of the process whose last access
  // is the oldest.
  Bytes take_managed(Bytes size);
  void drop_managed(Bytes size);
  // The managed memory of this process that is still on the device. touch_managed() also records an access.
  Bytes managed();
  Bytes touch_managed();
  void count_paged(Bytes size);

  // Turns memory of this process into a piece that other processes may hold, too. The piece is charged once
  // for all holders. Returns false if there are too many pieces.
  bool share(const SharedPiece& piece, Bytes size);
  // Adds a reference of this process to the piece. If no other process has a reference any more, the piece is
  // charged again; returns false if the device has too little memory left for it, or if there are too many
  // pieces.
  bool hold(const SharedPiece& piece, Bytes size);
  // Returns true if any process holds the piece.
  bool is_held(const SharedPiece& piece);
  // Removes one of this process's references to the piece. Returns true if no process holds the piece any
  // more.
  bool let_go(const SharedPiece& piece);

  // Waits until `engine` is free, and then occupies it for `duration`. Returns the time at which the
  // occupation began, without waiting for its end.
  TimePoint occupy(Engine engine, Nanoseconds duration);
  void count_kernel();
  void count_copy(Engine engine, Bytes size);

  Presence presence() const;
  // If the device becomes lost or absent, the processes that use it lose it for good, and their memory on it
  // is free.
  void set_presence(Presence presence);
  std::uint64_t generation() const;  // raised with each loss of the device
  void report(const Report& report);
  std::uint64_t reports() const;  // the number of reports so far
  // The report with this number. The first report has number 0; only the newest reports are kept.
  Report report_at(std::uint64_t number) const;
  std::uint64_t ecc_errors() const;  // ECC errors since the device was last lost

  struct Meters {
    TimePoint created;  // when the state was created
    Nanoseconds busy;   // how long the compute engine has worked since then
  };
  Meters meters();
  DeviceView view();
  void reset_peak();

 private:
  struct State;
  struct Shared;
  class Lock;
  class Census;
  struct Process {
    std::int64_t pid = 0;
    std::uint64_t number = 0;  // counts from 1 the processes that have used this state
    bool operator==(const Process&) const = default;
  };
  SharedDevice(State* state, std::string path, std::uint64_t inode)
      : state_(state), path_(std::move(path)), inode_(inode) {}
  bool register_self();  // call this with the lock held
  void reap();           // call this with the lock held
  Bytes used() const;
  bool make_room(Bytes size);  // call this with the lock held
  std::size_t own_record();    // call this with the lock held
  Shared* find(const SharedPiece& piece, Bytes size);
  void add_holder(Shared& shared);

  State* state_;
  const std::string path_;
  const std::uint64_t inode_;
  Process self_;  // number 0: this process only reads the state
};

}  // namespace sharedgpu::simgpu
