// SPDX-License-Identifier: Apache-2.0
// Works with few free descriptors: closes all descriptors but the driver's, fills the table with its own
// files and continues, or starts with a full table. Or closes the library's sockets and stops, or executes
// another program. The library must not write into the files of this program.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr rlim_t kTable = 48;

void limit_table() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = kTable;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) fail("setrlimit failed");
}

void close_all() {
  for (int fd = 3; fd < static_cast<int>(kTable); ++fd) {
    std::error_code none;
    auto target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none).string();
    bool drivers = target.find("simgpu") != std::string::npos || target.find("/dev/nvidia") == 0;
    if (!none && !drivers) close(fd);
  }
}

// Files and sockets of the program that take every free descriptor.
class OwnFiles {
 public:
  explicit OwnFiles(bool leave_some) {
    for (int pair[2]; socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 && sockets_.size() < 8;)
      sockets_.insert(sockets_.end(), {pair[0], pair[1]});
    char name[] = "/tmp/sharedgpu-descriptors.XXXXXX";
    for (int fd; (fd = mkostemp(name, 0)) >= 0;) {
      unlink(name);
      std::snprintf(name, sizeof name, "/tmp/sharedgpu-descriptors.XXXXXX");
      files_.push_back(fd);
    }
    if (sockets_.empty() || files_.empty()) fail("no descriptor is free");
    // Frees as many descriptors as normal work and a reconnection of the library need.
    for (int i = 0; leave_some && i < 6 && !files_.empty(); ++i) {
      close(files_.back());
      files_.pop_back();
    }
  }
  // Checks that nobody but this program has used these files.
  void check_untouched() const {
    for (int fd : files_)
      if (lseek(fd, 0, SEEK_END) != 0) fail("somebody wrote into a file of the program");
    char byte;
    for (int fd : sockets_)
      if (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0)
        fail("somebody wrote into a socket of the program");
  }

 private:
  std::vector<int> sockets_;
  std::vector<int> files_;
};

void go_on_after_closing() {
  limit_table();
  start();
  Kernels kernels;
  Buffer buffer(kernels, std::size_t{48} << 20, 1);
  for (int round = 0; round < 3; ++round) {
    close_all();
    OwnFiles files(true);
    for (int i = 0; i < 20; ++i) {  // time in which queries to the arbiter and turns happen
      CUdeviceptr more = 0;
      std::size_t free = 0;
      check(cuMemAlloc(&more, std::size_t{20} << 20), "cuMemAlloc");
      check(cuMemGetInfo(&free, nullptr), "cuMemGetInfo");
      check(cuMemsetD8(more, 1, std::size_t{20} << 20), "cuMemsetD8");
      check(cuMemFree(more), "cuMemFree");
    }
    files.check_untouched();
  }
  exercise(buffer, 20);
  buffer.free();
}

// The library loses its sockets, and the process is stopped before the library can notice.
void stop_without_sockets() {
  start();
  Kernels kernels;
  Buffer buffer(kernels, std::size_t{150} << 20, 1);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  for (int fd = 3; fd < 1024; ++fd) {
    struct stat file = {};
    if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode)) close(fd);
  }
  raise(SIGSTOP);
  exercise(buffer, 20);
  buffer.free();
}

// Executes a program that uses no GPU, which frees all memory.
void sleep_on() {
  start();
  Kernels kernels;
  Buffer buffer(kernels, std::size_t{150} << 20, 1);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  execlp("sleep", "sleep", "600", nullptr);
  fail("no sleep");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Closes or uses up all descriptors.");
  std::string how = "close";
  int free_places = 0;
  app.add_option("--how", how,
                 "close: those of others, later; few: has few left at the start; stop: closes sockets and "
                 "stops; exec: executes sleep")
      .one_of({"close", "few", "stop", "exec"});
  app.add_option("--free", free_places, "with few: how many are left");
  app.parse(argc, argv);
  if (how == "close") {
    go_on_after_closing();
  } else if (how == "stop") {
    stop_without_sockets();
  } else if (how == "exec") {
    sleep_on();
  } else {
    limit_table();
    std::vector<int> taken;
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;) taken.push_back(fd);
    for (int i = 0; i < free_places; ++i) {
      close(taken.back());
      taken.pop_back();
    }
    start();
    exercise(std::size_t{48} << 20, 1, 10);
  }
  std::printf("descriptors: every byte verified\n");
  return 0;
}
