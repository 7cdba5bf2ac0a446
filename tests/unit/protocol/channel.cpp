// SPDX-License-Identifier: Apache-2.0
#include "protocol/channel.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/kernel.h"
#include "tests/unit/temporary_folder.h"

namespace sharedgpu {
namespace {

struct Pair {
  Channel a, b;
  Pair() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    a = Channel(UniqueFd(ends[0]));
    b = Channel(UniqueFd(ends[1]));
  }
};

struct Folder : test::TemporaryFolder {
  std::string socket() const { return path + "/s.sock"; }
};

// Returns true if a field without padding arrives unchanged.
template <class Body, class Field>
bool arrives(Field Body::*field) {
  static_assert(std::has_unique_object_representations_v<Field>);
  Body body;
  std::memset(static_cast<void*>(&body), 0xee, sizeof body);
  const Body read = Message::of(body).template as<Body>();
  return std::memcmp(&(read.*field), &(body.*field), sizeof(Field)) == 0;
}

TEST_CASE("Clearing what lies between the fields of a message leaves them as they are") {
  CHECK((arrives(&RunReply::token) && arrives(&RunReply::tenant) && arrives(&RunReply::gpus) &&
         arrives(&RunReply::threads)));
  CHECK((arrives(&RegisterReply::accepted) && arrives(&RegisterReply::gpus) &&
         arrives(&RegisterReply::whole) && arrives(&RegisterReply::threads)));
  CHECK((arrives(&RegisterJob::step) && arrives(&RegisterJob::uid) && arrives(&RegisterJob::devices) &&
         arrives(&RegisterJob::whole) && arrives(&RegisterJob::job_class)));
  CHECK((arrives(&GpuReply::known) && arrives(&GpuReply::processes) && arrives(&GpuReply::total) &&
         arrives(&GpuReply::free)));
  CHECK((arrives(&JobReply::lease) && arrives(&JobReply::moved) && arrives(&JobReply::footprint) &&
         arrives(&JobReply::models) && arrives(&JobReply::losses)));
  CHECK((arrives(&Released::epoch) && arrives(&Released::order) && arrives(&Released::wants) &&
         arrives(&Released::overuse) && arrives(&Released::use) && arrives(&Released::submission)));
  CHECK((arrives(&Usage::request) && arrives(&Usage::use) && arrives(&Usage::stuck) &&
         arrives(&Usage::job_host_limit) && arrives(&Usage::moved)));
  CHECK((arrives(&RunRequest::chosen) && arrives(&RunRequest::devices) && arrives(&RunRequest::vouched) &&
         arrives(&RunRequest::uid)));
}

TEST_CASE("A message arrives whole, with its descriptor") {
  Pair pair;
  Usage usage;
  usage.request = 7;
  usage.use.swappable = gibibytes(3);
  UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(pair.a.send(Message::of(usage), null.get()) == 0);
  Message message;
  UniqueFd fd;
  REQUIRE(pair.b.receive(message, fd) == 0);
  CHECK(message.type == MessageType::usage);
  CHECK(message.as<Usage>().request == 7);
  CHECK(message.as<Usage>().use.swappable == gibibytes(3));
  REQUIRE(fd);
  CHECK((fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(fd.get() != null.get());
}

TEST_CASE("Anything but a message is an error") {
  Pair pair;
  Message message;
  UniqueFd fd;
  SECTION("too short") { REQUIRE(send(pair.a.fd(), "hello", 5, 0) == 5); }
  SECTION("too long") {
    char big[sizeof(Message) + 1] = {};
    REQUIRE(send(pair.a.fd(), big, sizeof big, 0) == sizeof big);
  }
  SECTION("another magic") {
    Message bad = Message::of(Want{});
    bad.magic = 1;
    REQUIRE(pair.a.send(bad) == 0);
  }
  CHECK(pair.b.receive(message, fd) == EPROTO);
}

// A message from a peer of version `version`, with arbitrary bytes in fields that later versions added.
Message of_version(std::uint16_t version, MessageType type) {
  Message message;
  std::memset(message.body, 0xee, sizeof message.body);
  message.version = version;
  message.type = type;
  return message;
}

TEST_CASE("A peer of an earlier version is understood, and answered in its version") {
  Pair pair;
  Message message;
  UniqueFd fd;
  const Message old = of_version(4, MessageType::register_job);
  REQUIRE(send(pair.a.fd(), &old, sizeof old, 0) == sizeof old);
  REQUIRE(pair.b.receive(message, fd) == 0);
  CHECK(message.as<RegisterJob>().step.job == 0xeeeeeeee);
  CHECK(message.as<RegisterJob>().options.backend_given == 0xee);
  CHECK(message.as<RegisterJob>().devices.empty());
  CHECK(message.as<RegisterJob>().whole.empty());
  const Message usage = of_version(4, MessageType::usage);
  REQUIRE(send(pair.a.fd(), &usage, sizeof usage, 0) == sizeof usage);
  REQUIRE(pair.b.receive(message, fd) == 0);
  CHECK(message.as<Usage>().stuck == 0xee);
  CHECK(message.as<Usage>().job_host_limit == Bytes{});
  CHECK(message.as<Usage>().moved == Traffic{});

  REQUIRE(pair.b.send(Message::of(RegisterReply{.accepted = 1})) == 0);
  REQUIRE(recv(pair.a.fd(), &message, sizeof message, 0) == sizeof message);
  CHECK(message.version == 4);
  CHECK(message.as<RegisterReply>().accepted == 1);
}

TEST_CASE("A message of a later version is read as far as this version knows its fields") {
  Pair pair;
  Message message;
  UniqueFd fd;
  const Message later = of_version(kProtocolVersion + 1, MessageType::want);
  REQUIRE(send(pair.a.fd(), &later, sizeof later, 0) == sizeof later);
  REQUIRE(pair.b.receive(message, fd) == 0);
  CHECK(message.as<Want>().host_short == 0xee);
  REQUIRE(pair.b.send(message) == 0);
  REQUIRE(pair.a.receive(message, fd) == 0);
  CHECK(message.version == kProtocolVersion);
}

TEST_CASE("A peer of too early a version can get a refusal") {
  Pair pair;
  Message message;
  UniqueFd fd;
  const Message old = of_version(kOldestVersion - 1, MessageType::hello);
  REQUIRE(send(pair.a.fd(), &old, sizeof old, 0) == sizeof old);
  CHECK(pair.b.receive(message, fd) == EPROTONOSUPPORT);
  REQUIRE(pair.b.send(Message::of(Refused{.reason = "too old"})) == 0);
  REQUIRE(recv(pair.a.fd(), &message, sizeof message, 0) == sizeof message);
  CHECK(message.version == kOldestVersion - 1);
}

#if __has_builtin(__builtin_clear_padding)
TEST_CASE("A message contains no bytes of earlier memory") {
  alignas(Verdict) unsigned char stack[sizeof(Verdict)];
  std::memset(stack, 0xAA, sizeof stack);
  auto* verdict = new (stack) Verdict;
  verdict->granted = 1;
  const Message message = Message::of(*verdict);
  CHECK(message.as<Verdict>().granted == 1);
  CHECK(std::ranges::none_of(message.body, [](unsigned char byte) { return byte == 0xAA; }));
}
#endif

TEST_CASE("Waiting for a message ends in time") {
  Pair pair;
  CHECK(pair.a.wait(std::chrono::milliseconds(5)) == ETIMEDOUT);
  REQUIRE(pair.b.send(Message::of(Want{})) == 0);
  CHECK(pair.a.wait(std::chrono::seconds(60)) == 0);
}

TEST_CASE("A descriptor beyond the limit is an error") {
  Pair pair;
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(pair.a.send(Message::of(Want{}), STDOUT_FILENO) == 0);
  Message message;
  UniqueFd fd;
  rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  int error = pair.b.receive(message, fd);
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(error == EMFILE);
}

TEST_CASE("A closed peer") {
  Pair pair;
  pair.a.close();
  Message message;
  UniqueFd fd;
  CHECK(pair.b.receive(message, fd) == ECONNRESET);
  CHECK(pair.b.send(Message::of(Want{})) == EPIPE);
}

TEST_CASE("Descriptors beyond the first are closed") {
  Pair pair;
  Message message = Message::of(Want{});
  int null = open("/dev/null", O_RDONLY);
  iovec part = {.iov_base = &message, .iov_len = sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&packet);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(3 * sizeof(int));
  int three[] = {null, null, null};
  std::memcpy(CMSG_DATA(header), three, sizeof three);
  int before = dup(null);
  close(before);
  REQUIRE(sendmsg(pair.a.fd(), &packet, 0) == sizeof message);
  {
    UniqueFd fd;
    REQUIRE(pair.b.receive(message, fd) == 0);
    CHECK(fd);
  }
  int after = dup(null);
  CHECK(after == before);
  close(after);
  close(null);
}

TEST_CASE(
    "A peer of a socket that refuses descriptors cannot send one, and those already sent are dropped at "
    "once") {
  Folder folder;
  UniqueFd listener;
  REQUIRE(listen_at(folder.socket().c_str(), listener) == 0);
  refuse_descriptors(listener.get());
  Channel peer;
  REQUIRE(peer.connect(folder.socket().c_str()) == 0);
  const int sent = peer.send(Message::of(Want{}), STDIN_FILENO);
  CHECK(sent == (kernel_refuses_descriptors() ? EPERM : 0));
  REQUIRE(peer.send(Message::of(Want{})) == 0);
  Channel accepted(UniqueFd(accept(listener.get(), nullptr, nullptr)));
  CHECK(accepted.discard_unread() == (sent == EPERM));
}

TEST_CASE("connect() waits for a place in the queue of connections, up to its timeout") {
  Folder folder;
  UniqueFd listener;
  REQUIRE(listen_at(folder.socket().c_str(), listener) == 0);
  REQUIRE(listen(listener.get(), 0) == 0);
  std::vector<Channel> waiting;
  int error = 0;
  while (error == 0) error = waiting.emplace_back().connect(folder.socket().c_str());
  CHECK(error == EAGAIN);
  Channel patient;
  SECTION("no longer") {
    CHECK(patient.connect(folder.socket().c_str(), std::chrono::milliseconds(50)) == EAGAIN);
  }
  SECTION("and has it when there is one") {
    std::thread arbiter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const UniqueFd first(accept(listener.get(), nullptr, nullptr));
    });
    CHECK(patient.connect(folder.socket().c_str(), std::chrono::minutes(1)) == 0);
    arbiter.join();
    CHECK(patient.send(Message::of(Want{})) == 0);
    timeval timeout = {.tv_sec = 1, .tv_usec = 1};
    socklen_t size = sizeof timeout;
    REQUIRE(getsockopt(patient.fd(), SOL_SOCKET, SO_SNDTIMEO, &timeout, &size) == 0);
    // The timeout of connect() does not apply to later calls of send().
    CHECK((timeout.tv_sec == 0 && timeout.tv_usec == 0));
  }
  SECTION("not for an arbiter that goes") {
    std::thread arbiter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      listener.reset();
    });
    CHECK(patient.connect(folder.socket().c_str(), std::chrono::minutes(1)) == ECONNREFUSED);
    arbiter.join();
  }
}

