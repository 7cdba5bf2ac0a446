// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/shared_device.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "protocol/channel.h"
#include "tests/simgpu/errors.h"

namespace sharedgpu::simgpu {
namespace {

constexpr std::uint32_t kMagic = 0x53494d39;  // raised with each change of the layout
constexpr std::size_t kProcesses = 512;
constexpr std::size_t kPieces = 1024;
constexpr std::size_t kHolders = 16;  // most holders of a piece
constexpr std::size_t kReports = 16;
constexpr std::uint64_t kDoubleBitError = 2;  // nvmlEventTypeDoubleBitEccError
// The interval at which a process that waits for an engine checks whether the engine's owner still runs.
constexpr Nanoseconds kPatience{5'000'000};

// The position of the first lock. Each living process holds a lock on one byte beyond the end of the file.
constexpr off_t kLocks = off_t{1} << 40;

struct flock lock_of(short type, std::uint64_t number) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kLocks + static_cast<off_t>(number);
  lock.l_len = 1;
  return lock;
}

}  // namespace

TimePoint now() { return std::chrono::time_point_cast<Nanoseconds>(std::chrono::steady_clock::now()); }

void sleep_until(TimePoint end) {
  auto count = end.time_since_epoch().count();
  timespec time = {.tv_sec = static_cast<time_t>(count / 1'000'000'000),
                   .tv_nsec = static_cast<long>(count % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

// Finds the processes that use the state now, by their locks on its file.
class SharedDevice::Census {
 public:
  // Throws if no descriptor is left. If the file cannot be opened for another reason, all processes count as
  // living.
  explicit Census(const SharedDevice& device) : file_(::open(device.path_.c_str(), O_RDWR | O_CLOEXEC)) {
    require(static_cast<bool>(file_) || (errno != EMFILE && errno != ENFILE), CUDA_ERROR_OPERATING_SYSTEM);
    struct stat info = {};
    // If this process has another root folder, or the file was replaced, the path leads to another file.
    if (file_ && (fstat(file_.get(), &info) != 0 || info.st_ino != device.inode_)) file_.reset();
  }
  bool is_dead(const Process& process) const {
    struct flock lock = lock_of(F_WRLCK, process.number);
    return file_ && fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }

 private:
  UniqueFd file_;
};

struct SharedDevice::Shared {
  struct Holder {
    Process process;
    std::uint64_t times;
  };
  SharedPiece piece;
  Bytes size;  // 0: free
  Holder holders[kHolders];
};

struct SharedDevice::State {
  struct Record {
    Process process = {};  // free if the process's number is 0
    Bytes memory = {};
    Bytes contexts = {};
    Bytes managed = {};
    TimePoint touched = {};        // last access to the process's managed memory
    std::uint64_t generation = 0;  // generation of the device that this process uses
  };
  struct EngineState {
    Process owner;
    TimePoint end{};
  };

  std::uint32_t magic;
  pthread_mutex_t mutex;
  std::uint64_t processes;  // number of processes that have ever used this state
  Bytes total;
  Bytes peak;
  std::uint64_t kernels;
  Bytes copied_in;
  Bytes copied_out;
  Bytes paged;
  TimePoint created;
  Nanoseconds busy;  // working time of the compute engine, including the whole of its current work
  std::atomic<Presence> presence;
  std::atomic<std::uint64_t> generation;
  std::atomic<std::uint64_t> ecc_errors;
  std::atomic<std::uint64_t> reported;
  Report reports[kReports];
  EngineState engines[kEngines];
  Record records[kProcesses];
  Shared shared[kPieces];
};

class SharedDevice::Lock {
 public:
  explicit Lock(State* state) : state_(state) {
    // The fields do not depend on each other, and used() always computes its sum anew. So nothing needs
    // repair if a process dies while it holds the lock.
    if (pthread_mutex_lock(&state_->mutex) == EOWNERDEAD) pthread_mutex_consistent(&state_->mutex);
  }
  ~Lock() { pthread_mutex_unlock(&state_->mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  State* state_;
};

SharedDevice* SharedDevice::open(const std::string& path, const Bytes* memory, std::string& problem) {
  auto fail = [&](const char* what) {
    problem = path + ": " + what + ": " + std::strerror(errno);
    return nullptr;
  };
  // First tries without O_CREAT, since a sticky folder refuses O_CREAT on a file of another user
  // (fs.protected_regular).
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file && errno == ENOENT && memory != nullptr) {
    file.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file) fchmod(file.get(), 0666);
  }
  if (!file) return fail("cannot open the state of the simulated GPU");
  while (flock(file.get(), LOCK_EX) != 0)
    if (errno != EINTR) return fail("cannot lock");
  // `unlock` is needed because the mapping keeps the file open, and with it the lock, after the descriptor is
  // closed.
  struct Unlock {
    int fd;
    ~Unlock() { flock(fd, LOCK_UN); }
  } unlock{file.get()};
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return fail("cannot stat");
  bool fresh = info.st_size == 0;
  if (!fresh && info.st_size != static_cast<off_t>(sizeof(State))) {
    problem = path + ": is not the state of a simulated GPU";
    return nullptr;
  }
  if (fresh && memory == nullptr) {
    problem = path + ": is empty";
    return nullptr;
  }
  if (fresh && ftruncate(file.get(), sizeof(State)) != 0) return fail("cannot grow");
  void* address = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return fail("cannot map");
  auto* state = static_cast<State*>(address);
  if (state->magic == 0) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&state->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    state->created = now();
    state->magic = kMagic;
  } else if (state->magic != kMagic) {
    munmap(address, sizeof(State));
    problem = path + ": is not the state of a simulated GPU";
    return nullptr;
  }
  auto* device = new SharedDevice(state, path, info.st_ino);
  if (memory != nullptr) {
    Lock lock(state);
    device->reap();
    bool idle = std::none_of(std::begin(state->records), std::end(state->records),
                             [](const auto& record) { return record.process.number != 0; });
    if (idle)
      state->total = *memory;
    else if (state->total != *memory)
      std::fprintf(stderr, "simgpu: %s: in use with %llu bytes of memory; SIMGPU_MEMORY is ignored\n",
                   path.c_str(), static_cast<unsigned long long>(state->total.count));
    if (!device->register_self()) return fail("cannot lock");
    device->own_record();
  }
  flock(file.get(), LOCK_UN);
  return device;
}

// The mapping keeps the file open, and the open file keeps the lock. So the lock lasts until this process
// ends or executes another program, even if the process closes its descriptors.
bool SharedDevice::register_self() {
  const Process own{getpid(), ++state_->processes};
  UniqueFd file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock = lock_of(F_WRLCK, own.number);
  if (!file || fcntl(file.get(), F_OFD_SETLK, &lock) != 0) return false;
  void* mapped = mmap(nullptr, 1, PROT_NONE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return false;
  madvise(mapped, 1, MADV_DONTFORK);
  self_ = own;
  return true;
}

void SharedDevice::reap() {
  const Census census(*this);
  for (auto& record : state_->records)
    if (record.process.number != 0 && census.is_dead(record.process)) record = {};
  for (Shared& shared : state_->shared) {
    if (shared.size.count == 0) continue;
    for (auto& holder : shared.holders)
      if (holder.times != 0 && census.is_dead(holder.process)) holder = {};
    if (std::none_of(std::begin(shared.holders), std::end(shared.holders),
                     [](const auto& holder) { return holder.times != 0; }))
      shared = {};
  }
}

Bytes SharedDevice::used() const {
  Bytes sum;
  for (const auto& record : state_->records)
    if (record.generation == state_->generation) sum += record.memory + record.contexts + record.managed;
  for (const Shared& shared : state_->shared) sum += shared.size;
  return sum;
}

// Returns the record of the piece, or a free record for it; null if none is free. Call this with the lock
// held.
SharedDevice::Shared* SharedDevice::find(const SharedPiece& piece, Bytes size) {
  Shared* vacant = nullptr;
  for (Shared& shared : state_->shared) {
    if (shared.size.count != 0 && shared.piece == piece) return &shared;
    if (shared.size.count == 0 && vacant == nullptr) vacant = &shared;
  }
  if (vacant == nullptr || size.count == 0) return nullptr;
  *vacant = {piece, size, {}};
  return vacant;
}

void SharedDevice::add_holder(Shared& shared) {
  Shared::Holder* place = nullptr;
  for (auto& holder : shared.holders) {
    if (holder.times != 0 && holder.process == self_) {
      ++holder.times;
      return;
    }
    if (holder.times == 0 && place == nullptr) place = &holder;
  }
  require(place != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
  *place = {self_, 1};
}

bool SharedDevice::share(const SharedPiece& piece, Bytes size) {
  Lock lock(state_);
  Shared* shared = find(piece, size);
  if (shared == nullptr) return false;
  add_holder(*shared);
  state_->records[own_record()].memory -= size;
  return true;
}

bool SharedDevice::hold(const SharedPiece& piece, Bytes size) {
  Lock lock(state_);
  reap();
  Shared* shared = find(piece, Bytes{});
  if (shared == nullptr) {
    if (used() + size > state_->total) return false;
    shared = find(piece, size);
    if (shared == nullptr) return false;
  }
  add_holder(*shared);
  return true;
}

bool SharedDevice::is_held(const SharedPiece& piece) {
  Lock lock(state_);
  reap();
  return find(piece, Bytes{}) != nullptr;
}

bool SharedDevice::let_go(const SharedPiece& piece) {
  Lock lock(state_);
  Shared* shared = find(piece, Bytes{});
  if (shared == nullptr) return true;
  for (auto& holder : shared->holders)
    if (holder.times != 0 && holder.process == self_ && --holder.times == 0) holder = {};
  reap();
  return shared->size.count == 0;
}

std::size_t SharedDevice::own_record() {
  std::size_t vacant = kProcesses;
  for (std::size_t i = 0; i < kProcesses; ++i) {
    if (state_->records[i].process == self_) return i;
    if (vacant == kProcesses && state_->records[i].process.number == 0) vacant = i;
  }
  require(vacant < kProcesses, CUDA_ERROR_OUT_OF_MEMORY);
  state_->records[vacant] = {.process = self_, .generation = state_->generation};
  return vacant;
}

Bytes SharedDevice::total() const { return state_->total; }

bool SharedDevice::charge(Bytes memory, Bytes contexts) {
  Lock lock(state_);
  reap();
  if (!make_room(memory + contexts)) return false;
  auto& record = state_->records[own_record()];
  record.memory += memory;
  record.contexts += contexts;
  state_->peak = std::max(state_->peak, used());
  return true;
}

// Moves managed memory out until `size` bytes are free. If even all managed memory would not suffice, moves
// nothing and returns false.
bool SharedDevice::make_room(Bytes size) {
  Bytes managed;
  for (const auto& record : state_->records) managed += record.managed;
  if (used() - managed + size > state_->total) return false;
  while (used() + size > state_->total) {
    State::Record* victim = nullptr;
    for (auto& record : state_->records)
      if (record.managed != Bytes{} && (victim == nullptr || record.touched < victim->touched))
        victim = &record;
    const Bytes leaving = std::min(victim->managed, used() + size - state_->total);
    victim->managed -= leaving;
    state_->paged += leaving;
  }
  return true;
}

Bytes SharedDevice::take_managed(Bytes size) {
  Lock lock(state_);
  reap();
  auto& record = state_->records[own_record()];
  Bytes others;
  for (const auto& each : state_->records) others += each.memory + each.contexts;
  for (const Shared& shared : state_->shared) others += shared.size;
  const Bytes taken = std::min(size, minus(state_->total, others));
  make_room(taken);
  record.managed += taken;
  state_->peak = std::max(state_->peak, used());
  return taken;
}

void SharedDevice::drop_managed(Bytes size) {
  Lock lock(state_);
  auto& record = state_->records[own_record()];
  record.managed = minus(record.managed, size);
}

Bytes SharedDevice::managed() {
  Lock lock(state_);
  return state_->records[own_record()].managed;
}

Bytes SharedDevice::touch_managed() {
  Lock lock(state_);
  auto& record = state_->records[own_record()];
  record.touched = now();
  return record.managed;
}

void SharedDevice::count_paged(Bytes size) {
  Lock lock(state_);
  state_->paged += size;
}

void SharedDevice::give_back(Bytes memory, Bytes contexts) {
  Lock lock(state_);
  auto& record = state_->records[own_record()];
  record.memory -= memory;
  record.contexts -= contexts;
}

TimePoint SharedDevice::occupy(Engine engine, Nanoseconds duration) {
  auto& slot = state_->engines[static_cast<int>(engine)];
  while (true) {
    TimePoint wake;
    {
      Lock lock(state_);
      TimePoint start = now();
      bool busy = slot.end > start;
      if (busy && slot.owner != self_ && Census(*this).is_dead(slot.owner)) busy = false;
      if (!busy) {
        slot = {self_, start + duration};
        if (engine == Engine::compute) state_->busy += duration;
        return start;
      }
      wake = std::min(slot.end, start + kPatience);
    }
    sleep_until(wake);
  }
}

void SharedDevice::count_kernel() {
  Lock lock(state_);
  ++state_->kernels;
}

void SharedDevice::count_copy(Engine engine, Bytes size) {
  Lock lock(state_);
  if (engine == Engine::host_to_device) state_->copied_in += size;
  if (engine == Engine::device_to_host) state_->copied_out += size;
}

Presence SharedDevice::presence() const { return state_->presence; }
std::uint64_t SharedDevice::generation() const { return state_->generation; }
std::uint64_t SharedDevice::ecc_errors() const { return state_->ecc_errors; }
std::uint64_t SharedDevice::reports() const { return state_->reported; }

void SharedDevice::set_presence(Presence presence) {
  Lock lock(state_);
  if (presence == Presence::lost || presence == Presence::absent) {
    ++state_->generation;
    state_->ecc_errors = 0;
    for (Shared& shared : state_->shared) shared = {};
  }
  state_->presence = presence;
}

void SharedDevice::report(const Report& report) {
  Lock lock(state_);
  state_->reports[state_->reported % kReports] = report;
  if (report.type == kDoubleBitError) ++state_->ecc_errors;
  ++state_->reported;
}

Report SharedDevice::report_at(std::uint64_t number) const {
  Lock lock(state_);
  return state_->reports[number % kReports];
}

SharedDevice::Meters SharedDevice::meters() {
  Lock lock(state_);
  const TimePoint end = state_->engines[static_cast<int>(Engine::compute)].end;
  return {state_->created, state_->busy - std::max(end - now(), Nanoseconds{})};
}

DeviceView SharedDevice::view() {
  Lock lock(state_);
  reap();
  DeviceView view{state_->total, used(), state_->peak, state_->kernels, state_->copied_in, state_->copied_out,
                  state_->paged, {}};
  for (const auto& record : state_->records)
    if (record.process.number != 0 && record.generation == state_->generation)
      view.processes.push_back(
          {static_cast<pid_t>(record.process.pid), record.memory + record.managed, record.contexts});
  return view;
}

void SharedDevice::reset_peak() {
  Lock lock(state_);
  reap();
  state_->peak = used();
  state_->kernels = 0;
  state_->copied_in = state_->copied_out = state_->paged = {};
}

}  // namespace sharedgpu::simgpu
