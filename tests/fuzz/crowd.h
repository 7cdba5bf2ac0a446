// SPDX-License-Identifier: Apache-2.0
// Peers of the arbiter that send arbitrary messages, on a host whose system calls may fail.
//
// Used by one thread only.
#pragma once

#include <array>
#include <cerrno>
#include <optional>
#include <string_view>

#include "fuzzed_daemon.h"
#include "honest.h"
#include "input.h"

namespace sharedgpu::fuzz {

inline constexpr uid_t kSlurmUser = 900;

struct Part {
  uid_t uid = 0;
  std::uint32_t job = 0;  // 0: none
  const char* step = "";
  std::optional<uid_t> namespace_owner = {};
};

// Root, SlurmUser, and users whose processes are in their own jobs, in jobs of other users, or in no job.
inline constexpr Part kParts[] = {{.uid = 0},
                                  {.uid = kSlurmUser},
                                  {.uid = 1001, .job = 1, .step = "0"},
                                  {.uid = 1001, .job = 1, .step = "1"},
                                  {.uid = 1001},
                                  {.uid = 1002, .job = 2, .step = "batch"},
                                  {.uid = 1002},
                                  {.uid = 1003, .job = 1, .step = "0"},
                                  {.uid = 1003, .job = kHonestJob, .step = "0"},
                                  {.uid = 0, .job = 2, .step = "extern"},
                                  {.uid = 100000, .namespace_owner = 1002}};

struct Peer {
  const Part* part = nullptr;
  pid_t pid = 0;
  Channel channel;
  Epoch epoch;
  std::uint64_t order = 0;
  RunToken token;
};

// Lines for SetLines messages; some are invalid. With each of these lines, the arbiter must still serve a
// well-behaved tenant.
inline constexpr const char* kLines[] = {"Quantum=2s",
                                         "Policy=elastic",
                                         "Policy=round-robin",
                                         "IdleRelease=20ms",
                                         "Shares=units",
                                         "Shares=stated",
                                         "[gpu 1]\nPolicy=elastic",
                                         "Quantum=x",
                                         "[gpu 7]\nPolicy=fcfs",
                                         "[gpu",
                                         ""};

inline constexpr const char* kUnfairLines[] = {"Policy=fcfs",
                                               "Policy=priority",
                                               "Policy=deadline",
                                               "MaxPriority=100",
                                               "[partition a]\nPolicy=fcfs",
                                               "[gpu 0]\nPolicy=credit\n[qos b]\nPriority=7"};

class Crowd {
 public:
  // If `honest` is null, administrators send arbitrary messages, too, and the arbiter guarantees service to
  // no tenant.
  Crowd(Input& in, Daemon& daemon, Honest* honest)
      : in_(in), daemon_(daemon), host_(daemon.host), honest_(honest) {}

  void act() {
    static constexpr void (Crowd::*kOperations[])() = {
        &Crowd::say,           &Crowd::say,       &Crowd::say,  &Crowd::say,
        &Crowd::say,           &Crowd::say,       &Crowd::say,  &Crowd::say,
        &Crowd::say,           &Crowd::say,       &Crowd::say,  &Crowd::say,
        &Crowd::say_bytes,     &Crowd::say_often, &Crowd::come, &Crowd::come,
        &Crowd::come,          &Crowd::pass,      &Crowd::go,   &Crowd::hear,
        &Crowd::hear,          &Crowd::wait,      &Crowd::wait, &Crowd::fail,
        &Crowd::end_process,   &Crowd::survey,    &Crowd::heal, &Crowd::restart,
        &Crowd::change_process};
    (this->*in_.one_of(kOperations))();
    daemon_.run();
    if (honest_ == nullptr) return;
    honest_->come_again();
    honest_->listen();
  }
  void leave() {
    for (auto& peer : peers_) peer.reset();
  }

 private:
  // Returns true if the peer is an administrator and must send no messages that harm the honest tenant.
  bool is_bound(const Peer& peer) const {
    return honest_ != nullptr && (peer.part->uid == 0 || peer.part->uid == kSlurmUser);
  }
  std::optional<Peer>& chosen() { return peers_[in_.below(static_cast<unsigned>(peers_.size()))]; }