TEST_CASE("Listening") {
  Folder folder;
  UniqueFd first;
  REQUIRE(listen_at(folder.socket().c_str(), first) == 0);
  SECTION("a second arbiter is told of the first") {
    UniqueFd second;
    CHECK(listen_at(folder.socket().c_str(), second) == EADDRINUSE);
  }
  SECTION("one that hangs, with too many that wait for it, is no dead one; nobody waits to connect") {
    REQUIRE(listen(first.get(), 0) == 0);
    Channel waiting[4];
    int error = 0;
    for (int i = 0; i < 4 && error == 0; ++i) error = waiting[i].connect(folder.socket().c_str());
    CHECK(error == EAGAIN);
    UniqueFd second;
    CHECK(listen_at(folder.socket().c_str(), second) == EADDRINUSE);
  }
  SECTION("a dead arbiter's socket is replaced") {
    first.reset();
    UniqueFd second;
    CHECK(listen_at(folder.socket().c_str(), second) == 0);
  }
  SECTION("a file that is no socket is left alone") {
    first.reset();
    unlink(folder.socket().c_str());
    UniqueFd file(open(folder.socket().c_str(), O_CREAT | O_WRONLY, 0600));
    UniqueFd second;
    CHECK(listen_at(folder.socket().c_str(), second) == EEXIST);
  }
  SECTION("paths that are too long or empty") {
    UniqueFd second;
    CHECK(listen_at(std::string(200, 'x').c_str(), second) == ENAMETOOLONG);
    CHECK(listen_at("", second) == EINVAL);
  }
}

}  // namespace
}  // namespace sharedgpu
