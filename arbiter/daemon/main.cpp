// SPDX-License-Identifier: Apache-2.0
// sharedgpud: the arbiter of one host.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "arbiter/daemon/arbiter.h"
#include "arbiter/daemon/folders.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/server.h"
#include "arbiter/daemon/system.h"
#include "config/settings.h"

namespace sharedgpu {
namespace {

int fail(const std::string& what) {
  log::error(what);
  return EXIT_FAILURE;
}

// Held until the process ends. Returns 0 or an errno value; EADDRINUSE where another process holds it.
int take_lock(const std::string& path, UniqueFd& lock) {
  lock.reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return errno;
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return 0;
  return errno == EWOULDBLOCK ? EADDRINUSE : errno;
}

// Each session takes three descriptors.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// What the arbiter was started with and where is not for a daemon that outlives it.
void keep_to_itself() {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none))
    if (const int fd = std::atoi(entry.path().filename().c_str()); fd > STDERR_FILENO)
      fcntl(fd, F_SETFD, FD_CLOEXEC);
}

int run(const Settings& settings) {
  keep_to_itself();
  if (std::string error = log::open(settings.log_level, settings.log_file); !error.empty())
    return fail("LogFile " + settings.log_file + ": " + error);
  std::string folder = std::filesystem::path(settings.socket).parent_path();
  if (int error = make_folder(folder, 0755))
    return fail("Socket folder " + folder + ": " + std::strerror(error));

  // Before anybody can connect, and before there is a descriptor that a child stuck in the driver would keep.
  const System system;
  std::vector<GpuInfo> gpus = find_gpus(system);
  if (chdir("/") != 0) return fail(std::string("/: ") + std::strerror(errno));

  // The lock first: nothing of the other arbiter's is touched before it is ours. Two that start at once would
  // both find a dead arbiter's socket.
  UniqueFd lock;
  int error = take_lock(settings.socket + ".lock", lock);
  UniqueFd listener;
  if (error == 0) error = listen_at(settings.socket.c_str(), listener);
  if (error == EADDRINUSE) {
    log::info("another arbiter serves " + settings.socket + " already; nothing to do");
    return EXIT_SUCCESS;
  }
  if (error != 0) return fail("Socket " + settings.socket + ": " + std::strerror(error));
  if ((error = make_folder(settings.state_dir, 0700)) != 0)
    return fail("StateDir " + settings.state_dir + ": " + std::strerror(error));
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  raise_descriptor_limit();
  std::signal(SIGPIPE, SIG_IGN);

  asio::io_context loop(1);
  asio::signal_set signals(loop, SIGTERM, SIGINT);
  Arbiter arbiter(loop, system, settings);
  if (Status started = arbiter.start(gpus); !started.ok()) return fail(started.message());
  Server server(loop, system, arbiter);
  server.start(std::move(listener));
  signals.async_wait([&](const asio::error_code& failure, int number) {
    if (failure) return;
    log::info(std::string("ending by ") + strsignal(number));
    arbiter.end();
    // The socket stays: sessions find it again, and the next arbiter takes its place. So do the leases.
    loop.stop();
  });
  log::info("serving " + settings.socket);
  loop.run();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace sharedgpu

int main(int argc, char** argv) {
  CLI::App app("The arbiter: decides which tenants may use which GPU of this host now.", "sharedgpud");
  std::string config;
  app.add_option("--config", config, "Settings (default: /etc/sharedgpu/sharedgpu.conf where it exists)")
      ->type_name("FILE");
  app.set_version_flag("--version", SHAREDGPU_VERSION);
  CLI11_PARSE(app, argc, argv);

  sharedgpu::Settings settings;
  std::string error = config.empty() ? sharedgpu::read_default_settings(settings)
                                     : sharedgpu::read_settings(config, settings);
  if (!error.empty()) return sharedgpu::fail(error);
  try {
    return sharedgpu::run(settings);
  } catch (const std::exception& failure) {
    return sharedgpu::fail(failure.what());
  }
}