  void come() {
    std::optional<Peer>& peer = chosen();
    const Part& part = in_.one_of(kParts);
    pid_t& pid = pids_[static_cast<std::size_t>(&part - kParts)];
    if (host_.find(pid) == nullptr) {
      FakeProcess& process =
          host_.start(part.uid, part.job == 0 ? "0::/user.slice\n" : cgroup_of(part.job, part.step));
      process.namespace_owner = part.namespace_owner;
      pid = process.pid;
    }
    peer.reset();
    UniqueFd socket = connect(daemon_.settings.socket, pid);
    if (!socket) return;
    peer.emplace();
    peer->part = &part;
    peer->pid = pid;
    peer->channel = Channel(std::move(socket));
    if (in_.one_in(2)) return;
    send(peer, Message::of(Hello{}));
    send(peer, Message::of(Attach{.gpu = gpu(), .total = gibibytes(1), .name = {}, .lender = in_.below(3)}));
  }
  void go() { chosen().reset(); }

  void send(std::optional<Peer>& peer, const Message& message, int descriptor = -1) {
    ++messages;
    const int failure = peer->channel.send(message, descriptor);
    if (failure != 0 && failure != EAGAIN) peer.reset();
  }
  void say() {
    std::optional<Peer>& peer = chosen();
    if (peer) send(peer, message(*peer));
  }
  // Sends arbitrary bytes as the body of a message, or as the whole message.
  void say_bytes() {
    std::optional<Peer>& peer = chosen();
    if (!peer) return;
    if (in_.one_in(2)) {
      Message any = message(*peer);
      if (!is_bound(*peer)) in_.fill(any.body, in_.below(sizeof any.body + 1));
      any.version = static_cast<std::uint16_t>(in_.below(12));
      return send(peer, any);
    }
    unsigned char bytes[600];
    const std::size_t size = in_.one_in(3) ? in_.below(8) : sizeof(Message) + in_.byte() - 128;
    in_.fill(bytes, size);
    ++messages;
    if (::send(peer->channel.fd(), bytes, size, MSG_NOSIGNAL) < 0 && errno != EAGAIN) peer.reset();
  }
  // Sends the same message again and again, without reading the answers.
  void say_often() {
    std::optional<Peer>& peer = chosen();
    if (!peer) return;
    const Message same = message(*peer);
    for (unsigned i = in_.byte(); i > 0 && peer; --i) {
      send(peer, same);
      daemon_.run();
    }
  }
  // Sends a descriptor with the message. The arbiter must not accept the descriptor.
  void pass() {
    std::optional<Peer>& peer = chosen();
    if (peer) send(peer, message(*peer), STDIN_FILENO);
  }
  void hear() {
    std::optional<Peer>& peer = chosen();
    if (!peer) return;
    Message message;
    UniqueFd descriptor;
    int failure = 0;
    while ((failure = peer->channel.receive(message, descriptor)) == 0) take(*peer, message);
    if (failure != EAGAIN) peer.reset();
  }
  static void take(Peer& peer, const Message& message) {
    if (message.type == MessageType::welcome) peer.epoch = message.as<Welcome>().epoch;
    if (message.type == MessageType::restore) peer.epoch = message.as<Restore>().epoch;
    if (message.type == MessageType::run_reply) peer.token = message.as<RunReply>().token;
    if (message.type == MessageType::revoke) {
      peer.epoch = message.as<Revoke>().epoch;
      peer.order = message.as<Revoke>().order;
    }
  }

