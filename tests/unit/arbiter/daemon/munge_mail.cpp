// SPDX-License-Identifier: Apache-2.0
// Messages between arbiters by UDP. In the tests' replacement of munge's library, a credential is
// the text with the prefix MUNGE:.
#include "arbiter/daemon/munge_mail.h"

#include <arpa/inet.h>
#include <munge.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "arbiter/daemon/log.h"
#include "host.h"
#include "systems.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// The port depends on the pid, since several tests may run at the same time.
const auto kPort = static_cast<std::uint16_t>(300 + getpid() % 300);
const std::uint16_t kOther = kPort + 300;  // the port of another process of root, which is no arbiter

munge_ctx_t create() { return reinterpret_cast<munge_ctx_t>(std::malloc(1)); }
munge_err_t set(munge_ctx_t, munge_opt_t, ...) { return EMUNGE_SUCCESS; }
munge_err_t encode(char** credential, munge_ctx_t, const void* text, int size) {
  const std::string whole =
      "MUNGE:" + std::string(static_cast<const char*>(text), static_cast<std::size_t>(size));
  if (whole == "MUNGE:down") return EMUNGE_SOCKET;
  *credential = strdup(whole.c_str());
  return EMUNGE_SUCCESS;
}
munge_err_t decode(const char* credential, munge_ctx_t, void** text, int* size, uid_t* uid, gid_t* gid) {
  if (std::strncmp(credential, "MUNGE:", 6) != 0) return EMUNGE_CRED_INVALID;
  *text = strdup(credential + 6);
  *size = static_cast<int>(std::strlen(credential + 6));
  *uid = std::strcmp(credential + 6, "of a user") == 0 ? 4321 : geteuid();
  *gid = 0;
  return EMUNGE_SUCCESS;
}
const char* describe(munge_err_t) { return "Socket communication error"; }

struct Library final : System {
  bool there = true;
  void* open_library(const char* name) const override {
    return there && std::strcmp(name, "libmunge.so.2") == 0 ? const_cast<Library*>(this) : nullptr;
  }
  void* symbol(void*, const char* name) const override {
    static const std::map<std::string, void*> functions = {
        {"munge_ctx_create", reinterpret_cast<void*>(create)},
        {"munge_ctx_set", reinterpret_cast<void*>(set)},
        {"munge_encode", reinterpret_cast<void*>(encode)},
        {"munge_decode", reinterpret_cast<void*>(decode)},
        {"munge_strerror", reinterpret_cast<void*>(describe)}};
    const auto found = functions.find(name);
    return found == functions.end() ? nullptr : found->second;
  }
};

struct Site {
  TemporaryFolder folder;
  Library system;
  asio::io_context loop{1};
  std::vector<std::pair<std::string, std::string>> heard;

  Site() { REQUIRE(log::open("info", folder.path + "/log").ok()); }
  ~Site() { static_cast<void>(log::open("off", {})); }
  MailPlace place(const char* address) const {
    return {.address = address, .port = kPort, .munge_socket = {}};
  }
  Mail::Heard hear() {
    return [this](const std::string& from, std::string_view text) { heard.emplace_back(from, text); };
  }
  void run_until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!holds()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      loop.restart();
      loop.run_one_for(10ms);
    }
  }
  std::string log() const {
    std::stringstream text;
    text << std::ifstream(folder.path + "/log").rdbuf();
    return text.str();
  }
};

