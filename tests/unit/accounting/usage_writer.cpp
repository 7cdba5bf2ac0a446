// SPDX-License-Identifier: GPL-2.0-or-later
// Checks how the plugin writes a step's usage, with a model of Slurm's accounting.
#include "accounting/usage_writer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace sharedgpu;

namespace {

// All counts of a step, each with a different value.
StepCounts counts(std::uint64_t n) {
  return {.seconds = n, .waited = 7 * n, .restored = 10 * n, .evicted = 100 * n};
}

// A model of Slurm's jobacct_gather/cgroup for one step on one node: a poll calls the plugin once for each
// process, in any order. Values for a task replace its earlier values, and values for other processes are
// lost. The last values of an ended task are kept.
class Books {
 public:
  Books() = default;
  Books(std::vector<int> all, std::vector<int> counting)
      : processes(std::move(all)), tasks(std::move(counting)) {}

  std::vector<int> processes;  // the processes in the order of Slurm's calls
  std::vector<int> tasks;      // the processes that are tasks; only their values count

  void poll(UsageWriter& writer) {
    for (int process : processes) {
      auto value = writer.next_call();
      if (value && is_task(process)) shown_[process] = value;
    }
    ++polls;
  }
  std::optional<StepCounts> shown(int task) { return shown_[task]; }
  StepCounts sum() const {
    StepCounts sum = ended_;
    for (const auto& [task, shown] : shown_) add(sum, shown.value_or(StepCounts{}));
    return sum;
  }
  void end(int task) {
    add(ended_, shown_[task].value_or(StepCounts{}));
    shown_.erase(task);
    std::erase(tasks, task);
    std::erase(processes, task);
  }

  int polls = 0;

 private:
  static void add(StepCounts& sum, const StepCounts& more) {
    sum.seconds += more.seconds;
    sum.waited += more.waited;
    sum.restored += more.restored;
    sum.evicted += more.evicted;
  }
  bool is_task(int process) const { return std::find(tasks.begin(), tasks.end(), process) != tasks.end(); }

