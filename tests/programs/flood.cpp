// SPDX-License-Identifier: Apache-2.0
// A hostile user: hundreds of connections to the arbiter, each of which sends as many messages as the
// connection accepts. Without CUDA.
//
// Prints a line when it has tried to make each of its connections once. Prints a line with its counts at the
// end, or when SIGTERM ends it. Exit status 0, even if the arbiter refuses everything.
#include <fcntl.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <thread>
#include <vector>

#include "protocol/channel.h"
#include "protocol/gpu_names.h"
#include "protocol/messages.h"
#include "tests/programs/command_line.h"

using namespace sharedgpu;
using Clock = std::chrono::steady_clock;

namespace {

struct Options {
  std::string socket = kDefaultSocket;
  std::string gpu;
  std::string kind = "messages";
  unsigned connections = 256;
  double seconds = 5;
};

struct Counts {
  unsigned long long connections = 0;
  unsigned long long sent = 0;
  unsigned long long answers = 0;
  unsigned long long turned_away = 0;  // connections that failed, or that the arbiter closed
};

constexpr std::size_t kKept = 512;  // number of descriptors from answers that the program keeps open
constexpr unsigned kUnread = 200;   // number of messages that a connection sends without reading the answers
constexpr unsigned kAtOnce = 16;    // most messages that a connection sends before the next connection sends
constexpr unsigned kForever = ~0u;

// Returns the next message of a connection that has already sent `sent` messages. Sessions attach to `gpu`.
using Next = Message (*)(unsigned sent, const GpuUuid& gpu);

Message attach_to(const GpuUuid& gpu) {
  return Message::of(Attach{.gpu = gpu, .total = gibibytes(1), .name = "none", .lender = 1});
}

Message use(Bytes pinned, std::uint64_t request) {
  Usage usage{.request = request, .use = {}, .moved = {}};
  usage.use.pinned = pinned;
  return Message::of(usage);
}

Message next_status(unsigned /*sent*/, const GpuUuid& /*gpu*/) { return Message::of(StatusQuery{}); }

// A session that sends one request after another.
Message next_question(unsigned sent, const GpuUuid& gpu) {
  if (sent == 0) return Message::of(Hello{});
  return sent == 1 ? attach_to(gpu) : Message::of(MemoryQuery{.request = sent});
}

// A session that sends reports, requests and Want messages.
Message next_message(unsigned sent, const GpuUuid& gpu) {
  if (sent == 0) return Message::of(Hello{});
  if (sent == 1) return attach_to(gpu);
  switch (sent % 8) {
    case 0:
      return use(Bytes{sent % 4096}, sent);
    case 1:
      return Message::of(Want{});
    case 2:
      return Message::of(Idle{.epoch = {}, .idle = std::chrono::milliseconds(sent % 512)});
    case 3:
      return Message::of(GpuQuery{.token = {}, .gpu = gpu});
    case 4:
      return Message::of(LeaseQuery{.step = {.job = sent, .step = 0}});
    case 5:
      return Message::of(Borrow{.request = sent, .name = {.lender = 1, .loan = 1}});
    default:
      return use(Bytes{sent % 128}, 0);
  }
}

// A session that connects, attaches, sends an invalid message and disconnects.
Message next_nonsense(unsigned sent, const GpuUuid& gpu) {
  static unsigned all = 0;
  Hello hello;
  hello.token.bytes[0] = 1;
  if (sent == 0) return Message::of(++all % 2 == 0 ? Hello{} : hello);
  if (sent == 1) return attach_to(gpu);
  Message unknown;
  unknown.type = static_cast<MessageType>(999);
  switch (all % 4) {
    case 0:
      return use(Bytes{~std::uint64_t{0}}, 1);
    case 1:
      return Message::of(EndJob{.job = 1});
    case 2:
      return unknown;
    default:
      return Message::of(Hello{});
  }
}

// The kind of a connection's messages, and how many it sends.
struct Part {
  Next next;
  unsigned most;
};

// A kind of flood. In "status" and "unread", the connections of the first half are sessions, which make the
// status longer, and the connections of the second half query the status.
struct Kind {
  const char* name;
  Part first;        // the first half of the connections
  Part second;       // the second half of the connections
  bool reads;        // reads the answers
  bool waits;        // waits for each answer before it sends the next message
  bool begins_anew;  // disconnects when it has sent its last message
};

constexpr Part kSession{.next = next_question, .most = 3};
constexpr Part kReports{.next = next_message, .most = kForever};
constexpr Part kNonsense{.next = next_nonsense, .most = 3};
constexpr Part kNothing{.next = next_nonsense, .most = 0};

constexpr std::array kKinds{
    Kind{.name = "status",
         .first = kSession,
         .second = {.next = next_status, .most = kForever},
         .reads = true,
         .waits = true,
         .begins_anew = false},
    Kind{.name = "messages",
         .first = kReports,
         .second = kReports,
         .reads = true,
         .waits = false,
         .begins_anew = false},
    Kind{.name = "unread",
         .first = {.next = next_question, .most = kUnread},
         .second = {.next = next_status, .most = 1},
         .reads = false,
         .waits = false,
         .begins_anew = false},
    Kind{.name = "connect",
         .first = kNonsense,
         .second = kNonsense,
         .reads = false,
         .waits = false,
         .begins_anew = true},
    Kind{.name = "knock",
         .first = kNothing,
         .second = kNothing,
         .reads = false,
         .waits = false,
         .begins_anew = true},
};

const Kind& kind_named(const std::string& name) {
  for (const Kind& kind : kKinds)
    if (kind.name == name) return kind;
  return kKinds.front();
}

class Flood {
 public:
  Flood(const Options& options, const GpuUuid& gpu)
      : socket_(options.socket), kind_(kind_named(options.kind)), gpu_(gpu), peers_(options.connections) {}

