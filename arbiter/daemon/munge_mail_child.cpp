// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/munge_mail_child.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <munge.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "arbiter/daemon/driver_child.h"

namespace sharedgpu {
namespace {

constexpr std::size_t kLongestDatagram = 4096;

// munge's library, loaded at run time. munge.h declares its functions.
class Munge {
 public:
  explicit Munge(const System& system) : library_(system, "libmunge.so.2") {
    good_ = library_ && library_.load("munge_ctx_create", create_) && library_.load("munge_ctx_set", set_) &&
            library_.load("munge_encode", encode_) && library_.load("munge_decode", decode_) &&
            library_.load("munge_strerror", strerror_);
  }
  explicit operator bool() const { return good_; }

  bool start(const std::string& socket) {
    context_ = create_();
    if (context_ == nullptr) return false;
    if (!socket.empty() && set_(context_, MUNGE_OPT_SOCKET, socket.c_str()) != EMUNGE_SUCCESS) return false;
    return set_(context_, MUNGE_OPT_UID_RESTRICTION, geteuid()) == EMUNGE_SUCCESS;
  }
  // Returns an empty text on failure, with the reason in `why`.
  std::string encode(std::string_view text, std::string& why) const {
    char* credential = nullptr;
    const munge_err_t error = encode_(&credential, context_, text.data(), static_cast<int>(text.size()));
    const std::unique_ptr<char, decltype(&std::free)> owned(credential, &std::free);
    if (error != EMUNGE_SUCCESS) why = strerror_(error);
    return error == EMUNGE_SUCCESS ? credential : "";
  }
  // Returns an empty text if the credential is invalid or was not made by an arbiter.
  std::string decode(const char* credential) const {
    void* content = nullptr;
    int size = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    const munge_err_t error = decode_(credential, context_, &content, &size, &uid, &gid);
    const std::unique_ptr<void, decltype(&std::free)> owned(content, &std::free);
    if (error != EMUNGE_SUCCESS || content == nullptr || (uid != 0 && uid != geteuid())) return {};
    return {static_cast<const char*>(content), static_cast<std::size_t>(size)};
  }

 private:
  DriverLibrary library_;
  bool good_ = false;
  munge_ctx_t context_ = nullptr;
  decltype(&munge_ctx_create) create_ = nullptr;
  decltype(&munge_ctx_set) set_ = nullptr;
  decltype(&munge_encode) encode_ = nullptr;
  decltype(&munge_decode) decode_ = nullptr;
  decltype(&munge_strerror) strerror_ = nullptr;
};

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

std::string text_of(const Address& address) {
  char host[NI_MAXHOST] = {};
  const auto* bytes = reinterpret_cast<const sockaddr*>(&address.bytes);
  return getnameinfo(bytes, address.size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

// Returns the first address of `family` for the name.
Address look_up(const char* name, std::uint16_t port, int family, int flags) {
  addrinfo hints = {};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  if (family == AF_INET6) hints.ai_flags |= AI_V4MAPPED;
  addrinfo* found = nullptr;
  Address address;
  if (getaddrinfo(name, std::to_string(port).c_str(), &hints, &found) != 0) return address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

// Installs a filter that admits only datagrams from ports below 1024, which only root can use. The filter
// reads the sender's port at the start of the UDP header.
bool admit_privileged_ports(int socket) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0),
                        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, IPPORT_RESERVED, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, kLongestDatagram)};
  const sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

// Listens on place.address or, if it is empty, on all IPv6 and IPv4 addresses of the host. Returns an empty
// descriptor on failure, with errno.
UniqueFd open_socket(const MailPlace& place, int& family) {
  const bool all = place.address.empty();
  const std::vector<int> families = all ? std::vector{AF_INET6, AF_INET} : std::vector{AF_UNSPEC};
  for (const int wanted : families) {
    const Address own = look_up(all ? nullptr : place.address.c_str(), place.port, wanted, AI_PASSIVE);
    if (own.size == 0) {
      errno = EADDRNOTAVAIL;
      continue;
    }
    UniqueFd socket(::socket(own.bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket || !admit_privileged_ports(socket.get())) continue;
    const int none = 0;
    if (all && wanted == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none);
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&own.bytes), own.size) != 0) continue;
    family = own.bytes.ss_family;
    return socket;
  }
  return UniqueFd();
}

class Carrier {
 public:
  Carrier(const System& system, const MailPlace& place, int end) : place_(place), end_(end), munge_(system) {}

  void run() {
    if (!munge_ || !munge_.start(place_.munge_socket)) return tell_trouble("libmunge.so.2 cannot be loaded");
    socket_ = open_socket(place_, family_);
    if (!socket_)
      return tell_trouble("cannot listen on port " + std::to_string(place_.port) + ": " +
                          std::strerror(errno));
    tell(MailLine::Kind::ready, {}, {});
    for (;;) {
      pollfd ready[] = {{.fd = end_, .events = POLLIN, .revents = 0},
                        {.fd = socket_.get(), .events = POLLIN, .revents = 0}};
      if (poll(ready, 2, -1) < 0 && errno != EINTR) return;
      if (ready[0].revents != 0 && !send_message()) return;
      if (ready[1].revents != 0) receive_message();
    }
  }

 private:
  void tell(MailLine::Kind kind, std::string_view host, std::string_view text) const {
    MailLine line{.kind = kind};
    if (host.size() >= sizeof line.host || text.size() >= sizeof line.text) return;
    host.copy(line.host, host.size());
    text.copy(line.text, text.size());
    static_cast<void>(send(end_, &line, sizeof line, MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  void tell_trouble(const std::string& what) {
    in_trouble_ = true;
    tell(MailLine::Kind::trouble, {}, what);
  }

  // Sends a message from the daemon. Returns false if the daemon has ended.
  bool send_message() {
    MailLine line;
    const ssize_t size = recv(end_, &line, sizeof line, MSG_DONTWAIT);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size != sizeof line) return false;
    line.host[sizeof line.host - 1] = line.text[sizeof line.text - 1] = '\0';
    const Address to = look_up(line.host, place_.port, family_, AI_NUMERICHOST);
    if (to.size == 0) return true;
    std::string why;
    const std::string credential = munge_.encode(line.text, why);
    if (credential.empty()) {
      tell_trouble("munge: " + why);
      return true;
    }
    if (std::exchange(in_trouble_, false)) tell(MailLine::Kind::ready, {}, {});
    static_cast<void>(sendto(socket_.get(), credential.data(), credential.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&to.bytes), to.size));
    return true;
  }

  void receive_message() {
    char datagram[kLongestDatagram + 1];
    Address from;
    from.size = sizeof from.bytes;
    const ssize_t size = recvfrom(socket_.get(), datagram, kLongestDatagram, MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&from.bytes), &from.size);
    if (size <= 0) return;
    datagram[size] = '\0';
    const std::string text = munge_.decode(datagram);
    const std::string host = text_of(from);
    if (!text.empty() && !host.empty()) tell(MailLine::Kind::message, host, text);
  }

  const MailPlace& place_;
  const int end_;
  Munge munge_;
  UniqueFd socket_;
  int family_ = AF_UNSPEC;
  bool in_trouble_ = false;
};

}  // namespace

void carry_mail(const System& system, const MailPlace& place, int end) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // frees the port if the daemon dies
  Carrier(system, place, end).run();
}

}  // namespace sharedgpu
