// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/interposer/support/scripted_arbiter.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <utility>

namespace sharedgpu::test {
namespace {

bool readable(int fd, std::chrono::milliseconds patience) {
  pollfd wanted = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, static_cast<int>(patience.count())) > 0;
}

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("scripted arbiter: " + what); }

constexpr auto kPatience = std::chrono::seconds(60);

}  // namespace

ScriptedArbiter::ScriptedArbiter(std::string socket_path) : path_(std::move(socket_path)) {}

ScriptedArbiter::~ScriptedArbiter() { unlink(path_.c_str()); }

void ScriptedArbiter::listen() {
  if (int error = listen_at(path_.c_str(), listener_)) fail(std::strerror(error));
}

Hello ScriptedArbiter::accept() {
  if (!readable(listener_.get(), kPatience)) fail("nobody connects");
  session_ = Channel(UniqueFd(::accept(listener_.get(), nullptr, nullptr)));
  return expect<Hello>();
}

void ScriptedArbiter::welcome(bool open, Epoch epoch) {
  page_ = {};
  if (int error = page_.create()) fail(std::strerror(error));
  page_.set_open(open);
  Welcome welcome;
  welcome.session = {7};
  welcome.tenant = {3};
  welcome.epoch = epoch;
  send(Message::of(welcome), page_.fd());
}

void ScriptedArbiter::refuse(const char* reason) {
  Refused refused;
  std::strncpy(refused.reason, reason, sizeof refused.reason - 1);
  say(refused);
}

void ScriptedArbiter::die() {
  session_.close();
  listener_.reset();
  unlink(path_.c_str());
}

void ScriptedArbiter::send(const Message& message, int descriptor) {
  Message spoken = message;
  spoken.version = version;
  iovec part = {.iov_base = &spoken, .iov_len = sizeof spoken};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    packet.msg_control = control;
    packet.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  if (sendmsg(session_.fd(), &packet, MSG_NOSIGNAL) != sizeof spoken) fail(std::strerror(errno));
}

std::optional<Message> ScriptedArbiter::step(std::chrono::milliseconds patience) {
  if (!readable(session_.fd(), patience)) return std::nullopt;
  Message message;
  UniqueFd fd;
  if (int error = session_.receive(message, fd)) fail(std::strerror(error));
  switch (message.type) {
    case MessageType::attach: {
      ++attaches;
      if (refuse_attach) {
        refuse("no such GPU here");
        break;
      }
      Attached attached;
      attached.gpu = message.as<Attach>().gpu;
      attached.capacity = capacity;
      attached.oversize = away_most != Bytes{};
      say(attached);
      break;
    }
    case MessageType::usage:
      last_usage = message.as<Usage>();
      claims += last_usage->request == ~std::uint64_t{0} ? 1 : 0;
      if (last_usage->request != 0) {
        const bool fits = last_usage->use.footprint() <= device_most && last_usage->away <= away_most;
        say(Verdict{.request = last_usage->request, .granted = grant && fits, .allowed = allowed});
      }
      break;
    case MessageType::memory_query:
      ++queries;
      say(MemoryView{.request = message.as<MemoryQuery>().request, .total = capacity, .free = mebibytes(5)});
      break;
    case MessageType::want:
      ++wants;
      break;
    case MessageType::idle:
      ++idles;
      break;
    case MessageType::deadlines:
      ++deadlines;
      break;
    default:
      break;
  }
  return message;
}

Message ScriptedArbiter::wait_for(MessageType type) {
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline)
    if (auto message = step(std::chrono::milliseconds(50)); message && message->type == type) return *message;
  fail("no message of type " + std::to_string(static_cast<unsigned>(type)) + " comes");
}

}  // namespace sharedgpu::test