  const Counts& counts() const { return counts_; }
  // Sends and receives up to kAtOnce messages on each connection. Returns false if no connection made
  // progress.
  bool pass() {
    bool any = false;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      peers_[i].part = 2 * i < peers_.size() ? &kind_.first : &kind_.second;
      any = (peers_[i].channel ? step(peers_[i]) : begin(peers_[i])) || any;
    }
    return any;
  }

 private:
  struct Peer {
    const Part* part = nullptr;
    Channel channel;
    unsigned sent = 0;
    bool waits = false;
  };

  bool begin(Peer& peer) {
    peer.sent = 0;
    peer.waits = false;
    if (peer.channel.connect(socket_.c_str()) != 0) {
      ++counts_.turned_away;
      return false;
    }
    fcntl(peer.channel.fd(), F_SETFL, O_NONBLOCK);
    ++counts_.connections;
    return true;
  }

  bool step(Peer& peer) {
    const bool heard = kind_.reads && hear(peer);
    bool said = false;
    for (unsigned i = 0; i < kAtOnce && say(peer); ++i) said = true;
    return heard || said;
  }

  bool hear(Peer& peer) {
    bool any = false;
    for (unsigned i = 0; i < kAtOnce && peer.channel; ++i) {
      Message message;
      UniqueFd file;
      const int error = peer.channel.receive(message, file);
      if (error == EAGAIN) break;
      any = true;
      if (error != 0 && error != EMFILE) return turned_away(peer);
      peer.waits = false;
      ++counts_.answers;
      if (file) keep(std::move(file));
    }
    return any;
  }

  void keep(UniqueFd file) {
    kept_.push_back(std::move(file));
    if (kept_.size() > kKept) kept_.pop_front();
  }

  bool say(Peer& peer) {
    if (!peer.channel || peer.waits) return false;
    if (peer.sent >= peer.part->most) {
      if (kind_.begins_anew) peer.channel.close();
      return false;
    }
    const int error = peer.channel.send(peer.part->next(peer.sent, gpu_));
    if (error == EAGAIN) return false;
    if (error != 0) return !turned_away(peer);
    ++counts_.sent;
    ++peer.sent;
    peer.waits = kind_.waits;
    return true;
  }

  bool turned_away(Peer& peer) {
    ++counts_.turned_away;
    peer.channel.close();
    return true;
  }

  const std::string socket_;
  const Kind& kind_;
  const GpuUuid gpu_;
  std::vector<Peer> peers_;
  std::deque<UniqueFd> kept_;
  Counts counts_;
};

void want_descriptors() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::atomic<bool> terminated = false;

void say_begun(const Options& options) {
  std::printf("flood: %s, %u connections\n", options.kind.c_str(), options.connections);
  std::fflush(stdout);
}

Counts talk(const Options& options, const GpuUuid& gpu, Clock::time_point end) {
  Flood flood(options, gpu);
  flood.pass();
  say_begun(options);
  while (!terminated && Clock::now() < end)
    if (!flood.pass()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return flood.counts();
}

// Many threads open and close connections all the time. So the arbiter's queue of connections is full, and
// many connections wait for a place in it.
Counts crowd(const Options& options, Clock::time_point end) {
  std::atomic<unsigned long long> connections = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < options.connections; ++i)
    threads.emplace_back([&] {
      while (!terminated && Clock::now() < end)
        if (Channel channel; channel.connect(options.socket.c_str(), std::chrono::seconds(1)) == 0)
          ++connections;
    });
  say_begun(options);
  for (std::thread& thread : threads) thread.join();
  return {.connections = connections};
}

void run(const Options& options, const GpuUuid& gpu) {
  want_descriptors();
  std::signal(SIGTERM, [](int) { terminated = true; });
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.seconds));
  const Counts counts = options.kind == "crowd" ? crowd(options, end) : talk(options, gpu, end);
  std::printf("flood: %llu connections, %llu messages, %llu answers, turned away %llu times\n",
              counts.connections, counts.sent, counts.answers, counts.turned_away);
}

}  // namespace

int main(int argc, char** argv) {
  programs::CommandLine app("Floods the arbiter from hundreds of connections.");
  Options options;
  app.add_option("--socket", options.socket, "the arbiter's");
  app.add_option("--gpu", options.gpu, "UUID of the GPU; empty: a GPU that does not exist");
  app.add_option(
         "--kind", options.kind,
         "status: half of them are sessions, the others ask for it and keep the answers; messages: "
         "reports and asks; unread: the same, and "
         "reads no answer; connect: comes, says nonsense and goes; knock: comes and goes; crowd: the same, "
         "with a thread for each")
      .one_of({"status", "messages", "unread", "connect", "knock", "crowd"});
  app.add_option("--connections", options.connections, "at once").between(1, 100'000);
  app.add_option("--seconds", options.seconds, "for so long").not_negative();
  app.parse(argc, argv);
  GpuUuid gpu{{1}};
  if (!options.gpu.empty() && !parse_gpu(options.gpu, gpu)) {
    std::fprintf(stderr, "flood: which GPU?\n");
    return 1;
  }
  run(options, gpu);
  return 0;
}
