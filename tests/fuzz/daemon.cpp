// SPDX-License-Identifier: Apache-2.0
// Any peers, messages, bytes, descriptors and disconnects, on a host that fails: the arbiter survives them,
// serves a tenant that behaves, and keeps no descriptor of those that are gone.
//
// The input is a list of operations. Each is a byte that chooses it and the bytes that it takes. How many
// messages the arbiter was sent in all is printed at the end.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <asio/io_context.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/arbiter.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/server.h"
#include "arbiter/daemon/survey_child.h"
#include "fake_host.h"
#include "input.h"
#include "simulation/session.h"

namespace sharedgpu::fuzz {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kSlurmUser = 900;
constexpr uid_t kHonestUser = 1010;
constexpr std::uint32_t kHonestJob = 99;
constexpr GpuUuid kGpus[] = {{{1}}, {{2}}};

std::uint64_t messages = 0;

// ---- the daemon ----

// Without those of the last answers to status queries, of which there are eight at most.
std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone);
    count += file.find("sharedgpu-status") == std::string::npos ? 1 : 0;
  }
  return count;
}

// A folder in memory, for the socket and the ledger.
const std::string& folder() {
  static const std::string path = "/dev/shm/sgpu-fuzz." + std::to_string(getpid());
  return path;
}

class Daemon {
 public:
  explicit Daemon(FakeHost& its) : host(its) {
    settings.socket = folder() + "/s.sock";
    settings.state_dir = folder();
    settings.slurm_user = "slurm";
    settings.memory_reserve = {.bytes = {}, .percent = 0};
    settings.max_overuse = 10s;
    settings.on_overuse = Measure::cancel;
    settings.unmanaged = Measure::cancel;
    settings.tenants = TenantKind::any;
  }
  ~Daemon() { stop(); }

  // False: it cannot, since the host is at fault.
  bool start() {
    stop();
    loop_.emplace(1);
    schedule_.emplace(*loop_, host);
    closer_.emplace(*loop_, host, *schedule_);
    arbiter.emplace(*loop_, *schedule_, host, settings, std::make_unique<FakeDisk>(host));
    std::vector<GpuInfo> gpus;
    for (const GpuUuid& gpu : kGpus) gpus.push_back({.uuid = gpu, .total = gibibytes(1), .name = "Test GPU"});
    if (!arbiter->start(gpus).ok()) return false;
    UniqueFd listener;
    require(listen_at(settings.socket.c_str(), listener) == 0, "no socket to listen at");
    constexpr std::size_t kPlaces = 64;
    server_.emplace(Connection::Parts{.loop = *loop_, .schedule = *schedule_, .closer = *closer_}, host,
                    *arbiter, kPlaces);
    server_->start(std::move(listener));
    return true;
  }
  // As when the process is killed: nobody is told.
  void stop() {
    server_.reset();
    arbiter.reset();
    closer_.reset();
    schedule_.reset();
    loop_.reset();
  }
  // Does all that can be done at this time.
  void run() {
    loop_->restart();
    while (loop_->poll() > 0) {
    }
  }

  FakeHost& host;
  Settings settings;
  std::optional<Arbiter> arbiter;

 private:
  std::optional<asio::io_context> loop_;
  std::optional<Schedule> schedule_;
  std::optional<Closer> closer_;
  std::optional<Server> server_;
};

// Answers a question of the survey that waits, by the truth: nobody has memory but the process.
// False: none waits.
bool answer_survey(const FakeHost& host, pid_t pid, Bytes its) {
  char question;
  if (host.survey() < 0 || recv(host.survey(), &question, 1, MSG_DONTWAIT) != 1) return false;
  using Kind = SurveyLine::Kind;
  const Bytes all = gibibytes(1);
  const SurveyLine lines[] = {
      {.kind = Kind::gpu, .gpu = kGpus[0], .used = its.count, .free = minus(all, its).count},
      {.kind = Kind::process, .pid = static_cast<std::uint32_t>(pid), .used = its.count},
      {.kind = Kind::gpu, .gpu = kGpus[1], .free = all.count},
      {.kind = Kind::end}};
  return ::send(host.survey(), lines, sizeof lines, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

// A socket that the arbiter takes for one of the process. Empty: too many wait already.
UniqueFd connect(const std::string& path, pid_t pid) {
  const auto address_of = [](const std::string& name, sockaddr_un& address) {
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof address.sun_path);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  };
  sockaddr_un ours = {};
  sockaddr_un theirs = {};
  const socklen_t size = address_of(FakeHost::address_of(pid), ours);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  require(bind(socket.get(), reinterpret_cast<const sockaddr*>(&ours), size) == 0, "no address for a peer");
  address_of(path, theirs);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&theirs), sizeof theirs) != 0) socket.reset();
  return socket;
}

