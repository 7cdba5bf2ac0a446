// SPDX-License-Identifier: Apache-2.0
// The arbiter's reaction to each message in five cases: the sender may send it, has the wrong role, or is not
// authorized; the message has wrong numbers, or a wrong size.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "host.h"

namespace sharedgpu::test {
namespace {

// The texts of reactions: "Welcome", "RegisterReply 0", "Refused (why)" or "closed", followed by what was
// logged.
std::string name_of(const Message& message) {
  const std::string first = std::to_string(message.body[0]);
  switch (message.type) {
    case MessageType::welcome:
      return "Welcome";
    case MessageType::attached:
      return "Attached";
    case MessageType::verdict:
      return "Verdict";
    case MessageType::memory_view:
      return "MemoryView";
    case MessageType::refusal_reply:
      return "RefusalReply";
    case MessageType::lent:
      return "Lent";
    case MessageType::refused:
      return "Refused (" + std::string(message.as<Refused>().reason) + ")";
    case MessageType::status_reply:
      return "StatusReply";
    case MessageType::run_reply:
      return "RunReply";
    case MessageType::register_reply:
      return "RegisterReply " + first;
    case MessageType::lease_reply:
      return "LeaseReply " + std::to_string(message.as<LeaseReply>().known);
    case MessageType::gpu_reply:
      return "GpuReply " + first;
    case MessageType::end_job_reply:
      return "EndJobReply " + first;
    case MessageType::register_gang_reply:
      return "RegisterGangReply " + first;
    case MessageType::drain_reply:
      return "DrainReply " + first;
    case MessageType::reload_reply:
      return "ReloadReply " + first;
    case MessageType::set_reply:
      return "SetReply " + first;
    case MessageType::suspend_reply:
      return "SuspendReply " + first;
    case MessageType::job_reply:
      return "JobReply " + std::to_string(message.as<JobReply>().known);
    case MessageType::join_reply:
      return "JoinReply " + first;
    case MessageType::exchange_reply:
      return "ExchangeReply " + std::to_string(message.as<ExchangeReply>().known);
    case MessageType::gpu_loss_reply:
      return "GpuLossReply " + std::to_string(message.as<GpuLossReply>().known);
    default:
      return "message " + std::to_string(static_cast<int>(message.type));
  }
}

std::string text_of(const Guest::Reaction& reaction, const std::vector<std::string>& logged) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  for (const Message& message : reaction.answers) add(name_of(message));
  if (reaction.closed) add("closed");
  for (const std::string& line : logged) add(line);
  return text.empty() ? "nothing" : text;
}

enum class In { new_connection, session, run };

// The arbiter's reaction to `message` from a connection in the role `role`.
std::string reaction_to(const Message& message, In role, uid_t uid = 0) {
  Host host;
  host.start();
  Guest guest(host, uid);
  if (role == In::session) {
    REQUIRE(guest.say(Hello{}).find<Welcome>());
    REQUIRE(guest.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
  }
  if (role == In::run) REQUIRE(guest.say(RunRequest{}).find<RunReply>());
  REQUIRE(host.new_log_lines().empty());
  const Guest::Reaction reaction = guest.say(message);
  return text_of(reaction, host.new_log_lines());
}

template <class Body>
std::string reaction_to(const Body& body, In role, uid_t uid = 0) {
  return reaction_to(Message::of(body), role, uid);
}

RegisterJob job(std::uint32_t number) {
  return {.step = {.job = number, .step = 0}, .uid = kUser, .options = {}};
}

struct Row {
  Message message;
  std::string new_connection, session, run;
};

// The reactions to messages from root, who is an administrator.
constexpr char kNoFile[] =
    "ReloadReply 1; error: pid N, uid 0: the settings stay as they are: this arbiter has no file of settings";

const std::vector<Row> kAsAdministrator = {
    {Message::of(Hello{}), "Welcome", "closed; warning: process N, pid N: dropped: a second Hello",
     "closed; warning: run 1, pid N: dropped: a second Hello"},
    {Message::of(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}),
     "closed; warning: pid N: dropped: Attach before Hello", "Attached",
     "closed; warning: run 1, pid N: dropped: Attach before Hello"},
    {Message::of(Usage{.request = 1, .use = {}}),
     "closed; warning: pid N: dropped: a message of a session before its Hello", "Verdict",
     "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(Want{}), "closed; warning: pid N: dropped: a message of a session before its Hello",
     "nothing", "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(Idle{}), "closed; warning: pid N: dropped: a message of a session before its Hello",
     "nothing", "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(Ready{}), "closed; warning: pid N: dropped: a message of a session before its Hello",
     "nothing", "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(Released{}), "closed; warning: pid N: dropped: a message of a session before its Hello",
     "nothing", "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(MemoryQuery{}), "closed; warning: pid N: dropped: a message of a session before its Hello",
     "MemoryView", "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(RefusalQuery{}), "closed; warning: pid N: dropped: a message of a session before its Hello",
     "RefusalReply", "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(Borrow{}), "closed; warning: pid N: dropped: Borrow before Hello", "Lent",
     "closed; warning: run 1, pid N: dropped: Borrow before Hello"},
    {Message::of(Deadlines{}), "closed; warning: pid N: dropped: a message of a session before its Hello",
     "nothing", "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(GiveBack{}), "closed; warning: pid N: dropped: a message of a session before its Hello",
     "nothing", "closed; warning: run 1, pid N: dropped: a message of a session before its Hello"},
    {Message::of(StatusQuery{}), "StatusReply", "StatusReply", "StatusReply"},
    {Message::of(RunRequest{}), "RunReply",
     "closed; warning: process N, pid N: dropped: a RunRequest on the connection of a session",
     "closed; warning: run 1, pid N: dropped: a RunRequest on the connection of a session"},
    {Message::of(JoinRun{}), "JoinReply 0",
     "closed; warning: process N, pid N: dropped: a JoinRun on a connection that is in use",
     "closed; warning: run 1, pid N: dropped: a JoinRun on a connection that is in use"},
    {Message::of(job(12)), "RegisterReply 1", "RegisterReply 1", "RegisterReply 1"},
    {Message::of(LeaseQuery{.step = {.job = 12, .step = 0}}), "LeaseReply 0", "LeaseReply 0", "LeaseReply 0"},
    {Message::of(GpuQuery{.token = {}, .gpu = kHostGpu}), "GpuReply 1", "GpuReply 1", "GpuReply 1"},
    {Message::of(SuspendJob{.step = {.job = 12, .step = 0}}), "SuspendReply 1", "SuspendReply 1",
     "SuspendReply 1"},
    {Message::of(JobQuery{.job = 12}), "JobReply 0", "JobReply 0", "JobReply 0"},
    {Message::of(GpuLossQuery{.job = 12}), "GpuLossReply 0", "GpuLossReply 0", "GpuLossReply 0"},
    {Message::of(ExchangeQuery{.job = 12}), "ExchangeReply 0", "ExchangeReply 0", "ExchangeReply 0"},
    {Message::of(SetLines{.text = "Quantum=3s"}), "SetReply 1", "SetReply 1", "SetReply 1"},
    {Message::of(ReloadSettings{}), kNoFile, kNoFile, kNoFile},
    {Message::of(EndJob{.job = 12}), "EndJobReply 1", "EndJobReply 1", "EndJobReply 1"},
    {Message::of(RegisterGang{.job = 12, .nodes = 2, .coordinator = "n1"}), "RegisterGangReply 1",
     "RegisterGangReply 1", "RegisterGangReply 1"},
    {Message::of(DrainGpus{.drained = 1, .gpus = "0"}), "DrainReply 1", "DrainReply 1", "DrainReply 1"},
};

TEST_CASE("Each message in each role") {
  for (const Row& row : kAsAdministrator) {
    INFO("type " << static_cast<int>(row.message.type));
    CHECK(reaction_to(row.message, In::new_connection) == row.new_connection);
    CHECK(reaction_to(row.message, In::session) == row.session);
    CHECK(reaction_to(row.message, In::run) == row.run);
  }
}

// A message that only administrators may send, and the reaction to another user.
const std::vector<std::pair<Message, std::string>> kAdministrators = {
    {Message::of(SetLines{.text = "Quantum=3s"}),
     "SetReply 0; warning: pid N, uid 4321: may not change settings"},
    {Message::of(ReloadSettings{}), "ReloadReply 0; warning: pid N, uid 4321: may not reload settings"},
    {Message::of(job(12)), "RegisterReply 0; warning: pid N, uid 4321: may not register job 12"},
    {Message::of(DrainGpus{.drained = 1, .gpus = "0"}),
     "DrainReply 0; warning: pid N, uid 4321: may not drain GPUs"},
    {Message::of(RegisterGang{.job = 12, .nodes = 2, .coordinator = "n1"}),
     "RegisterGangReply 0; warning: pid N, uid 4321: may not register the nodes of job 12"},
    {Message::of(EndJob{.job = 12}), "EndJobReply 0; warning: pid N, uid 4321: may not end job 12"},
    {Message::of(SuspendJob{.step = {.job = 12, .step = 0}}),
     "SuspendReply 0; warning: pid N, uid 4321: may not suspend job 12"},
};

TEST_CASE("Each message as a user who administers nothing") {
  for (const Row& row : kAsAdministrator) {
    INFO("type " << static_cast<int>(row.message.type));
    const auto privileged =
        std::find_if(kAdministrators.begin(), kAdministrators.end(),
                     [&](const auto& entry) { return entry.first.type == row.message.type; });
    const bool allowed = privileged == kAdministrators.end();
    CHECK(reaction_to(row.message, In::new_connection, kUser) ==
          (allowed ? row.new_connection : privileged->second));
    CHECK(reaction_to(row.message, In::session, kUser) == (allowed ? row.session : privileged->second));
    CHECK(reaction_to(row.message, In::run, kUser) == (allowed ? row.run : privileged->second));
  }
  RunRequest vouched;
  vouched.vouched = 1;
  const std::string why =
      "only an administrator may set the units or the host memory of a run or start it for another user";
  CHECK(reaction_to(vouched, In::new_connection, kUser) ==
        "Refused (" + why + "); closed; warning: pid N: dropped: " + why);
  CHECK(reaction_to(vouched, In::new_connection) == "RunReply");
}

TEST_CASE("Messages of types that no peer may send") {
  for (int type = 0; type < 1000; ++type) {
    if (std::any_of(kAsAdministrator.begin(), kAsAdministrator.end(),
                    [&](const Row& row) { return static_cast<int>(row.message.type) == type; }))
      continue;
    Message message = Message::of(Want{});
    message.type = static_cast<MessageType>(type);
    INFO("type " << type);
    Host host;
    host.start();
    Guest guest(host);
    const Guest::Reaction reaction = guest.say(message);
    CHECK(text_of(reaction, host.new_log_lines()) ==
          "closed; warning: pid N: dropped: a message of unknown type");
    if (type > 128) type += 100;
  }
}

TEST_CASE("Messages in the wrong size, or of another protocol") {
  for (const Row& row : kAsAdministrator) {
    unsigned char bytes[sizeof(Message) + 1] = {};
    std::memcpy(bytes, &row.message, sizeof(Message));
    for (const std::size_t size : {std::size_t{0}, std::size_t{16}, sizeof(Message) - 1, sizeof bytes}) {
      INFO("type " << static_cast<int>(row.message.type) << ", " << size << " bytes");
      Host host;
      host.start();
      Guest guest(host);
      REQUIRE(send(guest.channel.fd(), bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
      const Guest::Reaction reaction = guest.hear();
      CHECK(text_of(reaction, host.new_log_lines()) == "closed; warning: pid N: dropped: Protocol error");
    }
    Host host;
    host.start();
    Guest guest(host);
    bytes[0] ^= 1;  // the magic number
    REQUIRE(send(guest.channel.fd(), bytes, sizeof(Message), MSG_NOSIGNAL) == sizeof(Message));
    const Guest::Reaction reaction = guest.hear();
    CHECK(text_of(reaction, host.new_log_lines()) == "closed; warning: pid N: dropped: Protocol error");
  }
}

// ---- impossible numbers ----

constexpr Bytes kTooLarge{(std::uint64_t{1} << 50) + 1};
constexpr Bytes kTooMuchMoved{(std::uint64_t{1} << 60) + 1};
const std::string kImpossible = "closed; warning: process N, pid N: dropped: a message with invalid numbers";

std::vector<MemoryUse> impossible_uses() {
  std::vector<MemoryUse> uses;
  for (Bytes MemoryUse::*field : {&MemoryUse::swappable, &MemoryUse::resident, &MemoryUse::pinned,
                                  &MemoryUse::context, &MemoryUse::host}) {
    MemoryUse use{};
    use.*field = kTooLarge;
    uses.push_back(use);
  }
  // Wrong reports: each of the three counts must include `settling` (memory that is being pinned), but one
  // count is smaller than `settling`.
  const Bytes one = mebibytes(1);
  MemoryUse settling{.swappable = one, .resident = one, .pinned = one, .context = {}, .host = {}};
  settling.settling = one;
  for (Bytes MemoryUse::*field : {&MemoryUse::swappable, &MemoryUse::resident, &MemoryUse::pinned}) {
    MemoryUse use = settling;
    use.*field = {};
    uses.push_back(use);
  }
  return uses;
}

TEST_CASE("Impossible numbers of a session") {
  for (const MemoryUse& use : impossible_uses()) {
    CHECK(reaction_to(Usage{.request = 1, .use = use}, In::session) == kImpossible);
    CHECK(reaction_to(Ready{.epoch = {}, .use = use}, In::session) == kImpossible);
    CHECK(reaction_to(Released{.epoch = {}, .use = use}, In::session) == kImpossible);
  }
  CHECK(reaction_to(Usage{.request = 1, .use = {}, .away = Bytes{(std::uint64_t{1} << 50) + 1}},
                    In::session) == kImpossible);
  CHECK(reaction_to(Usage{.request = 1, .use = {}, .uncharged = Bytes{(std::uint64_t{1} << 50) + 1}},
                    In::session) == kImpossible);
  for (const Traffic& moved : {Traffic{.evicted = kTooMuchMoved, .restored = {}},
                               Traffic{.evicted = {}, .restored = kTooMuchMoved}}) {
    CHECK(reaction_to(Usage{.request = 1, .use = {}, .moved = moved}, In::session) == kImpossible);
    CHECK(reaction_to(Ready{.epoch = {}, .use = {}, .moved = moved}, In::session) == kImpossible);
  }
  const Nanoseconds too_long = std::chrono::hours(24 * 365 * 101);
  for (const Exchanges& exchanges :
       {Exchanges{.moved = {.evicted = kTooMuchMoved, .restored = {}}}, Exchanges{.copied = kTooMuchMoved},
        Exchanges{.fastest = kTooMuchMoved}, Exchanges{.moving = Nanoseconds{-1}},
        Exchanges{.waited = too_long}, Exchanges{.slowed = Nanoseconds{-1}}})
    CHECK(reaction_to(Usage{.request = 1, .use = {}, .exchanges = exchanges}, In::session) == kImpossible);
  for (const Nanoseconds time : {Nanoseconds{-1}, Nanoseconds(std::chrono::hours(24 * 365))}) {
    CHECK(reaction_to(Released{.epoch = {}, .use = {}, .submission = time}, In::session) == kImpossible);
    CHECK(reaction_to(Idle{.epoch = {}, .idle = time}, In::session) == kImpossible);
  }
  const std::uint64_t too_many = (std::uint64_t{1} << 32) + 1;
  CHECK(reaction_to(Deadlines{.met = too_many, .missed = 0}, In::session) == kImpossible);
  CHECK(reaction_to(Deadlines{.met = 0, .missed = too_many}, In::session) == kImpossible);

  // The largest valid values.
  const Bytes largest{std::uint64_t{1} << 50};
  CHECK(reaction_to(
            Usage{.request = 1,
                  .use = {.swappable = largest, .resident = {}, .pinned = {}, .context = {}, .host = {}}},
            In::session) == "Verdict");
  CHECK(reaction_to(Deadlines{.met = too_many - 1, .missed = too_many - 1}, In::session) == "nothing");
  CHECK(reaction_to(Idle{.epoch = {}, .idle = Nanoseconds(std::chrono::hours(24 * 365)) - Nanoseconds{1}},
                    In::session) == "nothing");
}

TEST_CASE("Impossible numbers in what opens a connection") {
  Hello hello;
  hello.backend = static_cast<Backend>(3);
  CHECK(reaction_to(hello, In::new_connection) == "closed; warning: pid N: dropped: an unknown backend");
  // The role is checked before the numbers.
  CHECK(reaction_to(hello, In::run) == "closed; warning: run 1, pid N: dropped: a second Hello");

  const auto attach = [](const Attach& what) {
    Host host;
    host.start();
    Guest guest(host, kUser);
    REQUIRE(guest.say(Hello{}).find<Welcome>());
    const Guest::Reaction reaction = guest.say(what);
    return text_of(reaction, host.new_log_lines());
  };
  const std::string without = "a GPU without memory";
  for (const Bytes total : {Bytes{}, kTooLarge})
    CHECK(attach({.gpu = {{9}}, .total = total, .name = {}}) ==
          "Refused (" + without + "); closed; warning: process N, pid N: dropped: " + without);
  CHECK(attach({.gpu = kHostGpu, .total = {}, .name = {}}) == "Attached");  // the arbiter knows total and
                                                                            // name of this GPU
}

std::vector<JobOptions> impossible_options() {
  std::vector<JobOptions> all(6);
  all[0].memory = kTooLarge;
  all[1].backend = static_cast<Backend>(3);
  all[2].gpus = GpuList::kMost + 1;
  all[3].units = JobOptions::kMostUnits + 1;
  all[4].share_request = 101;
  all[5].share_limit = 101;
  return all;
}

TEST_CASE("Impossible numbers of jobs and runs") {
  for (const JobOptions& options : impossible_options()) {
    CHECK(reaction_to(RunRequest{.options = options}, In::new_connection) ==
          "closed; warning: pid N: dropped: options with invalid numbers");
    CHECK(reaction_to(RunRequest{.options = options}, In::run) ==
          "closed; warning: run 1, pid N: dropped: a RunRequest on the connection of a session");
    RegisterJob bad = job(12);
    bad.options = options;
    CHECK(reaction_to(bad, In::new_connection) ==
          "RegisterReply 0; warning: pid N, uid 0: may not register job 12");
  }
  for (const char* name : {"two words", "\x7f", "\t"})
    for (char(JobClass::*field)[JobClass::kLongest + 1] : {&JobClass::partition, &JobClass::qos}) {
      RegisterJob bad = job(12);
      std::strcpy(bad.job_class.*field, name);
      CHECK(reaction_to(bad, In::new_connection) ==
            "RegisterReply 0; warning: pid N, uid 0: may not register job 12");
    }
  RegisterJob endless = job(12);
  std::memset(endless.job_class.qos, 'x', sizeof endless.job_class.qos);
  CHECK(reaction_to(endless, In::new_connection) ==
        "RegisterReply 0; warning: pid N, uid 0: may not register job 12");

  CHECK(reaction_to(job(0), In::new_connection) ==
        "RegisterReply 0; warning: pid N, uid 0: may not register job 0");
  CHECK(reaction_to(EndJob{}, In::new_connection) ==
        "EndJobReply 0; warning: pid N, uid 0: may not end job 0");
  CHECK(reaction_to(SuspendJob{}, In::new_connection) ==
        "SuspendReply 0; warning: pid N, uid 0: may not suspend job 0");
}

// ---- the rate of messages ----

TEST_CASE("Messages that add to the ledger count against their user's rate, and no others do") {
  Host host;
  host.start();
  constexpr unsigned kAtOnce = 1024;
  const auto ask = [&](const Message& message, uid_t uid) {
    Guest guest(host, uid);
    const Guest::Reaction reaction = guest.say(message);
    return text_of(reaction, host.new_log_lines());
  };
  // Root's messages and queries are never counted.
  for (unsigned i = 0; i < 2 * kAtOnce; ++i) {
    REQUIRE(ask(Message::of(EndJob{.job = 12}), 0) == "EndJobReply 1");
    REQUIRE(ask(Message::of(JobQuery{.job = 12}), kUser) == "JobReply 0");
  }
  unsigned let_in = 0;
  while (let_in < 4 * kAtOnce && ask(Message::of(RunRequest{}), kUser).starts_with("RunReply")) ++let_in;
  CHECK(let_in >= kAtOnce);
  CHECK(let_in < 4 * kAtOnce);
  // Further messages of this user that add to the ledger have to wait. After a while the log does not mention
  // them.
  const auto soon = [&](const Message& message) {
    for (int tries = 0; tries < 1000; ++tries)  // the user may write 50 times a second
      if (std::string text = ask(message, kUser); text == "closed") return text;
    return std::string("never");
  };
  CHECK(soon(Message::of(Hello{})) == "closed");
  CHECK(soon(Message::of(RunRequest{})) == "closed");
  CHECK(ask(Message::of(Hello{}), kUser + 1) == "Welcome");
  CHECK(ask(Message::of(StatusQuery{}), kUser) == "StatusReply");
}

TEST_CASE("No user can fill the log with refused messages") {
  Host host;
  host.start();
  GpuQuery wrong{.token = {}, .gpu = kHostGpu};
  wrong.token.bytes[0] = 1;
  Message unknown = Message::of(Want{});
  unknown.type = MessageType::invalid;
  for (const Message& message :
       {Message::of(wrong), unknown, Message::of(Want{}), Message::of(SetLines{}), Message::of(Welcome{})}) {
    INFO("type " << static_cast<int>(message.type));
    std::size_t lines = 0;
    for (int sent = 0; sent < 50; ++sent) {
      Guest(host, kUser).say(message);
      lines += host.new_log_lines().size();
    }
    CHECK(lines <= 10);
  }
  Guest other(host, kUser + 1);
  CHECK(other.say(unknown).closed);
  CHECK(host.new_log_lines() ==
        std::vector<std::string>{"warning: pid N: dropped: a message of unknown type"});
}

}  // namespace
}  // namespace sharedgpu::test
