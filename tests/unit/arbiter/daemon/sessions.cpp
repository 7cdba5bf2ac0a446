// SPDX-License-Identifier: Apache-2.0
// Sessions connect, reconnect and end.
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "host.h"
#include "protocol/lease_page.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

Attach attach_to(GpuUuid gpu = kHostGpu, std::uint64_t lender = 0) {
  return {.gpu = gpu, .total = gibibytes(1), .name = "Test GPU", .lender = lender};
}

// Opens a session that has allocated `footprint`.
void open_session(Guest& guest, const Hello& hello, Bytes footprint) {
  REQUIRE(guest.say(hello).find<Welcome>());
  REQUIRE(guest.say(attach_to()).find<Attached>());
  MemoryUse use{};
  use.swappable = use.resident = footprint;
  REQUIRE(guest.say(Usage{.request = 1, .use = use}).find<Verdict>());
}

// The Hello of a session that reconnects and claims to hold the lease.
Hello returning() {
  Hello hello;
  hello.resuming = hello.held = 1;
  hello.gpu = kHostGpu;
  return hello;
}

// Leaves a session with 10 MiB in the arbiter, after the process has closed the connection.
void leave_closed_session(Host& host, const Process& process) {
  Guest guest(host, kUser, {}, process.pid());
  open_session(guest, {}, mebibytes(10));
  guest.channel.close();
  host.run();
}

std::size_t sessions_in(const Host& host) {
  const nlohmann::json status = host.status();
  std::size_t count = 0;
  for (const auto& tenant : status["tenants"]) count += tenant["sessions"].size();
  return count;
}

TEST_CASE("A session ends with its process, whatever becomes of the connection") {
  Host host;
  host.start();
  Process process;
  Guest guest(host, kUser, {}, process.pid());
  open_session(guest, {}, mebibytes(10));
  CHECK(sessions_in(host) == 1);
  process.end();
  host.run_until([&] { return sessions_in(host) == 0; });
  CHECK(guest.hear().closed);
  CHECK(host.ledger().back() == "end 1");
}

// Each reading of the clock advances it by 1 ms, so that each piece of work seems to take long.
struct SlowSystem : FaultySystem {
  Nanoseconds now() const override { return looked_at_ += 1ms; }

 private:
  mutable Nanoseconds looked_at_ = 1h;
};

TEST_CASE("Sessions that end at once take turns with other users") {
  const SlowSystem system;
  Host host({}, system);
  host.start();
  Process process;
  std::vector<std::unique_ptr<Guest>> guests;
  for (int i = 0; i < 20; ++i) {
    guests.push_back(std::make_unique<Guest>(host, kUser, std::nullopt, process.pid()));
    open_session(*guests.back(), {}, mebibytes(1));
  }
  process.end();
  std::size_t left = 0;
  std::function<bool()> other = [&] {
    if (sessions_in(host) == 20)
      return true;  // true: the schedule repeats this work of the other user until a session is gone
    left = sessions_in(host);
    return false;
  };
  host.schedule->add(kUser + 1, other);
  host.run_until([&] { return sessions_in(host) == 0; });
  CHECK(left > 10);
}

TEST_CASE(
    "A process that closed its connection keeps its memory until it has reconnected and sent a report") {
  Host host;
  host.start();
  const Process process;
  Guest guest(host, kUser, {}, process.pid());
  open_session(guest, {}, mebibytes(10));
  guest.channel.close();
  int looks = 0;
  host.run_until([&] { return ++looks == 50; });  // takes up to half a second, so that the arbiter checks
                                                  // whether the process still runs
  REQUIRE(sessions_in(host) == 1);

  Guest again(host, kUser, {}, process.pid());
  CHECK(again.say(returning()).find<Welcome>()->session == SessionId{2});
  const auto footprint = [&] { return host.status()["tenants"][0]["footprint_bytes"]; };
  CHECK(footprint() == mebibytes(10).count);
  REQUIRE(again.say(attach_to()).find<Attached>());
  CHECK(sessions_in(host) == 1);
  CHECK(footprint() == mebibytes(10).count);
  again.say(Usage{.request = 0, .use = {}});
  CHECK(footprint() == 0);  // the process's report replaces the earlier footprint
}