  std::map<int, std::optional<StepCounts>> shown_;
  StepCounts ended_;
};

// Writes the usage poll by poll, as the plugin does. Returns true once Slurm's records are right.
bool write(UsageWriter& writer, Books& books, int task, std::uint64_t total) {
  for (int i = 0; i < 100; ++i) {
    writer.begin_poll(counts(total));
    books.poll(writer);
    if (writer.end_poll(books.shown(task))) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("lease time shows as the nearest second, but never as none") {
  using std::chrono::milliseconds;
  CHECK(UsageWriter::seconds(milliseconds(0)) == 0);
  CHECK(UsageWriter::seconds(milliseconds(-5)) == 0);
  CHECK(UsageWriter::seconds(milliseconds(1)) == 1);
  CHECK(UsageWriter::seconds(milliseconds(1400)) == 1);
  CHECK(UsageWriter::seconds(milliseconds(1600)) == 2);
  CHECK(UsageWriter::seconds(milliseconds(3'600'400)) == 3600);
}

TEST_CASE("bytes show as the nearest MiB, but never as none") {
  CHECK(UsageWriter::mebibytes(0) == 0);
  CHECK(UsageWriter::mebibytes(1) == 1);
  CHECK(UsageWriter::mebibytes((3u << 20) + (1u << 19) - 1) == 3);
  CHECK(UsageWriter::mebibytes((3u << 20) + (1u << 19)) == 4);
}

TEST_CASE("a count is due if any of its values exceeds the value that Slurm shows") {
  UsageWriter writer;
  Books books({1}, {1});
  REQUIRE(write(writer, books, 1, 5));
  StepCounts more = counts(5);
  ++more.evicted;
  CHECK(writer.is_due(more));
  --more.seconds;
  writer.begin_poll(more);
  books.poll(writer);
  REQUIRE(writer.end_poll(books.shown(1)));
  CHECK(books.sum() == StepCounts{.seconds = 5, .waited = 35, .restored = 50, .evicted = 501});
}

TEST_CASE("one task, alone") {
  UsageWriter writer;
  Books books({1}, {1});
  CHECK(writer.is_due(counts(0)));  // a step that never used the GPU must show zero
  REQUIRE(write(writer, books, 1, 0));
  CHECK_FALSE(writer.is_due(counts(0)));
  CHECK(writer.is_due(counts(5)));
  REQUIRE(write(writer, books, 1, 5));
  CHECK(books.sum() == counts(5));
  CHECK(books.polls == 2);
  CHECK_FALSE(writer.is_due(counts(5)));
}

TEST_CASE("several tasks and processes count once") {
  UsageWriter writer;
  Books books({1, 2, 3, 11, 12, 21}, {1, 2, 3});
  REQUIRE(write(writer, books, 1, 7));
  CHECK(books.polls == 1);
  CHECK(books.sum() == counts(7));
  REQUIRE(write(writer, books, 1, 8));
  CHECK(books.sum() == counts(8));
}

TEST_CASE("the reporting task's call is found wherever it stands, and stays known") {
  UsageWriter writer;
  Books books({11, 2, 12, 3, 1, 21}, {1, 2, 3});
  REQUIRE(write(writer, books, 1, 7));
  CHECK(books.sum() == counts(7));
  int polls = books.polls;
  REQUIRE(write(writer, books, 1, 9));
  CHECK(books.sum() == counts(9));
  CHECK(books.polls == polls + 1);
}

TEST_CASE("nothing is lost while the reporting task's call is searched") {
  UsageWriter writer;
  Books books({1, 2, 3}, {1, 2, 3});
  REQUIRE(write(writer, books, 2, 7));
  books.processes = {4, 3, 2, 1};
  writer.begin_poll(counts(8));
  books.poll(writer);
  bool right = writer.end_poll(books.shown(2));
  REQUIRE_FALSE(right);
  REQUIRE(write(writer, books, 2, 8));
  CHECK(books.sum() == counts(8));
}

TEST_CASE("the values that a task reported at its end stay, and the next task reports the rest") {
  UsageWriter writer;
  Books books({1, 2, 3}, {1, 2, 3});
  REQUIRE(write(writer, books, 1, 7));
  books.end(1);
  writer.reporting_task_ended();
  CHECK(writer.is_due(counts(7)));  // the next task's record may be empty
  REQUIRE(write(writer, books, 2, 10));
  CHECK(books.shown(2) == counts(3));
  CHECK(books.sum() == counts(10));
  books.end(2);
  writer.reporting_task_ended();
  REQUIRE(write(writer, books, 3, 10));
  CHECK(books.sum() == counts(10));
}

TEST_CASE("a total that shrinks takes nothing back") {
  UsageWriter writer;
  Books books({1}, {1});
  REQUIRE(write(writer, books, 1, 7));
  CHECK_FALSE(writer.is_due(counts(3)));
  REQUIRE(write(writer, books, 1, 3));
  CHECK(books.sum() == counts(7));
}

TEST_CASE("processes come and go at every poll") {
  UsageWriter writer;
  Books books({1}, {1});
  for (std::uint64_t second = 1; second <= 50; ++second) {
    books.processes = {1};
    for (std::uint64_t other = 0; other < second * 7 % 5; ++other)
      books.processes.insert(other % 2 == 0 ? books.processes.begin() : books.processes.end(),
                             static_cast<int>(100 + other));
    REQUIRE(write(writer, books, 1, second));
    CHECK(books.sum() == counts(second));
  }
}

TEST_CASE("a poll without calls leaves the counts due") {
  UsageWriter writer;
  Books books;
  writer.begin_poll(counts(4));
  books.poll(writer);
  CHECK_FALSE(writer.end_poll(std::nullopt));
  CHECK(writer.is_due(counts(4)));
}

TEST_CASE("a TRES is found in a list") {
  CHECK(find_tres("1=12,2=0,1001=7", 1001) == 7);
  CHECK(find_tres("1=12,2=0,1001=7", 2) == 0);
  CHECK(find_tres("1=18446744073709551614", 1) == 18446744073709551614u);
  CHECK_FALSE(find_tres("1=12,2=0,1001=7", 100));
  CHECK_FALSE(find_tres("", 1));
  CHECK_FALSE(find_tres("1,=,1=x,1=", 1));
}

TEST_CASE("the one task of a step reports all, whatever processes come and go beside it") {
  UsageWriter writer(true);
  std::uint64_t total = 0;
  Books books({1}, {1});
  for (const std::vector<int>& processes :
       std::vector<std::vector<int>>{{1}, {11, 1}, {11, 12, 13, 1}, {1, 14}, {15, 1, 16}, {1}}) {
    books.processes = processes;
    REQUIRE(write(writer, books, 1, ++total));
    CHECK(books.sum() == counts(total));
  }
  CHECK(books.polls == 6);
}

TEST_CASE("the one task of a step reports once if Slurm also counts the task's children") {
  UsageWriter writer(true);
  const auto poll = [&](std::uint64_t total, int processes) {
    std::vector<StepCounts> each(static_cast<std::size_t>(processes));
    for (int tries = 0; tries < 3; ++tries) {
      writer.begin_poll(counts(total));
      for (StepCounts& its : each) its = writer.next_call().value_or(its);
      std::uint64_t sum = 0;
      for (const StepCounts& its : each) sum += its.seconds;
      if (writer.end_poll(counts(sum))) return sum;
    }
    return std::uint64_t{0};
  };
  std::uint64_t total = 0;
  for (const int processes : {1, 3, 5, 2, 1, 4}) {
    ++total;
    CHECK(poll(total, processes) == total);
  }
}

TEST_CASE("the reports of several tasks stay when other processes come and go") {
  UsageWriter writer;
  Books books({11, 1, 2}, {1, 2});
  REQUIRE(write(writer, books, 1, 5));
  CHECK(books.sum() == counts(5));
  // In the next poll, another process has the place of the reporting task in the order of calls.
  books.processes = {1, 11, 2};
  writer.begin_poll(counts(6));
  books.poll(writer);
  CHECK_FALSE(writer.end_poll(books.shown(1)));
  CHECK(books.sum() == counts(5));
  REQUIRE(write(writer, books, 1, 6));
  CHECK(books.sum() == counts(6));
}
