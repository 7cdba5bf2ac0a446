// SPDX-License-Identifier: Apache-2.0
// The messages of sd_notify(3), as a service manager receives them.
#include "arbiter/daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "systems.h"

namespace sharedgpu::test {
namespace {

class Manager {
 public:
  explicit Manager(const std::string& address) {
    sockaddr_un its = {};
    its.sun_family = AF_UNIX;
    address.copy(its.sun_path, sizeof its.sun_path);
    if (its.sun_path[0] == '@') its.sun_path[0] = '\0';
    socket_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    REQUIRE(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&its), size) == 0);
    setenv("NOTIFY_SOCKET", address.c_str(), 1);
  }

  // The next message; empty if none has arrived.
  std::string heard() const {
    char text[64];
    const ssize_t size = recv(socket_.get(), text, sizeof text, 0);
    return size < 0 ? std::string() : std::string(text, static_cast<std::size_t>(size));
  }

 private:
  UniqueFd socket_;
};

// A service manager that expects watchdog messages (WATCHDOG=1) from the process `pid`.
Manager waiting_for(pid_t pid, const TemporaryFolder& folder) {
  setenv("WATCHDOG_USEC", "20000", 1);
  setenv("WATCHDOG_PID", std::to_string(pid).c_str(), 1);
  return Manager(folder.path + "/notify");
}

TEST_CASE("Service manager: is told that the daemon serves, at a path and at an abstract address") {
  const TemporaryFolder folder;
  for (const std::string& address : {folder.path + "/notify", "@" + folder.path}) {
    const Manager manager(address);
    const ServiceManager its;
    CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);
    its.tell_ready();
    CHECK(manager.heard() == "READY=1");
    asio::io_context loop;
    its.keep_telling(loop);  // no service manager waits for reports
    CHECK(manager.heard().empty());
  }
}

TEST_CASE("Service manager: is told regularly that the event loop is alive") {
  const TemporaryFolder folder;
  const Manager manager = waiting_for(getpid(), folder);
  const ServiceManager its;
  CHECK(std::getenv("WATCHDOG_USEC") == nullptr);
  CHECK(std::getenv("WATCHDOG_PID") == nullptr);
  asio::io_context loop;
  its.keep_telling(loop);
  for (int i = 0; i < 3; ++i) {
    CHECK(manager.heard() == "WATCHDOG=1");
    CHECK(manager.heard().empty());
    loop.run_one();
  }
}

TEST_CASE("Service manager: is told of a reload, of the end, and of the number of GPUs and tenants") {
  const TemporaryFolder folder;
  const Manager manager(folder.path + "/notify");
  const ServiceManager its;
  its.tell_reloading();
  CHECK(manager.heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
  its.tell_stopping();
  CHECK(manager.heard() == "STOPPING=1");
  asio::io_context loop;
  its.keep_telling(loop, [] { return std::string("2 GPUs, 1 tenant"); });  // the service manager has set no
                                                                           // watchdog
  CHECK(manager.heard() == "STATUS=2 GPUs, 1 tenant");
}

TEST_CASE("Service manager: is told once of each change of the number of GPUs and tenants") {
  const TemporaryFolder folder;
  const Manager manager = waiting_for(getpid(), folder);
  const ServiceManager its;
  asio::io_context loop;
  std::string now_so = "1 GPU";
  its.keep_telling(loop, [&] { return now_so; });
  CHECK(manager.heard() == "WATCHDOG=1");
  CHECK(manager.heard() == "STATUS=1 GPU");
  loop.run_one();
  CHECK(manager.heard() == "WATCHDOG=1");
  CHECK(manager.heard().empty());
  now_so = "2 GPUs";
  loop.run_one();
  CHECK(manager.heard() == "WATCHDOG=1");
  CHECK(manager.heard() == "STATUS=2 GPUs");
}

TEST_CASE("Service manager: is told nothing of the loop if it waits for another process") {
  const TemporaryFolder folder;
  const Manager manager = waiting_for(getppid(), folder);
  const ServiceManager its;
  asio::io_context loop;
  its.keep_telling(loop);
  CHECK(manager.heard().empty());
}

TEST_CASE("Service manager: the daemon continues without one, and with one that does not read") {
  unsetenv("NOTIFY_SOCKET");
  ServiceManager().tell_ready();
  const TemporaryFolder folder;
  const Manager manager(folder.path + "/notify");
  const ServiceManager its;
  for (int i = 0; i < 10'000; ++i) its.tell_ready();
  CHECK(manager.heard() == "READY=1");
}

}  // namespace
}  // namespace sharedgpu::test