TEST_CASE(
    "A process that reconnects and never attaches keeps its memory, like a process that does not answer") {
  Host host;
  host.start();
  const Process process;
  leave_closed_session(host, process);
  Hello hello;
  SECTION("and tells of its GPU") { hello = returning(); }
  SECTION("and tells of none") {}
  Guest again(host, kUser, {}, process.pid());
  REQUIRE(again.say(hello).find<Welcome>());
  int looks = 0;
  host.run_until([&] { return ++looks == 50; });
  CHECK(sessions_in(host) == 2);
  CHECK(host.status()["tenants"][0]["footprint_bytes"] == mebibytes(10).count);
  again.channel.close();
  Guest once_more(host, kUser, {}, process.pid());
  REQUIRE(once_more.say(returning()).find<Welcome>());
  CHECK(sessions_in(host) == 2);
}

TEST_CASE("A process that reconnects twice before its first report keeps its memory") {
  Host host;
  host.start();
  const Process process;
  leave_closed_session(host, process);
  {
    Guest again(host, kUser, {}, process.pid());
    REQUIRE(again.say(returning()).find<Welcome>());
    REQUIRE(again.say(attach_to()).find<Attached>());
  }
  Guest once_more(host, kUser, {}, process.pid());
  REQUIRE(once_more.say(returning()).find<Welcome>());
  REQUIRE(once_more.say(attach_to()).find<Attached>());
  CHECK(sessions_in(host) == 1);
  CHECK(host.status()["tenants"][0]["footprint_bytes"] == mebibytes(10).count);
  const std::vector<std::string> ledger = host.ledger();
  for (const char* gone : {"gone 1", "gone 2"}) CHECK(std::count(ledger.begin(), ledger.end(), gone) == 1);
}

TEST_CASE(
    "A process that reconnected before the arbiter died reconnects to the next arbiter as one session") {
  Host host;
  host.start();
  const Process process;
  leave_closed_session(host, process);
  Guest again(host, kUser, {}, process.pid());
  REQUIRE(again.say(returning()).find<Welcome>());
  SECTION("with a GPU") { REQUIRE(again.say(attach_to()).find<Attached>()); }
  SECTION("without one") {}
  host.restart();
  CHECK(host.status()["recovering"] == true);
  Guest next(host, kUser, {}, process.pid());
  REQUIRE(next.say(returning()).find<Welcome>());
  const auto revoke = next.say(attach_to()).find<Revoke>();
  REQUIRE(revoke);
  MemoryUse use{};
  use.swappable = use.resident = mebibytes(10);
  next.say(Usage{.request = 0, .use = use});
  next.say(Released{.epoch = revoke->epoch, .order = revoke->order, .wants = 0, .overuse = {}, .use = use});
  CHECK(host.status()["recovering"] == false);
  CHECK(host.status()["tenants"][0]["footprint_bytes"] == mebibytes(10).count);
}

TEST_CASE("A process that reconnects to the same arbiter has no more memory than before") {
  Host host;
  host.start();
  const Process process;
  leave_closed_session(host, process);

  Guest again(host, kUser, {}, process.pid());
  REQUIRE(again.say(returning()).find<Welcome>());
  again.say(attach_to());
  MemoryUse use;
  use.swappable = use.resident = use.pinned = mebibytes(50);
  again.say(Usage{.request = 0, .use = use, .moved = {}});
  const auto session = host.status()["tenants"][0]["sessions"][0];
  CHECK(session["footprint_bytes"] == mebibytes(10).count);
  CHECK(session["resident_bytes"] <= mebibytes(10).count);
}