// Sends a datagram from `port`, or from an unprivileged port if `port` is 0.
void send_datagram(const std::string& text, std::uint16_t port = 0) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, 0));
  sockaddr_in own = {}, to = {};
  own.sin_family = to.sin_family = AF_INET;
  own.sin_addr.s_addr = inet_addr("127.0.0.23");
  own.sin_port = htons(port);
  to.sin_addr.s_addr = inet_addr("127.0.0.21");
  to.sin_port = htons(kPort);
  REQUIRE(bind(socket.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
  REQUIRE(sendto(socket.get(), text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to) ==
          static_cast<ssize_t>(text.size()));
}

TEST_CASE("A message comes with the address of its sender, and answers to this address arrive") {
  if (geteuid() != 0) return;  // only root may use the privileged port of an arbiter
  Site site;
  MungeMail one(site.loop, site.system, site.place("127.0.0.21"));
  MungeMail other(site.loop, site.system, site.place("127.0.0.22"));
  one.start(site.hear());
  other.start(site.hear());
  site.run_until([&] {
    if (site.heard.empty()) other.send("127.0.0.21", "a message");
    return !site.heard.empty();
  });
  CHECK(site.heard[0] == std::pair<std::string, std::string>("127.0.0.22", "a message"));
  site.heard.clear();
  one.send("127.0.0.22", "an answer");
  site.run_until([&] { return !site.heard.empty() && site.heard.back().second == "an answer"; });
  CHECK(site.heard.back().first == "127.0.0.21");
}

TEST_CASE("Only messages that root has sent and munge has authenticated are accepted") {
  if (geteuid() != 0) return;
  Site site;
  MungeMail mail(site.loop, site.system, site.place("127.0.0.21"));
  mail.start(site.hear());
  site.run_until([&] {
    send_datagram("MUNGE:from a port of any user");
    send_datagram("no credential", kOther);
    send_datagram("MUNGE:of a user", kOther);
    send_datagram(std::string(5000, 'x'), kOther);
    send_datagram("MUNGE:" + std::string(kLongestGangMessage + 1, 'x'), kOther);
    send_datagram("", kOther);
    send_datagram("MUNGE:of an arbiter", kOther);
    return !site.heard.empty();
  });
  for (const auto& [from, text] : site.heard) {
    CHECK(from == "127.0.0.23");
    CHECK(text == "of an arbiter");
  }
}

TEST_CASE("The reason why messages cannot be sent is logged once, and its end is logged, too") {
  if (geteuid() != 0) return;
  Site site;
  MungeMail mail(site.loop, site.system, site.place("127.0.0.21"));
  mail.start(site.hear());
  const auto logged = [&](const char* what) { return site.log().find(what) != std::string::npos; };
  site.run_until([&] {
    mail.send("127.0.0.21", "down");
    return logged("cannot send messages to other arbiters: munge: Socket communication error");
  });
  for (int i = 0; i < 5; ++i) mail.send("127.0.0.21", "down");
  site.run_until([&] {
    mail.send("127.0.0.21", "up");
    return logged("messages to other arbiters can be sent again");
  });
  const std::string log = site.log();
  CHECK(log.find("munge: Socket") == log.rfind("munge: Socket"));
}

TEST_CASE("If munge's library is missing or the port is in use, the arbiter tries again later") {
  if (geteuid() != 0) return;
  Site site;
  std::optional<MungeMail> first;
  std::string why = "libmunge.so.2 cannot be loaded";
  SECTION("the library") { site.system.there = false; }
  SECTION("the port") {
    why = "cannot listen on port " + std::to_string(kPort) + ": Address already in use";
    first.emplace(site.loop, site.system, site.place("127.0.0.21"));
    first->start(site.hear());
    site.run_until([&] {
      if (site.heard.empty()) first->send("127.0.0.21", "it is there");
      return !site.heard.empty();
    });
  }
  MungeMail mail(site.loop, site.system, site.place("127.0.0.21"), 10ms);
  mail.start(site.hear());
  site.run_until([&] { return site.log().find(why) != std::string::npos; });
  mail.send("127.0.0.21", "lost");  // send() has no effect while no child runs
  first.reset();
  site.system.there = true;
  site.heard.clear();
  site.run_until([&] {
    if (site.heard.empty()) mail.send("127.0.0.21", "at last");
    return !site.heard.empty();
  });
}

}  // namespace
}  // namespace sharedgpu::test
