// SPDX-License-Identifier: GPL-2.0-or-later
// Entries of the spool must reach the job records of the database, despite outages of the database and other
// writers.
#include "comment/retry_queue.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/unit/temporary_folder.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kJob = 7;

struct FakeRecords : JobRecords {
  std::map<std::uint32_t, std::vector<JobRecord>> jobs;
  bool down = false;
  std::uint32_t refused = 0;  // the job whose comment the database refuses to write
  unsigned writes = 0;
  std::function<void()> before_write = [] {};  // called after the queue has read a record and before it
                                               // writes the record

  std::vector<JobRecord> runs(std::uint32_t job, std::string& error) override {
    if (down) error = "down";
    return down ? std::vector<JobRecord>{} : jobs[job];
  }
  std::string write(std::uint32_t job, const JobRecord& run, CommentField field,
                    const std::string& text) override {
    before_write();
    if (down) return "down";
    if (job == refused) return "refused";
    for (JobRecord& each : jobs[job])
      if (each.span.end == run.span.end && each.state == run.state)
        (field == CommentField::admin ? each.comment : each.system_comment) = text;
    ++writes;
    return {};
  }
  std::string& comment(std::size_t run = 0) { return jobs[kJob].at(run).comment; }
};

struct Desk {
  test::TemporaryFolder folder;
  Spool spool{folder.path};
  FakeRecords records;
  std::vector<std::string> said;
  RetryQueue queue{spool, records, 60s, CommentField::admin,
                   [this](const std::string& text) { said.push_back(text); }};
  std::int64_t now = 1000;

  void put(const std::string& node, Span seen = {.begin = 900, .end = 1000}) {
    JobSummary share;
    share.nodes = {node};
    share.lease = 2s;
    REQUIRE(spool.write({.job = kJob, .seen = seen, .share = share}).empty());
  }
  // Runs the queue once a second, for `time` seconds.
  bool work(std::int64_t time) {
    bool left = true;
    for (const std::int64_t end = now + time; now < end; ++now) left = queue.pass(now);
    return left;
  }
  std::chrono::milliseconds lease(std::size_t run = 0) {
    const auto summary = find_summary(records.comment(run));
    return summary ? summary->lease : -1ms;
  }
};

TEST_CASE("An entry is written at once, checked again, and removed after a while") {
  Desk desk;
  desk.records.jobs[kJob] = {{.span = {.begin = 890, .end = 999}, .state = 3, .comment = "paid"}};
  desk.put("n1");
  CHECK(desk.work(1));
  CHECK(desk.lease() == 2s);
  CHECK(desk.records.comment().starts_with("paid {"));
  CHECK(desk.work(55));
  CHECK_FALSE(desk.work(15));
  CHECK(desk.records.writes == 1);
  CHECK(desk.said.empty());
}

TEST_CASE("An entry waits until the record has the job's end and the controller's comment") {
  Desk desk;
  desk.put("n1");
  CHECK(desk.work(100));  // the database does not know the job
  desk.records.jobs[kJob] = {{.span = {.begin = 890}, .state = 1, .comment = ""}};
  CHECK(desk.work(1000));  // the database does not know the job's end
  CHECK(desk.records.writes == 0);
  desk.records.jobs[kJob] = {{.span = {.begin = 890, .end = 999}, .state = 3, .comment = "late"}};
  desk.work(500);
  CHECK(desk.lease() == 2s);
  CHECK(desk.records.comment().starts_with("late {"));
}

TEST_CASE("An outage of the database is logged once, and the entries wait for its end") {
  Desk desk;
  desk.records.jobs[kJob] = {{.span = {.begin = 890, .end = 999}, .state = 3, .comment = ""}};
  desk.records.down = true;
  desk.put("n1");
  CHECK(desk.work(3600));
  CHECK(desk.said == std::vector<std::string>{"down; retrying"});
  desk.records.down = false;
  desk.work(91);
  CHECK(desk.lease() == 2s);
  CHECK(desk.said.size() == 2);
}

