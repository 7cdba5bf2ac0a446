// SPDX-License-Identifier: Apache-2.0
// The destinations of the log: a file that may be rotated, and a stream to systemd's journal.
#include "arbiter/daemon/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "protocol/channel.h"
#include "tests/unit/temporary_folder.h"

namespace sharedgpu::test {
namespace {

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the text without the time at the beginning of each line.
std::string without_times(const std::string& text) {
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) all += line.substr(line.find(' ') + 1) + "\n";
  return all;
}

struct Quiet {
  ~Quiet() { static_cast<void>(log::open("off", {})); }
};

TEST_CASE("Log: after a file was renamed or removed, the next line begins a new file") {
  const Quiet quiet;
  const TemporaryFolder folder;
  const std::string path = folder.path + "/log";
  REQUIRE(log::open("info", path).ok());
  log::info("one");
  log::debug("not logged");
  REQUIRE(std::rename(path.c_str(), (path + ".1").c_str()) == 0);
  log::warning("two");
  log::error("three");
  CHECK(without_times(text_of(path + ".1")) == "sharedgpud: info: one\n");
  CHECK(without_times(text_of(path)) == "sharedgpud: warning: two\nsharedgpud: error: three\n");
  std::remove(path.c_str());
  log::info("four");
  CHECK(without_times(text_of(path)) == "sharedgpud: info: four\n");
}

TEST_CASE("Log: if a new file cannot be begun, lines go on in the old one") {
  const Quiet quiet;
  const TemporaryFolder folder;
  REQUIRE(mkdir((folder.path + "/a").c_str(), 0755) == 0);
  REQUIRE(log::open("info", folder.path + "/a/log").ok());
  REQUIRE(std::rename((folder.path + "/a").c_str(), (folder.path + "/b").c_str()) == 0);
  log::info("still there");
  CHECK(without_times(text_of(folder.path + "/b/log")) == "sharedgpud: info: still there\n");
  // If a new destination cannot be opened, the log keeps the current destination.
  CHECK(!log::open("debug", folder.path + "/a/log").ok());
  log::debug("not logged");
  log::info("again");
  CHECK(without_times(text_of(folder.path + "/b/log")) ==
        "sharedgpud: info: still there\nsharedgpud: info: again\n");
}

TEST_CASE("Log: lines to the journal begin with their priority, other streams do not") {
  const Quiet quiet;
  const TemporaryFolder folder;
  const UniqueFd saved(dup(STDERR_FILENO));
  const std::string path = folder.path + "/stream";
  const UniqueFd stream(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  struct stat facts = {};
  REQUIRE(fstat(stream.get(), &facts) == 0);
  REQUIRE(dup2(stream.get(), STDERR_FILENO) >= 0);
  const auto log_all = [](const std::string& variable) {
    setenv("JOURNAL_STREAM", variable.c_str(), 1);
    REQUIRE(log::open("debug", {}).ok());
    log::error("e");
    log::warning("w");
    log::info("i");
    log::debug("d");
  };
  log_all(std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino));
  const std::string journal = text_of(path);
  REQUIRE(truncate(path.c_str(), 0) == 0);
  log_all("1:2");
  const std::string other = text_of(path);
  unsetenv("JOURNAL_STREAM");
  dup2(saved.get(), STDERR_FILENO);
  CHECK(journal == "<3>e\n<4>w\n<6>i\n<7>d\n");
  CHECK(without_times(other) ==
        "sharedgpud: error: e\nsharedgpud: warning: w\nsharedgpud: info: i\nsharedgpud: debug: d\n");
}

}  // namespace
}  // namespace sharedgpu::test