TEST_CASE("A process that closed its connection and has no memory is forgotten") {
  Host host;
  host.start();
  const Process process;
  Guest guest(host, kUser, {}, process.pid());
  open_session(guest, {}, {});
  guest.channel.close();
  host.run_until([&] { return sessions_in(host) == 0; });
  CHECK(host.status()["tenants"].empty());
}

TEST_CASE("A session for another GPU ends none that is closed") {
  Host host;
  host.start();
  const Process process;
  leave_closed_session(host, process);
  Guest other(host, kUser, {}, process.pid());
  Hello hello;
  hello.gpu = {{9}};
  REQUIRE(other.say(hello).find<Welcome>());
  REQUIRE(other.say(attach_to(hello.gpu)).find<Attached>());
  CHECK(sessions_in(host) == 2);
}

// An arbiter with a ledger, and a process that the ledger does not know.
struct Forgetful {
  Host host;
  Process process;

  Forgetful() {
    host.start();
    host.restart();
  }
};

TEST_CASE("The first report of a reconnecting process without a record decides whether it is served") {
  Forgetful f;
  Guest guest(f.host, kUser, {}, f.process.pid());
  REQUIRE(guest.say(returning()).find<Welcome>());
  MemoryUse use{};
  use.swappable = use.resident = mebibytes(10);
  // The arbiter does not attach the session yet, since it opens the gate of an attached session.
  CHECK_FALSE(guest.say(attach_to()).find<Attached>());
  CHECK_FALSE(guest.say(attach_to()).find<Attached>());
  SECTION("all of its memory is on the GPU") {
    CHECK(guest.say(Usage{.request = 0, .use = use}).find<Attached>());
    use.resident = {};
    CHECK_FALSE(guest.say(Usage{.request = 0, .use = use}).find<Refused>());
    CHECK(sessions_in(f.host) == 1);
  }
  SECTION("a part of it is on the host") {
    use.resident = mebibytes(9);
    const Guest::Reaction reaction = guest.say(Usage{.request = 0, .use = use});
    REQUIRE(reaction.find<Refused>());
    CHECK(std::string(reaction.find<Refused>()->reason) ==
          "the arbiter has no record of the memory that this process has on the host");
    CHECK(reaction.closed);
    CHECK(sessions_in(f.host) == 0);
  }
}

TEST_CASE("A process whose connection was closed needs no record") {
  Forgetful f;
  leave_closed_session(f.host, f.process);
  Guest again(f.host, kUser, {}, f.process.pid());
  REQUIRE(again.say(returning()).find<Welcome>());
  CHECK(again.say(attach_to()).find<Attached>());
  MemoryUse use{};
  use.swappable = mebibytes(10);
  CHECK_FALSE(again.say(Usage{.request = 0, .use = use}).find<Refused>());
}

TEST_CASE("An arbiter without a ledger believes for a minute that processes reconnect") {
  FaultySystem system;
  system.time = std::chrono::seconds(1000);
  Host host({}, system);
  host.start();
  const Process process, other;
  MemoryUse use{};
  use.swappable = mebibytes(10);
  const auto come = [&](const Process& its) {
    Guest guest(host, kUser, {}, its.pid());
    REQUIRE(guest.say(returning()).find<Welcome>());
    guest.say(attach_to());
    return guest.say(Usage{.request = 0, .use = use}).find<Refused>().has_value();
  };
  CHECK_FALSE(come(process));
  *system.time += std::chrono::minutes(1);
  CHECK(come(other));
}

TEST_CASE("A claim to a lease under an earlier arbiter gives none") {
  Host host;
  host.start();
  const Process process;
  Guest guest(host, kUser, {}, process.pid());
  Hello hello;
  hello.resuming = hello.held = 1;
  hello.epoch = {7};
  REQUIRE(guest.say(hello).find<Welcome>());
  CHECK(host.status()["tenants"][0]["lease"] == false);
  for (const std::string& record : host.ledger()) CHECK(record.find("grant") == std::string::npos);
}