std::string cgroup_of(std::uint32_t job, const std::string& step) {
  return "0::/system.slice/slurmstepd.scope/job_" + std::to_string(job) + "/step_" + step + "/user/task_0\n";
}

// ---- a tenant that behaves ----

class Honest : private simulation::Process {
 public:
  explicit Honest(Daemon& daemon) : daemon_(daemon) {
    pid_ = daemon.host.start(kHonestUser, cgroup_of(kHonestJob, "0")).pid;
  }

  // Takes up its connection anew where that is lost.
  void come() {
    channel_ = Channel(connect(daemon_.settings.socket, pid_));
    if (!channel_) return;
    Hello hello;
    hello.resuming = session_.has_value();
    hello.epoch = session_ ? session_->epoch : Epoch{};
    if (!session_) session_.emplace();
    say(hello);
    say(Attach{.gpu = kGpus[0], .total = gibibytes(1), .name = {}});
    if (hello.resuming != 0) say(Usage{.request = 0, .use = session_->use, .stuck = 0});
    daemon_.run();
    listen();
  }
  // A restart has lost records: it may be served as another tenant, or refused.
  void be_forgotten() { is_forgotten_ = true; }
  bool is_forgotten() const { return is_forgotten_; }
  // Takes so much memory that it has to share the GPU with others in turns.
  void settle() { grow(mebibytes(400)); }
  // Hears what the arbiter says, and obeys.
  void listen() {
    if (!channel_) return;
    Message message;
    UniqueFd descriptor;
    int failure = 0;
    while (channel_ && (failure = channel_.receive(message, descriptor)) == 0) {
      session_->receive(message);
      attached_ = attached_ || message.type == MessageType::attached;
      if (message.type == MessageType::memory_view) viewed_ = message.as<MemoryView>().request;
      if (message.type == MessageType::verdict) take(message.as<Verdict>());
      if (message.type == MessageType::refused) be_refused(message.as<Refused>());
    }
    if (failure != 0 && failure != EAGAIN) channel_.close();
    while (channel_ && session_->begin_order()) obey();
  }
  // The arbiter serves it: at once where it asks for a figure, in time where it asks for memory, for surveys
  // show then that others have none.
  void check() {
    is_surveyed_ = true;
    for (int tries = 0; !channel_ || !attached_; ++tries) {
      require(tries < 10, "an honest process is not served");
      if (!channel_) come();
      wait(1s);
    }
    constexpr std::uint64_t kQuestion = 17;
    viewed_ = 0;
    say(MemoryQuery{.request = kQuestion});
    daemon_.run();
    listen();
    require(viewed_ == kQuestion, "an honest session has no answer");
    for (int tries = 0; surveys_ < kSurveys; ++tries) {
      require(tries < 200, "the arbiter does not look at the GPUs");
      wait(1s);
    }
    grow(mebibytes(1));
  }
  void come_again() {
    if (!channel_) come();
  }

 private:
  void grow(Bytes more) {
    session_->use.swappable += more;
    say(Usage{.request = ++requests_, .use = session_->use, .stuck = 0});
    for (int tries = 0; answered_ != requests_; ++tries) {
      require(tries < 600, "an honest session waits for memory for ever");
      wait(1s);
      if (channel_) continue;  // else the question is asked again
      come();
      say(Usage{.request = requests_, .use = session_->use, .stuck = 0});
    }
  }
  void take(const Verdict& verdict) {
    if (is_forgotten_) return;
    require(verdict.granted != 0, "an honest session is refused memory");
    answered_ = verdict.request;
    session_->take(verdict);
  }
  // A host that cannot tell who it is has it refused.
  void be_refused(const Refused& refused) const {
    if (is_forgotten_ || !daemon_.host.is_well()) return;
    std::fprintf(stderr, "refused: %s\n", refused.reason);
    require(false, "an honest session is refused");
  }
  void wait(Nanoseconds time) {
    daemon_.host.advance(time);
    daemon_.run();
    if (is_surveyed_ && answer_survey(daemon_.host, pid_, session_->use.resident)) ++surveys_;
    daemon_.run();
    listen();
  }
  void obey() {
    for (simulation::Piece piece; !piece.finished;) {
      piece = simulation::carry_out(*session_, *this, gibibytes(1));
      if (piece.report) std::visit([this](const auto& report) { say(report); }, *piece.report);
    }
  }
  Nanoseconds drain(simulation::Session&, MessageType) override { return {}; }
  bool waits(const simulation::Session& session) const override { return session.use.swappable != Bytes{}; }

