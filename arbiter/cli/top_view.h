// SPDX-License-Identifier: Apache-2.0
// The contents of `sharedgpu top`: a state, the effect of each key on it, and the rows of text that show it.
//
// To add a column, add a row to the table in top_view.cpp, and the column's key to docs/man/sharedgpu.1.
// Pure; not thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arbiter/cli/node_status.h"
#include "arbiter/cli/standing.h"

namespace sharedgpu::cli {

// The kind of a piece of text; the screen chooses a colour for each kind.
enum class Ink : std::uint8_t { plain, strong, faint, head, good, busy, waiting, bad };

struct Piece {
  std::string text;
  Ink ink = Ink::plain;
};
using Line = std::vector<Piece>;

std::string text_of(const Line& line);  // the text of the line, without colours

// Keys that stand for no character.
enum class TopKey : int { none = 0, up = 0x10000, down, page_up, page_down, home, end };

// A tenant with its rates between two readings.
struct TopRow {
  const NodeStatus::Tenant* tenant = nullptr;
  std::string user;
  std::string gpus;       // the numbers of the tenant's GPUs
  std::size_t place = 0;  // the highest position in the queues of the tenant's GPUs, from 1; zero: the
                          // tenant does not wait
  double busy = 0;        // time with a lease divided by the time between the readings, summed over the
                          // tenant's GPUs
  double waiting = 0;     // time of waiting divided by the time between the readings
  double moved = 0;       // evicted and restored bytes per second
};

class Top {
 public:
  // `name` returns the name of a user. `uid` is the user whose tenants show_mine() selects.
  Top(UserName name, std::uint32_t uid) : name_(std::move(name)), uid_(uid) {}

  // Takes a reading. `at`: the time of the reading in seconds, counted from any fixed moment. Rates are those
  // between the last two readings.
  void take(const NodeStatus& status, double at);
  // Call instead of take() if the arbiter has not answered; `why` is the reason.
  void fail(const std::string& why) { failure_ = why; }

  // Applies a key: a character, or a TopKey. Returns false if the key ends the program.
  bool press(int key);
  // Sorts by the column with this name, such as "resident". Returns false if there is none.
  bool sort_by(std::string_view column);
  static std::string columns();  // the names of the columns, separated by commas
  void show_mine(bool mine) { mine_ = mine; }
  void set_host(const std::string& host) { host_ = host; }

  // The rows of text for a screen of this size. Each line is at most `width` characters wide.
  std::vector<Line> screen(int width, int height, std::string_view clock);
  // All rows, for a file.
  std::vector<Line> batch(int width, std::string_view clock) const;
  // The rows as JSON, see docs/json.md.
  nlohmann::ordered_json json() const;

 private:
  std::vector<TopRow> rows() const;
  Line summary(std::string_view clock) const;
  void add_gpus(int width, std::vector<Line>& lines) const;
  Line header(int width) const;
  Line line_of(const TopRow& row, int width) const;
  std::vector<Line> help() const;

  UserName name_;
  std::uint32_t uid_;
  std::string host_;
  std::optional<NodeStatus> now_;
  std::optional<NodeStatus> before_;
  double at_ = 0;
  double elapsed_ = 0;
  std::string failure_;
  std::size_t column_ = 0;  // the column by which the rows are sorted
  bool reversed_ = false;
  bool mine_ = false;
  bool helps_ = false;
  std::size_t first_ = 0;  // index of the first row on the screen
  std::size_t room_ = 1;   // number of rows for which the last screen had room
};

}  // namespace sharedgpu::cli