  // Advances the clock, after the honest tenant has obeyed the arbiter's messages. While calls of the host
  // fail, advances it by a second at most: they may prevent the honest tenant from connecting, and the
  // arbiter forgets a tenant that is not connected for days.
  void wait() {
    constexpr Nanoseconds kTimes[] = {1ms, 10ms, 250ms, 1s, 11s, 5min, 25h};
    const Nanoseconds time = in_.one_of(kTimes);
    if (honest_ != nullptr) honest_->listen();
    daemon_.run();
    host_.advance(host_.is_well() ? time : std::min<Nanoseconds>(time, 1s));
  }
  // If there is an honest tenant, reads of files fail only for lack of descriptors or memory: if a file of
  // /proc were missing, the arbiter could not identify the job of a process.
  void fail() {
    constexpr int kErrors[] = {EMFILE, ENOENT, ENOSPC, EIO, ENOMEM, EPERM};
    constexpr int kShortages[] = {EMFILE, ENFILE, ENOMEM};
    int FakeHost::*const kFaults[] = {&FakeHost::descriptors, &FakeHost::peers, &FakeHost::signals,
                                      &FakeHost::forks,       &FakeHost::disk,  &FakeHost::disk};
    host_.*in_.one_of(kFaults) = in_.one_of(kErrors);
    if (in_.one_in(4)) host_.reading = honest_ != nullptr ? in_.one_of(kShortages) : in_.one_of(kErrors);
    host_.random_numbers = !in_.one_in(4);
    host_.children_end = !in_.one_in(4);
  }
  void heal() { host_.heal(); }
  void end_process() { host_.end(in_.one_of(pids_)); }
  void change_process() {
    FakeProcess* process = host_.find(in_.one_of(pids_));
    if (process == nullptr) return;
    process->stopped = in_.one_in(2);
    process->program += in_.below(2);
    host_.used_memory = mebibytes(std::uint64_t{64} * in_.byte());
  }
  void restart() {
    if (restarts_++ >= kMostRestarts) return;
    if (honest_ != nullptr && !host_.holds_all) honest_->be_forgotten();
    if (!daemon_.start()) {
      host_.heal();
      require(daemon_.start(), "the arbiter does not start again");
    }
    leave();
  }
  void survey() {
    SurveyLine lines[8] = {};
    const std::size_t count = in_.below(8);
    for (std::size_t i = 0; i < count; ++i) {
      lines[i] = {.kind = i == 0 || in_.one_in(4) ? SurveyLine::Kind::gpu : SurveyLine::Kind::process,
                  .pid = static_cast<std::uint32_t>(in_.one_of(pids_)),
                  .gpu = in_.one_of(kGpus),
                  .used = in_.size().count,
                  .free = in_.size().count};
      if (i > 0 && in_.one_in(4)) lines[i] = meters(lines[i - 1].gpu);
      if (honest_ == nullptr && in_.one_in(4)) lines[i] = health();
      if (in_.one_in(16)) in_.fill(&lines[i], sizeof lines[i]);
    }
    const std::size_t size = in_.one_in(8) ? in_.byte() : (count + 1) * sizeof lines[0];
    // Repeats the survey several times, since the arbiter does not act on a single survey.
    for (unsigned times = 1 + in_.below(4); times > 0 && host_.survey() >= 0; --times) {
      static_cast<void>(
          ::send(host_.survey(), lines, std::min(size, sizeof lines), MSG_NOSIGNAL | MSG_DONTWAIT));
      daemon_.run();
      host_.advance(10s);
      daemon_.run();
    }
  }

  SurveyLine meters(const GpuUuid& gpu) {
    return {.kind = SurveyLine::Kind::meters, .gpu = gpu, .used = in_.size().count, .free = in_.byte()};
  }

  // Returns a line of a survey that reports a failing GPU, or a GPU that works again.
  SurveyLine health() {
    using Kind = SurveyLine::Kind;
    constexpr Kind kKinds[] = {Kind::health, Kind::health, Kind::xid, Kind::ecc_error, Kind::status};
    constexpr std::uint32_t kStatuses[] = {0, 0, kNvmlLost, kNvmlResetRequired, 3};
    constexpr std::uint64_t kNumbers[] = {0, 1, 13, 15, 48, 79};
    return {.kind = in_.one_of(kKinds),
            .pid = in_.one_of(kStatuses),
            .gpu = in_.one_of(kGpus),
            .used = in_.one_of(kNumbers)};
  }

  // ---- messages with mostly valid contents ----