  template <class Body>
  void say(const Body& body) {
    if (!channel_) return;
    ++messages;
    if (channel_.send(Message::of(body)) != 0) channel_.close();
  }

  Daemon& daemon_;
  pid_t pid_ = 0;
  Channel channel_;
  std::optional<simulation::Session> session_;
  bool attached_ = false, is_surveyed_ = false, is_forgotten_ = false;
  std::uint64_t viewed_ = 0, requests_ = 0, answered_ = 0;
  static constexpr int kSurveys = 4;  // after which no claim of others is believed
  int surveys_ = 0;
};

// ---- the others ----

struct Part {
  uid_t uid = 0;
  std::uint32_t job = 0;  // 0: none
  const char* step = "";
  std::optional<uid_t> namespace_owner = {};
};

// Two of Slurm's own, and users whose processes are in jobs of theirs, in those of others, and in none.
constexpr Part kParts[] = {{.uid = 0},
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

// Settings by which a tenant that behaves is served as before.
constexpr const char* kLines[] = {"Quantum=2s",
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

constexpr const char* kUnfairLines[] = {"Policy=fcfs",
                                        "Policy=priority",
                                        "Policy=deadline",
                                        "MaxPriority=100",
                                        "[partition a]\nPolicy=fcfs",
                                        "[gpu 0]\nPolicy=credit\n[qos b]\nPriority=7"};

class Crowd {
 public:
  // `honest`: null: administrators say anything, so that nobody can count on anything.
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
  // An administrator, on whom the honest tenant relies: it sends nothing that takes away from that.
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
  // Any bytes as the body, or as all of it.
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
  // The same again and again. The answers are not read meanwhile.
  void say_often() {
    std::optional<Peer>& peer = chosen();
    if (!peer) return;
    const Message same = message(*peer);
    for (unsigned i = in_.byte(); i > 0 && peer; --i) {
      send(peer, same);
      daemon_.run();
    }
  }
  // With a descriptor, which the arbiter must not take.
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

  // No host fails for days: a tenant that cannot come for so long is forgotten. The honest tenant does at
  // once what it was told to.
  void wait() {
    constexpr Nanoseconds kTimes[] = {1ms, 10ms, 250ms, 1s, 11s, 5min, 25h};
    const Nanoseconds time = in_.one_of(kTimes);
    if (honest_ != nullptr) honest_->listen();
    daemon_.run();
    host_.advance(host_.is_well() ? time : std::min<Nanoseconds>(time, 1s));
  }
  // Where /proc says that there is no such file, nobody is known to be of a job: then nobody relies on that.
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
      if (in_.one_in(16)) in_.fill(&lines[i], sizeof lines[i]);
    }
    const std::size_t size = in_.one_in(8) ? in_.byte() : (count + 1) * sizeof lines[0];
    // The same for some time: nobody is judged by one survey.
    for (unsigned times = 1 + in_.below(4); times > 0 && host_.survey() >= 0; --times) {
      static_cast<void>(
          ::send(host_.survey(), lines, std::min(size, sizeof lines), MSG_NOSIGNAL | MSG_DONTWAIT));
      daemon_.run();
      host_.advance(10s);
      daemon_.run();
    }
  }

  // ---- messages, of contents that are mostly possible ----

  // Memory as jobs have it, so that not all of it fits; now and then anything.
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
    return job;
  }
  SetLines lines() {
    SetLines lines;
    const std::string_view line =
        honest_ == nullptr && in_.one_in(2) ? in_.one_of(kUnfairLines) : in_.one_of(kLines);
    line.copy(lines.text, sizeof lines.text);
    return lines;
  }
  template <class Body>
  static Message of(const Body& body) {
    return Message::of(body);
  }
  Message message(const Peer& peer) {
    return in_.one_in(3) ? question(peer) : in_.one_in(4) ? order_of_slurm(peer) : report(peer);
  }
  // By a session.
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
                        .moved = {.evicted = in_.size(), .restored = in_.size()}});
    }
  }
  Message question(const Peer& peer) {
    switch (in_.below(6)) {
      case 0:
        return of(StatusQuery{});
      case 1:
        return of(LeaseQuery{.step = in_.one_in(4) ? StepName{.job = kHonestJob, .step = 0} : step()});
      case 2:
        return of(JobQuery{.job = in_.one_in(4) ? kHonestJob : in_.below(5)});
      case 3:
        return of(GpuQuery{.token = peer.token, .gpu = gpu(), .first = in_.byte()});
      case 4:
        return of(RunRequest{.options = options(),
                             .chosen = static_cast<std::uint8_t>(in_.below(2)),
                             .devices = {in_.below(4)},
                             .vouched = static_cast<std::uint8_t>(in_.below(2)),
                             .uid = 1001 + in_.below(3)});
      default:
        return of(MemoryQuery{.request = in_.byte()});
    }
  }
  // Users say it as well, of the honest tenant's job too.
  Message order_of_slurm(const Peer& peer) {
    const std::uint32_t job = is_bound(peer) ? 1 + in_.below(4) : kHonestJob;
    switch (in_.below(5)) {
      case 0:
        return of(EndJob{.job = job});
      case 1:
        return of(SuspendJob{.step = {.job = job, .step = 0},
                             .suspended = static_cast<std::uint8_t>(in_.below(2))});
      case 2:
        return of(lines());
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

// ---- what must hold ----

nlohmann::json status_of(const Daemon& daemon) {
  nlohmann::json status = nlohmann::json::parse(daemon.arbiter->status(), nullptr, false);
  require(!status.is_discarded(), "the status is no JSON");
  require(status["gpus"].size() >= std::size(kGpus), "the status lacks GPUs");
  return status;
}

void check_honest_job(const nlohmann::json& status) {
  for (const auto& tenant : status["tenants"])
    if (tenant["job"] == kHonestJob && tenant["uid"] == kHonestUser) return;
  require(false, "the status lacks the honest job");
}

void register_honest_job(Daemon& daemon, pid_t stepd) {
  Channel channel(connect(daemon.settings.socket, stepd));
  RegisterJob job{.step = {.job = kHonestJob, .step = 0}, .uid = kHonestUser, .options = {}};
  job.options.units = 4;
  channel.send(Message::of(job));
  daemon.run();
}

// Connections that could not be closed for want of a child are closed with the user's next one.
void close_leftovers(Daemon& daemon) {
  for (const Part& part : kParts) {
    FakeProcess& process = daemon.host.start(part.uid, "0::/\n");
    process.namespace_owner = part.namespace_owner;
    Channel channel(connect(daemon.settings.socket, process.pid));
    channel.send({}, STDIN_FILENO);
    daemon.run();
  }
}

void prepare() {
  static const bool once = [] {
    std::filesystem::create_directories(folder());
    const char* level = std::getenv("LOG_LEVEL");  // to look into an input
    require(log::open(level == nullptr ? "off" : level, {}).ok(), "no log");
    std::atexit([] {
      std::filesystem::remove_all(folder());
      std::fprintf(stderr, "messages: %llu\n", static_cast<unsigned long long>(messages));
    });
    return true;
  }();
  static_cast<void>(once);
  for (const auto& file : std::filesystem::directory_iterator(folder())) std::filesystem::remove(file);
}

void live(Input& in, Daemon& daemon, Honest* honest) {
  Crowd crowd(in, daemon, honest);
  while (!in.empty()) crowd.act();
  daemon.host.heal();
  daemon.run();
  const bool is_served = honest != nullptr && !honest->is_forgotten();
  if (is_served) honest->check();
  const nlohmann::json status = status_of(daemon);
  if (is_served) check_honest_job(status);
}

void live_beside_honest(Input& in, Daemon& daemon) {
  register_honest_job(daemon, daemon.host.start(0, "0::/\n").pid);
  Honest honest(daemon);
  honest.come();
  honest.settle();
  live(in, daemon, &honest);
}

void run(Input& in) {
  FakeHost host;
  Daemon daemon(host);
  const bool rotates = in.one_in(4);
  if (rotates) daemon.settings.ledger_size = {2 << 10};
  require(daemon.start(), "the arbiter does not start");
  daemon.run();
  const std::size_t descriptors = open_descriptors();
  if (in.one_in(4))
    live(in, daemon, nullptr);
  else
    live_beside_honest(in, daemon);
  close_leftovers(daemon);
  for (const pid_t pid : host.pids()) host.end(pid);
  for (int i = 0; i < 5; ++i) {
    daemon.run();
    host.advance(1min);
  }
  daemon.run();
  // Files of the ledger that were replaced are open until a thread of its own has brought them to the disk:
  // one that waits for it, and two that it has at hand.
  require(open_descriptors() <= descriptors + (rotates ? 3 : 0), "descriptors are left");
}

}  // namespace
}  // namespace sharedgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sharedgpu::fuzz::prepare();
  sharedgpu::fuzz::Input in(data, size);
  sharedgpu::fuzz::run(in);
  return 0;
}
