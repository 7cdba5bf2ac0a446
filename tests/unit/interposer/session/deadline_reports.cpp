// SPDX-License-Identifier: Apache-2.0
// How a program reports its deadlines: the reader of the pipe, the header that programs include, and the
// format of the lines.
#include "interposer/session/deadline_reports.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "include/sharedgpu_deadline.h"

using namespace sharedgpu;
using namespace sharedgpu::session;

namespace {

ino_t inode_of(int fd) {
  struct stat info = {};
  REQUIRE(fstat(fd, &info) == 0);
  return info.st_ino;
}

// A pipe such as `sharedgpu run --deadline` makes.
struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(pipe2(ends, O_NONBLOCK) == 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
    const std::string end = std::to_string(reading.get()) + ":" + std::to_string(inode_of(reading.get()));
    setenv("SHAREDGPU_DEADLINE_FD", std::to_string(writing.get()).c_str(), 1);
    setenv("SHAREDGPU_DEADLINE_READ", end.c_str(), 1);
    REQUIRE(read_deadline_pipe(end.c_str(), told));
  }
  void put(const std::string& text) const {
    REQUIRE(write(writing.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }

  UniqueFd reading;
  UniqueFd writing;
  DeadlinePipe told;
};

std::pair<std::uint64_t, std::uint64_t> counts(const Deadlines& seen) { return {seen.met, seen.missed}; }
using Counts = std::pair<std::uint64_t, std::uint64_t>;

Counts lines(const std::string& text, std::size_t at_a_time) {
  DeadlineLines lines;
  Deadlines seen;
  for (std::size_t i = 0; i < text.size(); i += at_a_time)
    lines.feed(text.data() + i, std::min(at_a_time, text.size() - i), seen);
  return counts(seen);
}

}  // namespace

TEST_CASE("lines count by their words alone, in whatever pieces they are read") {
  const std::string text = "met\npass\nmissed\n\nmet \nMET\nmissed\r\nunmissed\nmissedmissedmissed\nmet\nmis";
  for (std::size_t at_a_time = 1; at_a_time <= text.size(); ++at_a_time)
    CHECK(lines(text, at_a_time) == Counts{3, 1});
  CHECK(lines(std::string("met\0\nmet\n", 9), 4) == Counts{1, 0});
  CHECK(lines(std::string(100'000, 'm') + "\nmet\n", 7) == Counts{1, 0});
}

TEST_CASE("the variable that names the pipe is read") {
  DeadlinePipe pipe;
  CHECK(read_deadline_pipe("7:123456", pipe));
  CHECK(pipe.fd == 7);
  CHECK(pipe.inode == 123456);
  for (const char* text :
       {"", "7", "7:", ":1", "-1:2", "7:1x", " 7:1", "7:-1", "99999999999:1", "7:99999999999999999999999"})
    CHECK_FALSE(read_deadline_pipe(text, pipe));
}

TEST_CASE("reports arrive line by line, and a line counts when it is complete") {
  Pipe pipe;
  DeadlineReports reports(pipe.told);
  CHECK(reports.fd() == pipe.reading.get());
  CHECK(counts(reports.take()) == Counts{0, 0});
  pipe.put("met\nmissed\nm");
  CHECK(counts(reports.take()) == Counts{1, 1});
  pipe.put("et\n");
  CHECK(counts(reports.take()) == Counts{1, 0});
  CHECK(reports.fd() == pipe.reading.get());
}

TEST_CASE("a million lines of a writer that never waits are all counted") {
  Pipe pipe;
  DeadlineReports reports(pipe.told);
  constexpr std::uint64_t kLines = 1'000'000;
  std::uint64_t told = 0;
  Counts seen;
  for (std::uint64_t i = 0; i < kLines; ++i) {
    told += sharedgpu_deadline(i % 4 != 0) == 0 ? 1 : 0;
    if (i % 1000 != 0) continue;
    const Deadlines now = reports.take();
    seen.first += now.met;
    seen.second += now.missed;
  }
  const Deadlines rest = reports.take();
  CHECK(told == kLines);
  CHECK(seen.first + rest.met == kLines * 3 / 4);
  CHECK(seen.second + rest.missed == kLines / 4);
}

TEST_CASE("a pipe that is full drops what is told, and blocks nobody") {
  Pipe pipe;
  std::uint64_t told = 0;
  while (sharedgpu_deadline(1) == 0) ++told;
  CHECK(told > 1000);
  DeadlineReports reports(pipe.told);
  std::uint64_t seen = 0;
  for (Deadlines counts = reports.take(); counts.met > 0; counts = reports.take()) seen += counts.met;
  CHECK(seen == told);
}

TEST_CASE("a pipe that nobody writes to any more is forgotten") {
  Pipe pipe;
  DeadlineReports reports(pipe.told);
  pipe.put("met\n");
  pipe.writing.reset();
  CHECK(counts(reports.take()) == Counts{1, 0});
  CHECK(counts(reports.take()) == Counts{0, 0});
  CHECK(reports.fd() == -1);
}

TEST_CASE("another file at the descriptor's number is left alone") {
  Pipe pipe;
  DeadlineReports reports(pipe.told);
  Pipe other;
  other.put("met\n");
  REQUIRE(dup2(other.reading.get(), pipe.reading.get()) >= 0);
  SECTION("as the program begins") { CHECK(DeadlineReports(pipe.told).fd() == -1); }
  SECTION("later") {
    CHECK(counts(reports.take()) == Counts{0, 0});
    CHECK(reports.fd() == -1);
  }
  char text[8];
  CHECK(read(other.reading.get(), text, sizeof text) == 4);
}

TEST_CASE("the header reports nothing if nobody reads the pipe, and writes to no other file") {
  Pipe pipe;
  CHECK(sharedgpu_deadline(1) == 0);
  CHECK(sharedgpu_deadline(0) == 0);
  DeadlineReports reports(pipe.told);
  CHECK(counts(reports.take()) == Counts{1, 1});
  SECTION("the program has another file there") {
    Pipe other;
    setenv("SHAREDGPU_DEADLINE_FD", std::to_string(other.writing.get()).c_str(), 1);
    setenv("SHAREDGPU_DEADLINE_READ",
           (std::to_string(pipe.told.fd) + ":" + std::to_string(pipe.told.inode)).c_str(), 1);
    CHECK(sharedgpu_deadline(1) == -1);
    char text[8];
    CHECK(read(other.reading.get(), text, sizeof text) == -1);
  }
  SECTION("nobody reads any more") {
    pipe.reading.reset();
    CHECK(sharedgpu_deadline(1) == -1);  // an error, and no SIGPIPE
  }
  SECTION("it is closed") {
    pipe.writing.reset();
    CHECK(sharedgpu_deadline(1) == -1);
  }
  SECTION("there is no deadline") {
    unsetenv("SHAREDGPU_DEADLINE_READ");
    CHECK(sharedgpu_deadline(1) == -1);
    setenv("SHAREDGPU_DEADLINE_READ", "nonsense", 1);
    CHECK(sharedgpu_deadline(1) == -1);
    unsetenv("SHAREDGPU_DEADLINE_FD");
    CHECK(sharedgpu_deadline(1) == -1);
  }
}