TEST_CASE(
    "A comment that cannot be written for one job does not keep the comments of other jobs from being "
    "written") {
  Desk desk;
  for (const std::uint32_t job : {kJob, 3u, 9u})
    desk.records.jobs[job] = {{.span = {.begin = 890, .end = 999}, .state = 3, .comment = ""}};
  desk.records.refused = 3;
  desk.put("n1");
  JobSummary share;
  share.nodes = {"n1"};
  for (const std::uint32_t job : {3u, 9u})
    REQUIRE(desk.spool.write({.job = job, .seen = {.begin = 900, .end = 1000}, .share = share}).empty());
  CHECK(desk.work(200));
  CHECK(desk.lease() == 2s);
  CHECK(find_summary(desk.records.jobs[9][0].comment));
  CHECK(desk.spool.entries().size() == 1);
  CHECK(desk.said == std::vector<std::string>{"refused; retrying"});
}

TEST_CASE("A node that may not write gives up its entries after a while") {
  Desk desk;
  desk.records.down = true;
  desk.put("n1");
  desk.now += 29 * 24 * 3600;
  CHECK(desk.work(100));
  desk.now += 2 * 24 * 3600;
  CHECK_FALSE(desk.work(100));
  CHECK(desk.said.back().find("given up") != std::string::npos);
}

TEST_CASE("A comment that was overwritten is written again") {
  Desk desk;
  desk.records.jobs[kJob] = {{.span = {.begin = 890, .end = 999}, .state = 3, .comment = ""}};
  desk.put("n1");
  desk.work(30);
  desk.records.comment() = "the controller again";
  CHECK_FALSE(desk.work(200));
  CHECK(desk.records.comment().starts_with("the controller again {"));
  CHECK(desk.lease() == 2s);
}

TEST_CASE("Text that jobstats has written is kept, whether before the summary or over it") {
  const std::string jobstats = "JS1:H4sIADelIWcC/1WN";
  for (const bool first : {true, false}) {
    Desk desk;
    desk.records.jobs[kJob] = {{.span = {.begin = 890, .end = 999},
                                .state = 3,
                                .comment = first ? jobstats : "",
                                .system_comment = "burst buffer"}};
    desk.put("n1");
    desk.work(8);
    desk.records.comment() = jobstats;  // the comment that jobstats' EpilogSlurmctld has written
    desk.work(20);
    desk.put("n2");
    CHECK_FALSE(desk.work(200));
    CHECK(desk.records.comment() == jobstats);
    const std::string& system = desk.records.jobs[kJob][0].system_comment;
    CHECK(system.starts_with("burst buffer {"));
    REQUIRE(find_summary(system));
    CHECK(find_summary(system)->lease == 4s);
  }
}

TEST_CASE("Nodes that write at the same moment are all counted once") {
  Desk first;
  Desk second;
  first.records.jobs[kJob] = {{.span = {.begin = 890, .end = 999}, .state = 3, .comment = ""}};
  first.put("n1");
  second.put("n2");
  // Both nodes read the comment before either writes it, so the second node overwrites the text of the first.
  second.records.jobs = first.records.jobs;
  first.work(1);
  second.work(1);
  first.records.jobs = second.records.jobs;
  CHECK(find_summary(first.records.comment())->nodes == std::set<std::string>{"n2"});
  for (int i = 0; i < 200; ++i) {
    first.work(1);
    second.records.jobs = first.records.jobs;
    second.work(1);
    first.records.jobs = second.records.jobs;
  }
  CHECK(first.lease() == 4s);
  CHECK(first.spool.entries().empty());
  CHECK(second.spool.entries().empty());
}