  // Mostly returns sizes that are usual for a job, and so large that not all jobs fit on a GPU together.
  // Sometimes returns arbitrary sizes.
  MemoryUse use() {
    if (in_.one_in(4)) return in_.use();
    MemoryUse use{.swappable = mebibytes(std::uint64_t{4} * in_.byte()),
                  .resident = {},
                  .pinned = {},
                  .context = {},
                  .host = {}};
    use.resident = in_.one_in(2) ? use.swappable : mebibytes(in_.byte());
    if (in_.one_in(4)) use.pinned = mebibytes(in_.byte());
    return use;
  }
  GpuUuid gpu() { return in_.one_in(8) ? GpuUuid{{in_.byte()}} : in_.one_of(kGpus); }
  Epoch epoch(const Peer& peer) { return {peer.epoch.value - (in_.one_in(8) ? 1 : 0)}; }
  std::uint64_t order(const Peer& peer) { return peer.order + (in_.one_in(8) ? in_.byte() : 0); }
  StepName step() { return {.job = in_.below(5), .step = in_.below(3)}; }
  JobOptions options() {
    return {.memory = in_.one_in(4) ? in_.size() : Bytes{},
            .units = in_.below(10),
            .share_request = in_.below(102),
            .share_limit = in_.below(102),
            .priority = honest_ == nullptr ? in_.byte() - 128 : 0,
            .deadline = in_.byte() * 1ms,
            .backend = static_cast<Backend>(in_.below(4)),
            .backend_given = static_cast<std::uint8_t>(in_.below(2)),
            .gpus = in_.below(4)};
  }
  Hello hello(const Peer& peer) {
    Hello hello{.token = peer.token};
    hello.resuming = static_cast<std::uint8_t>(in_.below(2));
    hello.held = static_cast<std::uint8_t>(in_.below(2));
    hello.wants = static_cast<std::uint8_t>(in_.below(2));
    hello.backend = static_cast<Backend>(in_.below(4));
    hello.epoch = epoch(peer);
    hello.gpu = in_.one_in(2) ? gpu() : GpuUuid{};
    return hello;
  }
  RegisterJob job() {
    RegisterJob job{.step = step(), .uid = 1001 + in_.below(3), .options = options()};
    job.devices.bits = in_.below(4);
    job.whole.bits = in_.below(4);
    if (in_.one_in(2)) job.job_class.partition[0] = 'a';
    if (in_.one_in(2)) job.job_class.qos[0] = 'b';
    job.job_class.restarts = in_.below(3);
    if (in_.one_in(2)) job.element = {.array = in_.below(3), .index = in_.below(3)};
    return job;
  }
  SetLines lines() {
    SetLines lines;
    const std::string_view line =
        honest_ == nullptr && in_.one_in(2) ? in_.one_of(kUnfairLines) : in_.one_of(kLines);
    line.copy(lines.text, sizeof lines.text);
    return lines;
  }
  RegisterGang gang(std::uint32_t job, std::uint32_t uid) {
    constexpr const char* kNames[] = {"n1", "n2.site", "", "-", "a b"};
    RegisterGang gang{.job = job, .uid = uid, .nodes = in_.below(4)};
    std::string_view(in_.one_of(kNames)).copy(gang.coordinator, sizeof gang.coordinator);
    return gang;
  }
  DrainGpus drain() {
    constexpr const char* kNames[] = {"0", "1", "0-1", "7", "x", ""};
    DrainGpus drain;
    drain.drained = static_cast<std::uint8_t>(in_.below(2));
    std::string_view(in_.one_of(kNames)).copy(drain.gpus, sizeof drain.gpus);
    std::string_view(in_.one_of(kNames)).copy(drain.reason, sizeof drain.reason);
    return drain;
  }
  template <class Body>
  static Message of(const Body& body) {
    return Message::of(body);
  }
  Message message(const Peer& peer) {
    return in_.one_in(3) ? question(peer) : in_.one_in(4) ? order_of_slurm(peer) : report(peer);
  }
  // Returns a message of the kinds that sessions send.
  Message report(const Peer& peer) {
    switch (in_.below(12)) {
      case 0:
        return of(hello(peer));
      case 1:
        return of(Attach{.gpu = gpu(), .total = in_.size(), .name = {}, .lender = in_.below(3)});
      case 2:
        return of(Want{.host_short = static_cast<std::uint8_t>(in_.below(2))});
      case 3:
        return of(Idle{.epoch = epoch(peer), .idle = 10ms * in_.byte()});
      case 4:
        return of(Ready{.epoch = epoch(peer), .use = use()});
      case 5:
        return of(Released{.epoch = epoch(peer),
                           .order = order(peer),
                           .wants = static_cast<std::uint8_t>(in_.below(2)),
                           .overuse = {},
                           .use = use()});
      case 6:
        return of(Deadlines{.met = in_.byte(), .missed = in_.byte()});
      case 7:
        return of(GiveBack{.epoch = epoch(peer)});
      case 8:
        return of(
            Borrow{.request = 1, .name = {.lender = in_.below(3), .loan = in_.byte()}, .piece = in_.byte()});
      default:
        return of(Usage{.request = in_.below(4),
                        .use = use(),
                        .stuck = static_cast<std::uint8_t>(in_.one_in(4)),
                        .job_host_limit = in_.one_in(4) ? in_.size() : Bytes{},
                        .moved = {.evicted = in_.size(), .restored = in_.size()},
                        .away = in_.one_in(4) ? in_.size() : Bytes{},
                        .exchanges = {.moving = Nanoseconds(in_.byte()),
                                      .waited = Nanoseconds(in_.byte()),
                                      .copied = in_.size(),
                                      .fastest = in_.size()},
                        .uncharged = in_.one_in(4) ? in_.size() : Bytes{}});
    }
  }
  Message question(const Peer& peer) {
    switch (in_.below(6)) {
      case 0:
        return of(StatusQuery{});
      case 1:
        return of(LeaseQuery{.step = in_.one_in(4) ? StepName{.job = kHonestJob, .step = 0} : step()});
      case 2:
        if (in_.one_in(4)) return of(ExchangeQuery{.job = in_.below(5)});
        if (in_.one_in(4)) return of(GpuLossQuery{.job = in_.below(5), .place = in_.below(3)});
        return of(JobQuery{.job = in_.one_in(4) ? kHonestJob : in_.below(5)});
      case 3:
        if (in_.one_in(4)) return of(JoinRun{.token = peer.token});
        return of(GpuQuery{.token = peer.token, .gpu = gpu(), .first = in_.byte()});
      case 4:
        return of(RunRequest{.options = options(),
                             .chosen = static_cast<std::uint8_t>(in_.below(2)),
                             .devices = {in_.below(4)},
                             .vouched = static_cast<std::uint8_t>(in_.below(2)),
                             .uid = 1001 + in_.below(3),
                             .host_memory = Bytes{in_.below(2) * gibibytes(1).count}});
      default:
        if (in_.one_in(4))
          return of(RefusalQuery{.request = in_.byte(), .size = in_.size(), .pinned = in_.byte()});
        return of(MemoryQuery{.request = in_.byte()});
    }
  }
  // Ordinary users, too, send these messages, which only administrators may send, even about the honest
  // tenant's job.
  Message order_of_slurm(const Peer& peer) {
    const std::uint32_t job = is_bound(peer) ? 1 + in_.below(4) : kHonestJob;
    switch (in_.below(6)) {
      case 5:
        if (in_.one_in(4)) return of(ReloadSettings{});
        return is_bound(peer) ? of(EndJob{.job = job}) : of(drain());
      case 0:
        return of(EndJob{.job = job});
      case 1:
        return of(SuspendJob{.step = {.job = job, .step = 0},
                             .suspended = static_cast<std::uint8_t>(in_.below(2))});
      case 2:
        return of(lines());
      case 3:
        return of(gang(job, this->job().uid));
      default:
        RegisterJob its = this->job();
        if (!is_bound(peer)) its.step.job = job;
        return of(its);
    }
  }

  static constexpr int kMostRestarts = 3;
  Input& in_;
  Daemon& daemon_;
  FakeHost& host_;
  Honest* honest_;
  std::array<std::optional<Peer>, 12> peers_;
  std::array<pid_t, std::size(kParts)> pids_ = {};
  int restarts_ = 0;
};

}  // namespace sharedgpu::fuzz
