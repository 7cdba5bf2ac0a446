// SPDX-License-Identifier: Apache-2.0
// The sessions of a well-behaved job, without CUDA. Each session is a process that requests the GPU from time
// to time, pretends to work for a moment, and obeys the arbiter.
//
// Runs within `sharedgpu run`. Each session prints `attached` and the microseconds from connect() to
// Attached, and prints `turns` and their number before it ends. Exit status 1 if the arbiter did not serve a
// session, or stopped serving it.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "config/quantities.h"
#include "protocol/channel.h"
#include "protocol/gpu_names.h"
#include "protocol/lease_page.h"
#include "protocol/messages.h"
#include "tests/programs/command_line.h"

using namespace sharedgpu;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

struct Options {
  unsigned sessions = 10;
  double seconds = 10;
  double every = 5;
  double work_ms = 50;
  double move_ms = 200;
  std::string bytes = "16MiB";
};

// Converts a number of seconds.
Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

RunToken token_of(const char* text) {
  RunToken token{};
  for (unsigned i = 0; text != nullptr && i < sizeof token.bytes && text[2 * i] != '\0'; ++i) {
    const char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
    token.bytes[i] = static_cast<std::uint8_t>(std::strtoul(digits, nullptr, 16));
  }
  return token;
}

class Session {
 public:
  Session(const Options& options, unsigned seed)
      : random_(seed),
        every_(options.every),
        work_(seconds(options.work_ms / 1000)),
        move_(seconds(options.move_ms / 1000)) {
    use_.swappable = parse_size(options.bytes).value_or(Bytes{});
    use_.context = mebibytes(1);
  }

  // Returns false if the arbiter does not serve the session.
  bool begin() {
    const Clock::time_point start = Clock::now();
    Attach attach;
    const char* gpus = std::getenv("SHAREDGPU_GPUS");
    const std::string first = gpus == nullptr ? "" : std::string(gpus).substr(0, std::string(gpus).find(','));
    if (!parse_gpu(first, attach.gpu) || channel_.connect(std::getenv("SHAREDGPU_SOCKET")) != 0) return false;
    Hello hello;
    hello.token = token_of(std::getenv("SHAREDGPU_TOKEN"));
    if (channel_.send(Message::of(hello)) != 0 || !expect(MessageType::welcome)) return false;
    if (channel_.send(Message::of(attach)) != 0 || !expect(MessageType::attached)) return false;
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
    std::printf("attached %lld\n", static_cast<long long>(took.count()));
    std::fflush(stdout);
    return channel_.send(Message::of(Usage{.request = 1, .use = use_, .moved = {}})) == 0;
  }

  // Returns false if the connection to the arbiter was lost.
  bool live(Clock::duration time) {
    const Clock::time_point end = Clock::now() + time;
    next_ = Clock::now() + pause();
    while (Clock::now() < end) {
      if (!hear(std::min(next_, end))) return false;
      if (Clock::now() >= next_) act();
    }
    std::printf("turns %u\n", turns_);
    return true;
  }

 private:
  bool open() const { return LeasePage::is_open(page_->gate.load(std::memory_order_relaxed)); }
  Clock::duration pause() {
    return seconds(std::uniform_real_distribution<double>(0.5 * every_, 1.5 * every_)(random_));
  }

  // If the gate is open, works and then pauses. Otherwise requests a turn, and checks the gate again later.
  void act() {
    if (working_) {
      working_ = false;
      idle_since_ = Clock::now();
      next_ = idle_since_ + pause();
      if (page_->contended.load(std::memory_order_relaxed) != 0) tell_idle();
    } else if (open()) {
      ++turns_;
      wants_ = false;
      working_ = true;
      next_ = Clock::now() + work_;
    } else {
      if (!std::exchange(wants_, true)) channel_.send(Message::of(Want{}));
      next_ = Clock::now() + milliseconds(20);
    }
  }

  void tell_idle() {
    if (!working_ && open())
      channel_.send(
          Message::of(Idle{.epoch = epoch_, .idle = Clock::now() - idle_since_ + milliseconds(20)}));
  }

