// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/system.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <pwd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <cerrno>
#include <ctime>
#include <filesystem>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace sharedgpu {
namespace {

Nanoseconds read_clock(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

bool is_same_file(int one, int other) {
  struct stat its = {};
  struct stat others = {};
  return fstat(one, &its) == 0 && fstat(other, &others) == 0 && its.st_dev == others.st_dev &&
         its.st_ino == others.st_ino;
}

// Starts the thread at the first run().
class Thread : public Aside {
 public:
  void run(std::function<void()> work) override {
    if (!thread_) thread_.emplace(1);
    asio::post(*thread_, std::move(work));
  }

 private:
  std::optional<asio::thread_pool> thread_;
};

}  // namespace

bool is_shortage(int code) { return code == EMFILE || code == ENFILE || code == ENOMEM || code == ENOBUFS; }

Nanoseconds System::now() const { return read_clock(CLOCK_BOOTTIME); }

Nanoseconds System::wall_time() const { return read_clock(CLOCK_REALTIME); }

Status System::read_file(const std::string& path, std::string& text) const {
  text.clear();
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Status::of_errno(errno, path);
  char buffer[1 << 16];
  for (ssize_t size; (size = read(file.get(), buffer, sizeof buffer)) != 0;) {
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Status::of_errno(errno, path);
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return {};
}

std::optional<std::vector<std::string>> System::list_folder(const std::string& path, std::size_t most) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end && names.size() < most;
       it.increment(error))
    names.push_back(it->path().filename());
  if (error) return std::nullopt;
  return names;
}

Status System::owner_of(const std::string& path, uid_t& owner) const {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return Status::of_errno(errno, path);
  owner = info.st_uid;
  return {};
}

std::unique_ptr<Aside> System::aside() const { return std::make_unique<Thread>(); }

bool System::credentials_of(int socket, ucred& credentials) const {
  socklen_t size = sizeof credentials;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0;
}

UniqueFd System::open_peer(int socket, pid_t pid) const {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) return UniqueFd(pidfd);
  return open_process(pid);
}

UniqueFd System::open_process(pid_t pid) const {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

std::vector<ino_t> System::pid_namespaces(pid_t pid, std::size_t count) const {
  std::vector<ino_t> inodes(count);
  UniqueFd at(open(("/proc/" + std::to_string(pid) + "/ns/pid").c_str(), O_RDONLY | O_CLOEXEC));
  for (std::size_t left = count; left > 0; --left) {
    struct stat info = {};
    if (!at || fstat(at.get(), &info) != 0) return {};
    inodes[left - 1] = info.st_ino;
    if (left > 1) at = UniqueFd(ioctl(at.get(), NS_GET_PARENT));
  }
  return inodes;
}

std::optional<uid_t> System::user_namespace_owner(pid_t pid) const {
  const UniqueFd ours(open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC));
  UniqueFd outermost;
  UniqueFd at(open(("/proc/" + std::to_string(pid) + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
  while (at && !is_same_file(at.get(), ours.get())) {
    outermost = std::move(at);
    at = UniqueFd(ioctl(outermost.get(), NS_GET_PARENT));
  }
  uid_t owner = 0;
  if (!at || !outermost || ioctl(outermost.get(), NS_GET_OWNER_UID, &owner) != 0) return std::nullopt;
  return owner;
}

int System::send_signal(int pidfd, int number) const {
  return syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0) == 0 ? 0 : errno;
}

UniqueFd System::duplicate(int descriptor) const { return UniqueFd(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); }

bool System::socket_pair(UniqueFd& one, UniqueFd& other) const {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  one.reset(ends[0]);
  other.reset(ends[1]);
  return true;
}

UniqueFd System::memory_file(const char* name) const {
  return UniqueFd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

UniqueFd System::reopen_to_read(int descriptor) const {
  return UniqueFd(open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_RDONLY | O_CLOEXEC));
}

bool System::random(void* bytes, std::size_t size) const {
  return getrandom(bytes, size, 0) == static_cast<ssize_t>(size);
}

std::optional<uid_t> System::find_user(const std::string& name) const {
  std::vector<char> buffer(16384);
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return std::nullopt;
  return found->pw_uid;
}

void* System::open_library(const char* name) const { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }

void* System::symbol(void* library, const char* name) const { return dlsym(library, name); }

}  // namespace sharedgpu