TEST_CASE("An entry counts once, wherever its writer is killed") {
  Desk desk;
  desk.records.jobs[kJob] = {{.span = {.begin = 890, .end = 999}, .state = 3, .comment = ""}};
  desk.put("n1");
  for (int lives = 0; lives < 5; ++lives) {
    RetryQueue queue(desk.spool, desk.records, 60s, CommentField::admin, [](const std::string&) {});
    for (int i = 0; i < 10 * lives; ++i) queue.pass(++desk.now);
    desk.put("n1");  // writes the spool entry again
  }
  CHECK_FALSE(desk.work(100));
  CHECK(desk.lease() == 2s);
}

TEST_CASE("Each run of a requeued job has its own summary") {
  Desk desk;
  desk.records.jobs[kJob] = {{.span = {.begin = 100, .end = 200}, .state = 1024, .comment = ""},
                             {.span = {.begin = 300}, .state = 1, .comment = ""}};
  desk.put("n1", {.begin = 105, .end = 201});
  desk.work(5);
  CHECK(desk.lease(0) == 2s);
  CHECK(desk.records.comment(1).empty());
}

TEST_CASE("An entry whose place in the comment is taken is given up, and the log says so") {
  Desk desk;
  desk.records.jobs[kJob] = {
      {.span = {.begin = 890, .end = 999}, .state = 3, .comment = R"({"sharedgpu":"ours"})"}};
  desk.put("n1");
  CHECK_FALSE(desk.work(2));
  CHECK(desk.records.comment() == R"({"sharedgpu":"ours"})");
  REQUIRE(desk.said.size() == 1);
  CHECK(desk.said[0].find("given up") != std::string::npos);
}

TEST_CASE("An entry that cannot be read stays, and delays no other entry") {
  Desk desk;
  desk.records.jobs[kJob] = {{.span = {.begin = 890, .end = 999}, .state = 3, .comment = ""}};
  std::ofstream(desk.folder.path + "/1-1-n.json") << "{\"job\":1";
  desk.put("n1");
  CHECK(desk.work(100));
  CHECK(desk.lease() == 2s);
  CHECK(desk.spool.entries() == std::vector<std::string>{"1-1-n.json"});
  CHECK(desk.said.size() == 1);
}

TEST_CASE("An entry with an impossible time is not used") {
  SpoolEntry entry{.job = kJob, .seen = {.begin = 900, .end = 1000}, .share = {}};
  entry.share.nodes = {"n1"};
  const std::string text = format_entry(entry);
  REQUIRE(parse_entry(text)->seen.end == 1000);
  for (const char* time : {"\"begin\":900", "\"end\":1000"}) {
    std::string late = text;
    late.replace(late.find(time), std::string(time).size(),
                 std::string(time, std::string(time).find(':') + 1) + "18446744073709551615");
    CHECK(!parse_entry(late));
  }
}

TEST_CASE("A mark has the time since which a job has been here, and is no entry") {
  Desk desk;
  std::ofstream(desk.folder.path + "/12");
  std::ofstream(desk.folder.path + "/lock");
  REQUIRE(desk.spool.marks().size() == 1);
  CHECK(desk.spool.marks()[0].job == 12);
  CHECK(desk.spool.mark_of(12)->since > 1'600'000'000);
  CHECK_FALSE(desk.spool.mark_of(13));
  CHECK(desk.spool.entries().empty());
  CHECK_FALSE(desk.queue.has_ended({.job = 12, .since = 900}));
  desk.records.jobs[12] = {{.span = {.begin = 890, .end = 950}, .state = 3, .comment = ""}};
  CHECK(desk.queue.has_ended({.job = 12, .since = 900}));
  // A run that ended because its node failed, and the next run.
  desk.records.jobs[12].push_back({.span = {.begin = 980}, .state = 1, .comment = ""});
  CHECK(desk.queue.has_ended({.job = 12, .since = 900}));
  CHECK_FALSE(desk.queue.has_ended({.job = 12, .since = 981}));
  desk.spool.unmark(12);
  CHECK(desk.spool.marks().empty());
}

}  // namespace
}  // namespace sharedgpu