TEST_CASE("A GPU that only sessions have reported is forgotten with its last session") {
  Host host;
  host.start();
  Process process;
  Guest guest(host, kUser, {}, process.pid());
  REQUIRE(guest.say(Hello{}).find<Welcome>());
  Attach attach = attach_to({{9}});
  std::strcpy(attach.name, "a\tname");
  REQUIRE(guest.say(attach).find<Attached>());
  CHECK(host.status()["gpus"].size() == 2);
  CHECK(host.status()["gpus"][1]["name"] == "a?name");
  process.end();
  host.run_until([&] { return host.status()["gpus"].size() == 1; });
  CHECK(host.status()["gpus"][0]["uuid"] == "GPU-01000000-0000-0000-0000-000000000000");
}

TEST_CASE("Sessions can report only a limited number of GPUs") {
  Host host;
  host.start();
  std::vector<std::unique_ptr<Guest>> guests;
  const auto attach = [&](std::uint8_t number) {
    guests.push_back(std::make_unique<Guest>(host));
    Hello hello;
    hello.gpu = {{number}};
    REQUIRE(guests.back()->say(hello).find<Welcome>());
    return guests.back()->say(attach_to(hello.gpu));
  };
  for (std::uint8_t number = 2; number <= 64; ++number) REQUIRE(attach(number).find<Attached>());
  CHECK(host.status()["gpus"].size() == 64);
  const Guest::Reaction reaction = attach(65);
  REQUIRE(reaction.find<Refused>());
  CHECK(std::string(reaction.find<Refused>()->reason) ==
        "too many GPUs that only sessions report and the arbiter does not find");
  CHECK(reaction.closed);
  CHECK(attach(64).find<Attached>());  // the arbiter knows this GPU
}

// Two sessions of one tenant, and the request of one of them to borrow memory of the other.
struct Loan {
  Host host;
  Guest anchor{host, kUser};
  Process lending;
  Guest lender{host, kUser, {}, lending.pid()};
  Guest borrower{host, kUser};
  const Borrow borrow{.request = 5, .name = {.lender = 77, .loan = 1}, .piece = 3};

  Loan() : Loan(std::true_type{}) {
    Hello hello;
    hello.token = anchor.say(RunRequest{}).find<RunReply>()->token;
    for (Guest* each : {&lender, &borrower}) {
      REQUIRE(each->say(hello).find<Welcome>());
      REQUIRE(each->say(attach_to(kHostGpu, each == &lender ? 77 : 78)).find<Attached>());
    }
  }

 private:
  explicit Loan(std::true_type) { host.start(); }
};

TEST_CASE("A session that borrows is connected with the lender, and the arbiter keeps nothing of it") {
  Loan loan;
  const auto lent = loan.borrower.say(loan.borrow).find<Lent>();
  REQUIRE(lent);
  CHECK(lent->request == 5);
  CHECK(lent->outcome == LoanOutcome::asked);
  Channel to_lender(std::move(loan.borrower.last_descriptor));
  const auto wanted = loan.lender.hear().find<Wanted>();
  REQUIRE(wanted);
  CHECK(wanted->name == loan.borrow.name);
  CHECK(wanted->piece == 3);
  Channel to_borrower(std::move(loan.lender.last_descriptor));
  // The borrower cannot send through this descriptor, so it does no harm if the borrower keeps or closes the
  // descriptor.
  CHECK(to_lender.send(Message::of(Want{})) == EPIPE);

  const Lend lend{.ticket = 0, .outcome = LoanOutcome::given, .pieces = 1, .size = mebibytes(4)};
  REQUIRE(to_borrower.send(Message::of(lend), STDERR_FILENO) == 0);
  to_borrower.close();
  Message message;
  UniqueFd descriptor;
  REQUIRE(to_lender.receive(message, descriptor) == 0);
  CHECK(message.as<Lend>().size == mebibytes(4));
  CHECK(descriptor);
  CHECK(to_lender.receive(message, descriptor) == ECONNRESET);
}