  bool hear(Clock::time_point until) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    pollfd ready{.fd = channel_.fd(), .events = POLLIN, .revents = 0};
    const int heard = poll(&ready, 1, left > 0 ? static_cast<int>(left) + 1 : 0);
    if (heard <= 0) return true;
    Message message;
    UniqueFd descriptor;
    if (channel_.receive(message, descriptor) != 0) return false;
    obey(message);
    return true;
  }

  void obey(const Message& message) {
    switch (message.type) {
      case MessageType::verdict:
        use_.resident = std::min(use_.swappable, message.as<Verdict>().allowed);
        channel_.send(Message::of(Usage{.request = 0, .use = use_, .moved = {}}));
        break;
      case MessageType::restore:
        epoch_ = message.as<Restore>().epoch;
        move_to(std::min(use_.swappable, message.as<Restore>().allowed));
        if (use_.resident == use_.swappable)
          channel_.send(Message::of(Ready{.epoch = epoch_, .use = use_, .moved = {}}));
        break;
      case MessageType::evict:
        move_to(std::min(use_.resident, message.as<Evict>().allowed));
        channel_.send(Message::of(Usage{.request = 0, .use = use_, .moved = {}}));
        break;
      case MessageType::revoke:
        release(message.as<Revoke>().epoch, message.as<Revoke>().order);
        break;
      case MessageType::step:
        release(message.as<Step>().epoch, message.as<Step>().order);
        break;
      case MessageType::others_wait:
        tell_idle();
        break;
      default:
        break;
    }
  }

  void move_to(Bytes resident) {
    if (use_.resident != resident) std::this_thread::sleep_for(move_);
    use_.resident = resident;
  }

  void release(Epoch epoch, std::uint64_t order) {
    epoch_ = epoch;
    channel_.send(Message::of(Released{.epoch = epoch,
                                       .order = order,
                                       .wants = wants_ ? std::uint8_t{1} : std::uint8_t{0},
                                       .overuse = {},
                                       .use = use_,
                                       .submission = {}}));
  }

  bool expect(MessageType type) {
    for (;;) {
      Message message;
      UniqueFd descriptor;
      if (channel_.receive(message, descriptor) != 0 || message.type == MessageType::refused) return false;
      if (message.type == MessageType::welcome) {
        epoch_ = message.as<Welcome>().epoch;
        page_ = map_lease_page(descriptor.get(), nullptr);
        if (page_ == nullptr) return false;
      }
      if (message.type == type) return true;
      obey(message);
    }
  }

  std::mt19937 random_;
  const double every_;
  const Clock::duration work_;
  const Clock::duration move_;
  Channel channel_;
  const LeasePage* page_ = nullptr;
  Epoch epoch_;
  MemoryUse use_;
  bool wants_ = false;
  bool working_ = false;
  Clock::time_point idle_since_ = Clock::now();
  Clock::time_point next_;
  unsigned turns_ = 0;
};

int live(const Options& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Session session(options, static_cast<unsigned>(getpid()));
  if (!session.begin()) {
    std::fprintf(stderr, "load: pid %d: not served\n", getpid());
    return 1;
  }
  if (session.live(seconds(options.seconds))) return 0;
  std::fprintf(stderr, "load: pid %d: the arbiter is gone\n", getpid());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  programs::CommandLine app("Sessions that want the GPU from time to time.");
  Options options;
  app.add_option("--sessions", options.sessions, "processes with a session each").between(1, 10'000);
  app.add_option("--seconds", options.seconds, "how long to work").not_negative();
  app.add_option("--every", options.every, "seconds between two pieces of work, on average").positive();
  app.add_option("--work-ms", options.work_ms, "how long a piece of work takes").not_negative();
  app.add_option("--move-ms", options.move_ms, "how long its memory takes to the GPU, or away")
      .not_negative();
  app.add_option("--bytes", options.bytes, "device memory that each says it has");
  app.parse(argc, argv);
  for (unsigned i = 0; i < options.sessions; ++i)
    if (fork() == 0) std::exit(live(options));
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed += status == 0 ? 0 : 1;
  return failed == 0 ? 0 : 1;
}
