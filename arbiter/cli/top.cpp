// SPDX-License-Identifier: Apache-2.0
// sharedgpu top: shows GPUs and tenants continually, on the whole terminal or as text for scripts.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "arbiter/cli/ask_status.h"
#include "arbiter/cli/commands.h"
#include "arbiter/cli/top_screen.h"
#include "arbiter/cli/top_view.h"
#include "arbiter/cli/users.h"
#include "config/host_name.h"
#include "config/quantities.h"
#include "protocol/ask.h"
#include "protocol/split.h"

namespace sharedgpu::cli {

std::string clock_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S", &parts);
  return text.data();
}

namespace {

// An arbiter gives a user a fresh answer at most twice a second on average.
constexpr std::chrono::milliseconds kLeastInterval{500};
constexpr int kWidthOfFiles = 160;

struct TopArguments {
  std::string config;
  std::string interval = "2s";
  std::string sort = "tenant";
  bool once = false;
  bool mine = false;
  bool json = false;
  unsigned count = 0;
};

// Returns an empty string, or the reason why there is no reading.
std::string read_into(Top& top, const Settings& settings) {
  std::string text;
  std::string error = ask_status(settings.socket, answer_patience(settings.arbiter_timeout), text);
  NodeStatus status;
  if (error.empty()) error = parse_status(text, status);
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  if (error.empty())
    top.take(status, now.count());
  else
    top.fail(error);
  return error;
}

// The width of the text: the terminal's width, or else $COLUMNS, or else a width with room for all columns.
int width_of_output() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const auto number = parse_number<int>(columns == nullptr ? "" : columns);
  return number && *number > 0 && *number < 10'000 ? *number : kWidthOfFiles;
}

// Rates need two readings, so the first reading is not printed.
int print(Top& top, const Settings& settings, Nanoseconds interval, const TopArguments& arguments) {
  const unsigned count = std::max(arguments.count, 1u);
  for (unsigned i = 0; i <= count; ++i) {
    if (i > 0) std::this_thread::sleep_for(interval);
    if (std::string error = read_into(top, settings); !error.empty()) {
      complain(error);
      return 1;
    }
    if (i == 0) continue;
    if (arguments.json) {
      std::printf("%s\n",
                  top.json().dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    } else {
      if (i > 1) std::printf("\n");
      for (const Line& line : top.batch(width_of_output(), clock_now()))
        std::printf("%s\n", text_of(line).c_str());
    }
    if (std::fflush(stdout) != 0) return 1;
  }
  return 0;
}

int show_top(const TopArguments& arguments) {
  Settings settings;
  if (!load_settings(arguments.config, settings)) return 2;
  Top top(user_name, getuid());
  top.set_host(host_name());
  top.show_mine(arguments.mine);
  const auto interval = parse_time(arguments.interval);
  if (!interval || *interval < kLeastInterval) {
    complain("--interval: '" + arguments.interval + "' is not a time of at least 500ms");
    return 2;
  }
  if (!top.sort_by(arguments.sort)) {
    complain("--sort: no column '" + arguments.sort + "'; there are " + Top::columns());
    return 2;
  }
  if (arguments.once || arguments.json || arguments.count > 0)
    return print(top, settings, *interval, arguments);
  const std::string error = run_screen(top, *interval, [&] { read_into(top, settings); });
  if (error.empty()) return 0;
  complain(error);
  return 1;
}

}  // namespace

void add_top(CLI::App& app, int& status) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App* command = app.add_subcommand("top", "Show GPUs and tenants continually");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_option("--interval", arguments->interval, "Time between readings (default 2s)")
      ->type_name("TIME");
  command->add_option("--sort", arguments->sort, "Column to sort by: " + Top::columns())->type_name("COLUMN");
  command->add_flag("--mine", arguments->mine, "Only tenants of the caller");
  command->add_flag("--once", arguments->once, "Print text once, after two readings");
  command->add_option("--count", arguments->count, "Print text N times")->type_name("N");
  command->add_flag("--json", arguments->json, "Print JSON; see docs/json.md");
  command->callback([arguments, &status] { status = show_top(*arguments); });
}

}  // namespace sharedgpu::cli
