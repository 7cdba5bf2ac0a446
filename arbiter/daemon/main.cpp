// SPDX-License-Identifier: Apache-2.0
// sharedgpud: the arbiter of one host.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "arbiter/daemon/arbiter.h"
#include "arbiter/daemon/check.h"
#include "arbiter/daemon/folders.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/munge_mail.h"
#include "arbiter/daemon/server.h"
#include "arbiter/daemon/service_manager.h"
#include "arbiter/daemon/system.h"
#include "config/command_line.h"
#include "config/settings.h"

namespace sharedgpu {
namespace {

constexpr int kWrongUsage = 2;  // the command line or the settings are wrong

int fail(const std::string& what, int status = EXIT_FAILURE) {
  log::error(what);
  return status;
}

// Takes the lock and then the socket, and holds both until the process ends. Fails with EADDRINUSE if another
// arbiter holds the lock or the socket. Without the lock, two arbiters that start at the same time could both
// take the socket for that of a dead arbiter. This process changes no file of another arbiter before it holds
// the lock.
Status take_socket(const std::string& path, UniqueFd& lock, UniqueFd& listener) {
  const auto failed = [&](int error) { return Status::of_errno(error, "Socket " + path); };
  lock.reset(open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return failed(errno);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return failed(errno == EWOULDBLOCK ? EADDRINUSE : errno);
  if (const int error = listen_at(path.c_str(), listener)) return failed(error);
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  return {};
}

constexpr rlim_t kEnoughDescriptors = 1 << 17;

// Enlarges the process's descriptor table before threads start. In a process with threads, the Linux kernel
// waits for all processors at each enlargement of the table, 10 to 25 ms on 16 cores.
void enlarge_descriptor_table(rlim_t size) {
  const int last = static_cast<int>(std::min(size, kEnoughDescriptors)) - 1;
  if (const UniqueFd any(open("/", O_PATH | O_CLOEXEC)); any)
    UniqueFd(fcntl(any.get(), F_DUPFD_CLOEXEC, last));
}

// Raises the descriptor limit, and returns the number of connections for which the limit suffices.
std::size_t raise_descriptor_limit() {
  constexpr rlim_t kOfDaemon = 64;  // descriptors for the ledger, the log and similar files
  constexpr rlim_t kOfSession = 4;  // descriptors of a session: its socket, its lease page, and two pidfds
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t most = std::max(limit.rlim_max, kEnoughDescriptors);
  const rlimit more = {.rlim_cur = most, .rlim_max = most};
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &more) == 0)  // only root may exceed the hard limit
    limit = more;
  else
    setrlimit(RLIMIT_NOFILE, &limit);
  enlarge_descriptor_table(limit.rlim_cur);
  return (limit.rlim_cur - std::min(limit.rlim_cur, kOfDaemon)) / kOfSession;
}

// Makes inherited descriptors close-on-exec. The MPS daemon outlives the arbiter, and must not inherit the
// descriptors that the arbiter was started with.
void keep_to_itself() {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none))
    if (const int fd = std::atoi(entry.path().filename().c_str()); fd > STDERR_FILENO)
      fcntl(fd, F_SETFD, FD_CLOEXEC);
}

Status make_own_folder(const std::string& path, mode_t mode) {
  Status made = make_folder(path, mode);
  return made.ok() ? check_folder(path) : made;
}

void reload_at_each(asio::signal_set& hang_ups, Reload& reload) {
  hang_ups.async_wait([&](const asio::error_code& failure, int /*number*/) {
    if (failure) return;
    static_cast<void>(reload.reload("SIGHUP"));
    reload_at_each(hang_ups, reload);
  });
}

Status open_log(const Settings& settings) {
  if (!settings.log_file.empty()) {
    const std::string folder = std::filesystem::absolute(settings.log_file).parent_path();
    if (Status checked = check_folder(folder); !checked.ok()) return checked;
  }
  return log::open(settings.log_level, settings.log_file);
}

