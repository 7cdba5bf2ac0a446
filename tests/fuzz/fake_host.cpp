// SPDX-License-Identifier: Apache-2.0
#include "fake_host.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <ctime>

namespace sharedgpu::fuzz {
namespace {

FakeHost* the_host = nullptr;
Nanoseconds the_time{};
thread_local bool has_fake_time = false;

// A pid above all pids that Linux assigns.
constexpr pid_t kFirstChild = 1 << 29;
// The fake clock starts far ahead of the real clock. So if the daemon waits by the real clock until a time of
// the fake clock, the wait does not end early.
constexpr Nanoseconds kBegin = std::chrono::hours(24 * 365 * 20);

void make_pipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) abort();
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
}

UniqueFd copy_of(int descriptor) { return UniqueFd(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); }

bool succeeds(int error) {
  errno = error;
  return error == 0;
}

// For "/proc/PID/REST", returns PID and sets `what` to REST. Returns 0 for other paths.
pid_t process_of(std::string_view path, std::string_view& what) {
  constexpr std::string_view kProc = "/proc/";
  if (!path.starts_with(kProc)) return 0;
  path.remove_prefix(kProc.size());
  pid_t pid = 0;
  const auto [rest, error] = std::from_chars(path.data(), path.data() + path.size(), pid);
  if (error != std::errc{} || rest == path.data() + path.size()) return 0;
  what = path.substr(static_cast<std::size_t>(rest - path.data()) + 1);
  return pid;
}

std::string stat_text(const FakeProcess& process) {
  std::string text = std::to_string(process.pid) + " (a ) name) " + (process.stopped ? "T" : "S");
  for (int field = 4; field <= 28; ++field)
    text += " " + std::to_string(field == 22   ? static_cast<std::uint64_t>(process.pid) * 10
                                 : field == 28 ? process.program
                                               : 0);
  return text + "\n";
}

std::string status_text(const FakeProcess& process) {
  const std::string uid = std::to_string(process.uid);
  return "Name:\ta\nUid:\t" + uid + "\t" + uid + "\t" + uid + "\t" + uid + "\nNSpid:\t" +
         std::to_string(process.pid) + "\n";
}

}  // namespace

FakeHost::FakeHost() : last_child_(kFirstChild) {
  the_host = this;
  the_time = kBegin;
  has_fake_time = true;
}

FakeHost::~FakeHost() { the_host = nullptr; }

void FakeHost::heal() {
  reading = descriptors = peers = signals = forks = disk = 0;
  random_numbers = children_end = true;
  end_children();
  child_pidfds_.clear();
}

void FakeHost::advance(Nanoseconds time) { the_time += time; }

FakeProcess& FakeHost::start(uid_t uid, const std::string& cgroup) {
  FakeProcess& process = processes_[++last_pid_];
  process.pid = last_pid_;
  process.uid = uid;
  process.cgroup = cgroup;
  make_pipe(process.pidfd, process.ended);
  return process;
}

FakeProcess* FakeHost::find(pid_t pid) {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? nullptr : &found->second;
}

std::vector<pid_t> FakeHost::pids() const {
  std::vector<pid_t> all;
  for (const auto& [pid, process] : processes_) all.push_back(pid);
  return all;
}

pid_t FakeHost::fork_child() {
  Child child{.ended = {}, .survey = std::move(begun_)};
  if (!succeeds(forks)) return -1;
  const pid_t pid = ++last_child_;
  make_pipe(child_pidfds_[pid], child.ended);
  if (child.survey || !children_end) children_[pid] = std::move(child);
  return pid;
}

int FakeHost::survey() const {
  for (const auto& [pid, child] : children_)
    if (child.survey) return child.survey.get();
  return -1;
}

std::string FakeHost::address_of(pid_t pid) {
  static std::uint64_t count = 0;  // sockets that are open have different addresses
  return std::string(1, '\0') + "sgpu-fuzz." + std::to_string(getpid()) + "." + std::to_string(++count) +
         "." + std::to_string(pid);
}

Nanoseconds FakeHost::now() const { return the_time; }

Nanoseconds FakeHost::wall_time() const { return std::chrono::hours(24 * 365 * 50) + the_time; }

// Sets `text` to the contents of a file about memory. Returns false for other files.
bool FakeHost::memory_text(std::string_view path, std::string& text) const {
  const auto kilobytes = [](Bytes size) { return std::to_string(size.count >> 10) + " kB\n"; };
  if (path == "/proc/meminfo")
    text = "MemTotal: " + kilobytes(kMemory) + "MemAvailable: " + kilobytes(minus(kMemory, used_memory));
  else if (path.ends_with("/memory.max"))
    text = std::to_string(kMemory.count / 2) + "\n";
  else if (path.ends_with("/memory.current"))
    text = std::to_string(used_memory.count) + "\n";
  else if (path.ends_with("/memory.stat"))
    text = "active_file 4096\n";
  return !text.empty();
}

Status FakeHost::read_file(const std::string& path, std::string& text) const {
  text.clear();
  if (reading != 0) return Status::of_errno(reading, path);
  if (path == "/proc/sys/kernel/random/boot_id") {
    text = "one-boot\n";
    return {};
  }
  if (memory_text(path, text)) return {};
  std::string_view what;
  const auto found = processes_.find(process_of(path, what));
  if (found == processes_.end()) return Status::of_errno(ENOENT, path);
  const FakeProcess& process = found->second;
  if (what.ends_with("stat"))
    text = stat_text(process);
  else if (what == "status")
    text = status_text(process);
  else if (what == "cgroup")
    text = process.cgroup;
  else
    return Status::of_errno(ENOENT, path);
  return {};
}

