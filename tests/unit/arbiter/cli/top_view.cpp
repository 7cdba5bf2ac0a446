// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/top_view.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/arbiter/cli/some_status.h"

namespace sharedgpu::cli {
namespace {

struct Shown {
  Top top{name_of_user, 1};

  Shown() {
    top.set_host("node1");
    top.take(some_status(), 100);
  }
  std::vector<std::string> lines(int width = 120, int height = 40) {
    std::vector<std::string> texts;
    for (const Line& line : top.screen(width, height, "14:30:05")) texts.push_back(text_of(line));
    return texts;
  }
  // The job numbers in the tenants' lines.
  std::vector<std::string> jobs(int width = 120, int height = 40) {
    std::vector<std::string> names;
    for (const std::string& line : lines(width, height))
      if (line.starts_with("job ")) names.push_back(line.substr(4, 2));
    return names;
  }
  void press(const char* keys) {
    for (; *keys != '\0'; ++keys) CHECK(top.press(*keys));
  }
};
using Jobs = std::vector<std::string>;

TEST_CASE("The screen has the GPUs with their holders and queues, and a line for each tenant") {
  Shown shown;
  const auto lines = shown.lines();
  REQUIRE(lines.size() == 7);
  CHECK(lines[0] == "sharedgpu top on node1  14:30:05  1 GPU, 3 tenants: 1 running, 2 waiting");
  CHECK(lines[1] ==
        "GPU 0  [#########################...............] 50 GiB of 80 GiB, allocated 150 GiB  NVIDIA H100, "
        "round-robin");
  CHECK(lines[2] == "       job 21 (ann) has it, for another 3.2s, 2 wait; turns 7.6s, handoffs 0.4s");
  CHECK(lines[3].starts_with("TENANT         USER      STATE    GPU    Q ON THE GPU    RESID  ALLOC"));
  CHECK(lines[4].starts_with("job 21         ann       running  0      - [##########]    50G    50G"));
  CHECK(lines[5].starts_with("job 22         bob       waiting  0      2 [..........]      0    50G"));
}

TEST_CASE("Holders that the user may not see are counted on the screen, too") {
  Shown shown;
  NodeStatus next = some_status();
  next.gpus[0].holders = {0};
  shown.top.take(next, 102);
  CHECK(shown.lines()[2].starts_with("       another job has it, "));
  next.gpus[0].holders = {0, 1, 0};
  shown.top.take(next, 104);
  CHECK(shown.lines()[2].starts_with("       job 21 (ann), 2 other jobs have it, "));
  next.gpus[0].holders = {};
  shown.top.take(next, 106);
  CHECK(shown.lines()[2].starts_with("       nobody has it, "));
}

TEST_CASE("Rates are computed from two readings") {
  Shown shown;
  NodeStatus next = some_status();
  next.tenants[0].lease_seconds += 2;
  next.tenants[1].waited += 1;
  next.tenants[1].evicted += gibibytes(3);
  next.tenants[1].restored += gibibytes(1);
  shown.top.take(next, 102);
  const auto json = shown.top.json();
  CHECK(json["seconds"] == 2.0);
  CHECK(json["tenants"][0]["busy"] == 1.0);
  CHECK(json["tenants"][1]["waiting"] == 0.5);
  CHECK(json["tenants"][1]["moved_bytes_per_second"] == static_cast<double>(gibibytes(2).count));
  CHECK(shown.lines()[4].find(" 100% ") != std::string::npos);
  CHECK(shown.lines()[5].find("  50%   2.0G") != std::string::npos);
  // After a restart of the arbiter, or in a new run of a job, the totals are lower than before.
  shown.top.take(some_status(), 104);
  CHECK(shown.top.json()["tenants"][0]["busy"] == 0.0);
}

TEST_CASE("A key sorts by its column, and the same key once more reverses the order") {
  Shown shown;
  NodeStatus status = some_status();
  status.tenants[1].host = gibibytes(9);
  status.tenants[2].host = gibibytes(4);
  shown.top.take(status, 102);
  CHECK(shown.jobs() == Jobs{"21", "22", "23"});
  shown.press("t");
  CHECK(shown.jobs() == Jobs{"23", "22", "21"});
  shown.press("h");
  CHECK(shown.jobs() == Jobs{"22", "23", "21"});
  shown.press("r");
  CHECK(shown.jobs() == Jobs{"21", "23", "22"});
  shown.press("p");
  CHECK(shown.jobs() == Jobs{"23", "22", "21"});
  shown.press("<<<<");
  CHECK(shown.jobs() == Jobs{"21", "22", "23"});
  CHECK(shown.top.sort_by("resident"));
  CHECK_FALSE(shown.top.sort_by("none"));
  CHECK_FALSE(shown.top.press('q'));
}

TEST_CASE("A wide screen shows away memory") {
  Shown shown;
  NodeStatus status = some_status();
  status.tenants[1].away = gibibytes(9);
  shown.top.take(status, 102);
  CHECK(shown.lines(130)[3].find("  HOST   AWAY ") != std::string::npos);
  shown.press("y");
  CHECK(shown.jobs().front() == "22");
  CHECK(shown.top.json()["tenants"][0]["away_bytes"] == gibibytes(9).count);
}

TEST_CASE("Own tenants alone are listed on request") {
  Shown shown;
  shown.press("o");
  CHECK(shown.jobs() == Jobs{"21"});
  CHECK(shown.lines()[0].ends_with("(only yours are listed)"));
  shown.press("o");
  CHECK(shown.jobs().size() == 3);
}

TEST_CASE("A narrow screen leaves out columns, and no line is wider than the screen") {
  Shown shown;
  NodeStatus status = some_status();
  status.gpus[0].name = "N\xc3\x84ME\x1b[31m";
  status.tenants[0].overdue = {.seconds = 9, .waits_for = "work"};
  status.tenants[1].stuck = true;
  shown.top.take(status, 102);
  for (const int width : {0, 1, 5, 13, 20, 40, 60, 80, 100, 132, 300}) {
    for (const Line& line : shown.top.screen(width, 50, "14:30:05")) {
      std::size_t length = 0;
      for (const Piece& piece : line)
        length += static_cast<std::size_t>(
            std::count_if(piece.text.begin(), piece.text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
      CHECK(length <= static_cast<std::size_t>(width));
      CHECK(text_of(line).find('\x1b') == std::string::npos);
    }
  }
  CHECK(shown.lines(40)[3] == "TENANT         STATE     Q  RESID  GPU%");
  CHECK(shown.lines(200)[4].ends_with("others wait since 9.0s"));
}

TEST_CASE("A low screen scrolls") {
  Shown shown;
  CHECK(shown.jobs(120, 6) == Jobs{"21", "22"});
  CHECK(shown.top.press(static_cast<int>(TopKey::down)));
  CHECK(shown.jobs(120, 6) == Jobs{"22", "23"});
  CHECK(shown.top.press(static_cast<int>(TopKey::page_down)));
  CHECK(shown.jobs(120, 6) == Jobs{"22", "23"});
  CHECK(shown.top.press(static_cast<int>(TopKey::home)));
  CHECK(shown.jobs(120, 6) == Jobs{"21", "22"});
  CHECK(shown.lines(120, 2).size() == 2);
  CHECK(shown.lines(120, 0).empty());
}

TEST_CASE("The reason for a missing answer is shown, and the last answer stays") {
  Shown shown;
  shown.top.fail("no arbiter at /run/x");
  CHECK(shown.lines()[0].ends_with("no arbiter at /run/x"));
  CHECK(shown.jobs().size() == 3);
  Shown nothing;
  nothing.top = Top(name_of_user, 1);
  nothing.top.fail("no arbiter");
  CHECK(nothing.lines().size() == 1);
}

TEST_CASE("The help names the key of each column, and any key closes the help") {
  Shown shown;
  shown.press("?");
  const auto lines = shown.lines();
  CHECK(std::count_if(lines.begin(), lines.end(),
                      [](const auto& line) { return line.starts_with("  m  resident"); }) == 1);
  shown.press(" ");
  CHECK(shown.jobs().size() == 3);
}

}  // namespace
}  // namespace sharedgpu::cli