// `read` reads the settings again.
int run(const Settings& settings, const std::function<std::string(Settings&)>& read) {
  keep_to_itself();
  std::signal(SIGHUP, SIG_IGN);  // ignored until `hang_ups` receives it
  const ServiceManager service_manager;
  if (Status opened = open_log(settings); !opened.ok()) return fail("LogFile " + opened.message());
  const std::string folder = std::filesystem::path(settings.socket).parent_path();
  if (Status made = make_own_folder(folder, 0755); !made.ok()) return fail("Socket folder " + made.message());

  // Searches for GPUs before any peer can connect. The child of the search may hang in the driver. It cannot
  // hold the lock, socket or ledger open, since the arbiter opens them later.
  const System system;
  const std::vector<GpuInfo> gpus = find_gpus(system);
  if (chdir("/") != 0) return fail(std::string("cannot change to the folder /: ") + std::strerror(errno));

  UniqueFd lock, listener;
  const Status taken = take_socket(settings.socket, lock, listener);
  if (taken.code() == EADDRINUSE) {
    log::info("another arbiter serves " + settings.socket + " already; nothing to do");
    service_manager.tell_ready();
    return EXIT_SUCCESS;
  }
  if (!taken.ok()) return fail(taken.message());
  UniqueFd state_lock;
  Status state = make_own_folder(settings.state_dir, 0700);
  if (state.ok()) state = lock_folder(settings.state_dir, state_lock);
  if (!state.ok()) return fail("StateDir " + state.message());
  const std::size_t places = raise_descriptor_limit();
  std::signal(SIGPIPE, SIG_IGN);

  asio::io_context loop(1);
  asio::signal_set signals(loop, SIGTERM, SIGINT);
  asio::signal_set hang_ups(loop, SIGHUP);
  Schedule schedule(loop, system);
  Closer closer(loop, system, schedule);
  std::unique_ptr<Mail> mail;
  if (settings.peer_port != 0)
    mail = std::make_unique<MungeMail>(
        loop, system, MailPlace{settings.peer_address, settings.peer_port, settings.munge_socket});
  Arbiter arbiter(loop, schedule, system, settings, std::make_unique<FileCalls>(), std::move(mail));
  if (Status started = arbiter.start(gpus); !started.ok()) return fail(started.message());
  Server server({.loop = loop, .schedule = schedule, .closer = closer}, system, arbiter, places);
  server.start(std::move(listener));
  signals.async_wait([&](const asio::error_code& failure, int number) {
    if (failure) return;
    log::info(std::string("ending by ") + strsignal(number));
    service_manager.tell_stopping();
    arbiter.end();
    // The socket file stays, and leases do not end. The next arbiter takes over both, and sessions reconnect
    // to it.
    loop.stop();
  });
  arbiter.reload().reads_from({.read = read,
                               .open_log = open_log,
                               .begins = [&] { service_manager.tell_reloading(); },
                               .ends = [&] { service_manager.tell_ready(); }});
  reload_at_each(hang_ups, arbiter.reload());
  log::info("serving " + settings.socket);
  service_manager.tell_ready();
  service_manager.keep_telling(loop, [&] { return arbiter.summary(); });
  loop.run();
  // Exits without destructors, because a peer can make the closing of its connection block, see closer.h.
  _exit(EXIT_SUCCESS);
}

}  // namespace
}  // namespace sharedgpu

int main(int argc, char** argv) {
  CLI::App app("The arbiter: decides which tenants may use which GPU of this host now.", "sharedgpud");
  // Refuses an empty file name, as from an unset variable in a script: the arbiter would start with other
  // settings than intended.
  const auto has_name = [](const std::string& name) { return std::string(name.empty() ? "no file" : ""); };
  std::string config;
  app.add_option("--config", config, "Settings (default: /etc/sharedgpu/sharedgpu.conf where it exists)")
      ->type_name("FILE")
      ->check(has_name);
  std::string tenants = "any";
  app.add_option("--tenants", tenants, "Tenants= where the settings have none: jobs or any (default any)")
      ->type_name("KIND")
      ->check(CLI::IsMember({"jobs", "any"}));
  std::string check;
  app.add_option("--check", check, "Check this file of settings, and start nothing")
      ->type_name("FILE")
      ->check(has_name);
  app.set_version_flag("--version", SHAREDGPU_VERSION);
  if (const auto ended = sharedgpu::parse_command_line(app, argc, argv)) return *ended;

  if (!check.empty()) return sharedgpu::check_settings(check);
  // Makes the path absolute, since the arbiter changes its working directory and may read the file again
  // later.
  if (!config.empty()) config = std::filesystem::absolute(config);
  const auto read = [&](sharedgpu::Settings& settings) {
    std::string error = config.empty() ? sharedgpu::read_default_settings(settings)
                                       : sharedgpu::read_settings(config, settings);
    if (error.empty() && !settings.tenants) error = sharedgpu::parse_tenants(tenants, settings);
    return error;
  };
  sharedgpu::Settings settings;
  if (const std::string error = read(settings); !error.empty())
    return sharedgpu::fail(error, sharedgpu::kWrongUsage);
  try {
    return sharedgpu::run(settings, read);
  } catch (const std::exception& failure) {
    return sharedgpu::fail(failure.what());
  }
}