std::optional<std::vector<std::string>> FakeHost::list_folder(const std::string& path,
                                                              std::size_t /*most*/) const {
  std::string_view what;
  const pid_t pid = process_of(path, what);
  if (!succeeds(reading) || processes_.count(pid) == 0 || what != "task") return std::nullopt;
  return std::vector<std::string>{std::to_string(pid)};
}

Status FakeHost::owner_of(const std::string& path, uid_t& owner) const {
  owner = 0;
  return reading == 0 ? Status() : Status::of_errno(reading, path);
}

bool FakeHost::credentials_of(int socket, ucred& credentials) const {
  sockaddr_un address = {};
  socklen_t size = sizeof address;
  if (!succeeds(peers) || getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return false;
  const std::string_view name(address.sun_path, size - offsetof(sockaddr_un, sun_path));
  const std::string_view number = name.substr(name.rfind('.') + 1);
  pid_t pid = 0;
  std::from_chars(number.data(), number.data() + number.size(), pid);
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return succeeds(ESRCH);
  credentials = {.pid = pid, .uid = found->second.uid, .gid = 0};
  return true;
}

UniqueFd FakeHost::open_peer(int /*socket*/, pid_t pid) const { return open_process(pid); }

UniqueFd FakeHost::open_process(pid_t pid) const {
  if (!succeeds(descriptors)) return {};
  if (const auto child = child_pidfds_.find(pid); child != child_pidfds_.end()) {
    UniqueFd pidfd = std::move(child->second);
    child_pidfds_.erase(child);
    return pidfd;
  }
  const auto found = processes_.find(pid);
  if (found == processes_.end()) {
    errno = ESRCH;
    return {};
  }
  return copy_of(found->second.pidfd.get());
}

std::vector<ino_t> FakeHost::pid_namespaces(pid_t /*pid*/, std::size_t count) const {
  return std::vector<ino_t>(count, 1);
}

std::optional<uid_t> FakeHost::user_namespace_owner(pid_t pid) const {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? std::nullopt : found->second.namespace_owner;
}

// SIGKILL ends the fake process of this pidfd. Other signals have no effect.
int FakeHost::send_signal(int pidfd, int number) const {
  if (signals != 0) return signals;
  struct stat its = {};
  fstat(pidfd, &its);
  for (const auto& [pid, process] : processes_) {
    struct stat other = {};
    if (fstat(process.pidfd.get(), &other) != 0 || other.st_ino != its.st_ino) continue;
    if (number == SIGKILL) const_cast<FakeHost*>(this)->end(pid);
    return 0;
  }
  return ESRCH;
}

UniqueFd FakeHost::duplicate(int descriptor) const {
  return succeeds(descriptors) ? copy_of(descriptor) : UniqueFd();
}

bool FakeHost::socket_pair(UniqueFd& one, UniqueFd& other) const {
  return succeeds(descriptors) && System::socket_pair(one, other);
}

UniqueFd FakeHost::memory_file(const char* name) const {
  return succeeds(descriptors) ? System::memory_file(name) : UniqueFd();
}

bool FakeHost::random(void* bytes, std::size_t size) const {
  for (std::size_t i = 0; i < size; ++i)
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(++random_);
  return random_numbers;
}

std::optional<uid_t> FakeHost::find_user(const std::string& name) const {
  return name == "slurm" ? std::optional<uid_t>(900) : std::nullopt;
}

int FakeDisk::open(const std::string& path, int flags) {
  return succeeds(host.disk) ? FileCalls::open(path, flags) : -1;
}

// A write to a disk that becomes full writes a part of the data first.
ssize_t FakeDisk::write(int file, const void* bytes, std::size_t size) {
  host.holds_all = host.disk == 0;
  if (host.disk == ENOSPC && size > 64) return FileCalls::write(file, bytes, size / 2);
  return succeeds(host.disk) ? FileCalls::write(file, bytes, size) : -1;
}

int FakeDisk::link(const std::string& from, const std::string& to) {
  return succeeds(host.disk) ? FileCalls::link(from, to) : -1;
}

int FakeDisk::unlink(const std::string& path) { return succeeds(host.disk) ? FileCalls::unlink(path) : -1; }

int FakeDisk::rename(const std::string& from, const std::string& to) {
  return succeeds(host.disk) ? FileCalls::rename(from, to) : -1;
}

}  // namespace sharedgpu::fuzz

// ---- replacements of functions of the C library ----

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  if (sharedgpu::fuzz::has_fake_time) return time_point(sharedgpu::fuzz::the_time);
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

extern "C" {

// Without a timer descriptor, Asio reads the steady clock before each wait.
int timerfd_create(int /*clock*/, int /*flags*/) noexcept {
  errno = ENOSYS;
  return -1;
}

// No process is made. Only the parent returns from this fork().
pid_t fork() noexcept { return sharedgpu::fuzz::the_host->fork_child(); }

pid_t waitpid(pid_t pid, int* /*status*/, int /*options*/) {
  return sharedgpu::fuzz::the_host->has_child(pid) ? 0 : pid;
}

int kill(pid_t pid, int /*signal*/) noexcept {
  sharedgpu::fuzz::the_host->end_child(pid);
  return 0;
}

// Only the survey creates a pair of stream sockets. The survey's child gets the second socket.
int socketpair(int domain, int type, int protocol, int* ends) noexcept {
  const auto made = static_cast<int>(syscall(SYS_socketpair, domain, type, protocol, ends));
  if (made == 0 && (type & ~SOCK_CLOEXEC) == SOCK_STREAM)
    sharedgpu::fuzz::the_host->begin_survey(sharedgpu::fuzz::copy_of(ends[1]));
  return made;
}
}