TEST_CASE("A session that waits for a lender which ends sees the connection end") {
  Loan loan;
  REQUIRE(loan.borrower.say(loan.borrow).find<Lent>()->outcome == LoanOutcome::asked);
  Channel to_lender(std::move(loan.borrower.last_descriptor));
  loan.lender.hear();
  loan.lender.last_descriptor.reset();
  Message message;
  UniqueFd descriptor;
  CHECK(to_lender.receive(message, descriptor) == ECONNRESET);
}

TEST_CASE("A session that asks for a lender that has ended, or one of another tenant, gets an error") {
  Loan loan;
  loan.lending.end();
  loan.host.run_until([&] { return sessions_in(loan.host) == 1; });
  CHECK(loan.borrower.say(loan.borrow).find<Lent>()->outcome == LoanOutcome::unknown);
  Guest stranger(loan.host, kUser);
  REQUIRE(stranger.say(Hello{}).find<Welcome>());
  REQUIRE(stranger.say(attach_to(kHostGpu, 80)).find<Attached>());
  const Borrow of_others{.request = 6, .name = {.lender = 78, .loan = 1}, .piece = 0};
  CHECK(stranger.say(of_others).find<Lent>()->outcome == LoanOutcome::unknown);
}

TEST_CASE("A session that borrows from a library of an earlier version gets an error") {
  Loan loan;
  Message old = Message::of(MemoryQuery{});
  old.version = Lent::kPaired - 1;
  REQUIRE(send(loan.lender.channel.fd(), &old, sizeof old, 0) == sizeof old);
  loan.lender.hear();
  CHECK(loan.borrower.say(loan.borrow).find<Lent>()->outcome == LoanOutcome::failed);
  CHECK_FALSE(loan.lender.hear().find<Wanted>());
}

