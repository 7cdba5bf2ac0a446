// SPDX-License-Identifier: GPL-2.0-or-later
// The crediting of lease seconds against a model of Slurm's books.
#include "accounting/credit.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

using namespace sharedgpu;

namespace {

// Slurm's books for one step on one node, as jobacct_gather/cgroup keeps them: a poll calls once for each
// process, in some order; what is written for a task replaces what it had; what is written for others is
// lost; what a task had when it ended stays.
class Books {
 public:
  Books() = default;
  Books(std::vector<int> all, std::vector<int> counting)
      : processes(std::move(all)), tasks(std::move(counting)) {}

  std::vector<int> processes;  // in the order of the calls
  std::vector<int> tasks;      // those among them that count

  void poll(StepCredit& credit) {
    for (int process : processes) {
      auto value = credit.next_call();
      if (value && is_task(process)) shown_[process] = value;
    }
    ++polls;
  }
  std::optional<std::uint64_t> shown(int task) { return shown_[task]; }
  std::uint64_t sum() const {
    return std::accumulate(shown_.begin(), shown_.end(), ended_, [](std::uint64_t sum, const auto& entry) {
      return sum + entry.second.value_or(0);
    });
  }
  void end(int task) {
    ended_ += shown_[task].value_or(0);
    shown_.erase(task);
    std::erase(tasks, task);
    std::erase(processes, task);
  }

  int polls = 0;

 private:
  bool is_task(int process) const { return std::find(tasks.begin(), tasks.end(), process) != tasks.end(); }

  std::map<int, std::optional<std::uint64_t>> shown_;
  std::uint64_t ended_ = 0;
};

// As the pulse does it. Returns whether the books are right in the end.
bool write(StepCredit& credit, Books& books, int carrier, std::uint64_t total) {
  for (int i = 0; i < 100; ++i) {
    credit.begin_poll(total);
    books.poll(credit);
    if (credit.end_poll(books.shown(carrier))) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("lease time shows as the nearest second, but never as none") {
  using std::chrono::milliseconds;
  CHECK(StepCredit::seconds(milliseconds(0)) == 0);
  CHECK(StepCredit::seconds(milliseconds(-5)) == 0);
  CHECK(StepCredit::seconds(milliseconds(1)) == 1);
  CHECK(StepCredit::seconds(milliseconds(1400)) == 1);
  CHECK(StepCredit::seconds(milliseconds(1600)) == 2);
  CHECK(StepCredit::seconds(milliseconds(3'600'400)) == 3600);
}

TEST_CASE("one task, alone") {
  StepCredit credit;
  Books books({1}, {1});
  CHECK(credit.is_due(0));  // so that a step that never used the GPU shows zero
  REQUIRE(write(credit, books, 1, 0));
  CHECK_FALSE(credit.is_due(0));
  CHECK(credit.is_due(5));
  REQUIRE(write(credit, books, 1, 5));
  CHECK(books.sum() == 5);
  CHECK(books.polls == 2);
  CHECK_FALSE(credit.is_due(5));
}

TEST_CASE("several tasks and processes count once") {
  StepCredit credit;
  Books books({1, 2, 3, 11, 12, 21}, {1, 2, 3});
  REQUIRE(write(credit, books, 1, 7));
  CHECK(books.polls == 1);
  CHECK(books.sum() == 7);
  REQUIRE(write(credit, books, 1, 8));
  CHECK(books.sum() == 8);
}

TEST_CASE("the carrier's call is found wherever it stands, and stays known") {
  StepCredit credit;
  Books books({11, 2, 12, 3, 1, 21}, {1, 2, 3});
  REQUIRE(write(credit, books, 1, 7));
  CHECK(books.sum() == 7);
  int polls = books.polls;
  REQUIRE(write(credit, books, 1, 9));
  CHECK(books.sum() == 9);
  CHECK(books.polls == polls + 1);
}

TEST_CASE("nothing is lost while the carrier's call is searched") {
  StepCredit credit;
  Books books({1, 2, 3}, {1, 2, 3});
  REQUIRE(write(credit, books, 2, 7));
  books.processes = {4, 3, 2, 1};
  credit.begin_poll(8);
  books.poll(credit);
  bool right = credit.end_poll(books.shown(2));
  REQUIRE_FALSE(right);
  REQUIRE(write(credit, books, 2, 8));
  CHECK(books.sum() == 8);
}

TEST_CASE("what a task carried at its end stays, and the next one carries the rest") {
  StepCredit credit;
  Books books({1, 2, 3}, {1, 2, 3});
  REQUIRE(write(credit, books, 1, 7));
  books.end(1);
  credit.carrier_ended();
  CHECK(credit.is_due(7));  // the next one is not known to show anything
  REQUIRE(write(credit, books, 2, 10));
  CHECK(books.shown(2) == 3);
  CHECK(books.sum() == 10);
  books.end(2);
  credit.carrier_ended();
  REQUIRE(write(credit, books, 3, 10));
  CHECK(books.sum() == 10);
}

TEST_CASE("a total that shrinks takes nothing back") {
  StepCredit credit;
  Books books({1}, {1});
  REQUIRE(write(credit, books, 1, 7));
  CHECK_FALSE(credit.is_due(3));
  REQUIRE(write(credit, books, 1, 3));
  CHECK(books.sum() == 7);
}

TEST_CASE("processes come and go at every poll") {
  StepCredit credit;
  Books books({1}, {1});
  for (std::uint64_t second = 1; second <= 50; ++second) {
    books.processes = {1};
    for (std::uint64_t other = 0; other < second * 7 % 5; ++other)
      books.processes.insert(other % 2 == 0 ? books.processes.begin() : books.processes.end(),
                             static_cast<int>(100 + other));
    REQUIRE(write(credit, books, 1, second));
    CHECK(books.sum() == second);
  }
}

TEST_CASE("a poll without calls is not taken for right") {
  StepCredit credit;
  Books books;
  credit.begin_poll(4);
  books.poll(credit);
  CHECK_FALSE(credit.end_poll(std::nullopt));
  CHECK(credit.is_due(4));
}

TEST_CASE("a TRES is found in a list") {
  CHECK(find_tres("1=12,2=0,1001=7", 1001) == 7);
  CHECK(find_tres("1=12,2=0,1001=7", 2) == 0);
  CHECK(find_tres("1=18446744073709551614", 1) == 18446744073709551614u);
  CHECK_FALSE(find_tres("1=12,2=0,1001=7", 100));
  CHECK_FALSE(find_tres("", 1));
  CHECK_FALSE(find_tres("1,=,1=x,1=", 1));
}