// The lease page that the session received with its Welcome.
struct Page {
  const LeasePage* page;
  explicit Page(Guest& guest) : page(map_lease_page(guest.last_descriptor.get(), nullptr)) {
    REQUIRE(page != nullptr);
  }
  ~Page() { munmap(const_cast<LeasePage*>(page), LeasePage::kSize); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  const LeasePage* operator->() const { return page; }
  bool is_open() const { return LeasePage::is_open(page->gate.load()); }
};

// Requests more memory than fits beside the other session, and drains, so that it waits for a turn.
void wait_for_turn(Guest& guest, Bytes footprint) {
  REQUIRE(guest.say(Hello{}).find<Welcome>());
  REQUIRE(guest.say(attach_to()).find<Attached>());
  MemoryUse use{};
  use.swappable = footprint;
  const auto revoke = guest.say(Usage{.request = 1, .use = use}).find<Revoke>();
  REQUIRE(revoke);
  guest.say(Released{.epoch = revoke->epoch, .order = revoke->order, .wants = 1, .overuse = {}, .use = {}});
}

TEST_CASE("A session reads in its page whether it may run, whether others wait, and whether all fit") {
  Settings settings;
  settings.quantum = std::chrono::seconds(60);
  Host host(settings);
  host.start();
  Process other;
  Guest guest(host, kUser), waiting(host, kUser, {}, other.pid());
  open_session(guest, {}, mebibytes(800));
  const Page page(guest);
  CHECK(page.is_open());
  CHECK(page->contended == 0);
  CHECK(page->oversubscribed == 0);
  wait_for_turn(waiting, mebibytes(600));
  CHECK(page.is_open());
  CHECK(page->contended == 1);
  CHECK(page->oversubscribed == 1);
  CHECK_FALSE(Page(waiting).is_open());
  other.end();
  host.run_until([&] { return page->contended == 0; });
  CHECK(page->oversubscribed == 0);
}

TEST_CASE(
    "A stopped process loses turn and lease before the end of the turn, and has the lease again when it goes "
    "on") {
  Settings settings;
  settings.quantum = std::chrono::minutes(10);
  Host host(settings);
  host.start();
  const Process process;
  Guest guest(host, kUser, {}, process.pid()), waiting(host, kUser);
  open_session(guest, {}, mebibytes(800));
  wait_for_turn(waiting, mebibytes(600));
  const Page page(guest);
  REQUIRE(page.is_open());
  kill(process.pid(), SIGSTOP);
  host.run_until([&] { return !page.is_open(); });
  CHECK(guest.hear().find<Revoke>());
  const auto lease = [&] { return host.status()["tenants"][0]["lease"] == true; };
  host.run_until([&] { return !lease(); });  // the lease ends, although the stopped process does not answer
  kill(process.pid(), SIGCONT);
  host.run_until(lease);  // the lease lasts until the session has drained
}

TEST_CASE("A process that reconnects ends its own closed session, and no other session") {
  Host host;
  host.start();
  const Process first, second;
  const auto come = [&](const Process& process) {
    auto guest = std::make_unique<Guest>(host, kUser, std::nullopt, process.pid());
    open_session(*guest, {}, mebibytes(10));
    return guest;
  };
  come(first)->channel.close();
  come(second)->channel.close();
  host.run();
  REQUIRE(sessions_in(host) == 2);
  Guest again(host, kUser, {}, second.pid());
  REQUIRE(again.say(returning()).find<Welcome>());
  CHECK(sessions_in(host) == 3);
  // The arbiter sends Revoke, since the reconnected session may submit until it drains.
  CHECK(again.say(attach_to()).find<Revoke>());
  CHECK(sessions_in(host) == 2);
  CHECK(host.status()["tenants"][0]["pids"] == nlohmann::json{first.pid()});
  const std::vector<std::string> ledger = host.ledger();
  CHECK(std::count(ledger.begin(), ledger.end(), "gone 2") == 1);
  CHECK(std::count(ledger.begin(), ledger.end(), "gone 1") == 0);
}

TEST_CASE("The arbiter waits for the sessions of its predecessor until the last of them has reported") {
  Host host;
  host.start();
  const Process first, second;
  Hello back;
  back.resuming = 1;
  back.gpu = kHostGpu;
  for (const Process* each : {&first, &second}) {
    Guest guest(host, kUser, {}, each->pid());
    open_session(guest, {}, mebibytes(10));
  }
  host.restart();
  CHECK(host.status()["recovering"] == true);
  const auto come_back = [&](const Process& process) {
    auto guest = std::make_unique<Guest>(host, kUser, std::nullopt, process.pid());
    REQUIRE(guest->say(back).find<Welcome>());
    const auto revoke = guest->say(attach_to()).find<Revoke>();
    MemoryUse use{};
    use.swappable = use.resident = mebibytes(10);
    guest->say(Usage{.request = 0, .use = use});
    if (revoke)
      guest->say(
          Released{.epoch = revoke->epoch, .order = revoke->order, .wants = 0, .overuse = {}, .use = use});
    guest->say(MemoryQuery{.request = 9});
    return guest;
  };
  const auto one = come_back(first);
  CHECK(host.status()["recovering"] == true);
  const auto other = come_back(second);
  CHECK(host.status()["recovering"] == false);
  const std::vector<std::string> ledger = host.ledger();
  for (const char* gone : {"gone 1", "gone 2"}) CHECK(std::count(ledger.begin(), ledger.end(), gone) == 1);
}

TEST_CASE("The backend that a job asks for counts, rather than the one that its process names") {
  Host host;
  host.start();
  Guest slurmstepd(host), session(host, kUser, StepName{.job = 12, .step = 0});
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = kUser, .options = {}};
  job.options.backend = Backend::managed;
  job.options.backend_given = 1;
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  REQUIRE(session.say(Hello{}).find<Welcome>());
  CHECK(slurmstepd.say(JobQuery{.job = 12}).find<JobReply>()->backends == 2);
}

}  // namespace
}  // namespace sharedgpu::test
