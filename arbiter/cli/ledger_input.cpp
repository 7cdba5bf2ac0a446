// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/ledger_input.h"

#include <algorithm>

#include "arbiter/cli/commands.h"
#include "arbiter/ledger/files.h"
#include "arbiter/ledger/reader.h"

namespace sharedgpu::cli {
namespace {

using Take = std::function<void(const Record&)>;

Status take_records(const std::string& path, const std::string& text, const Take& take) {
  std::vector<Record> first;  // records of losses; passed on when the text is known to be a ledger
  bool is_ledger = false;
  const LedgerReplay replay = replay_ledger(text, [&](const Record& record) {
    if (!is_ledger && std::holds_alternative<LostRecord>(record.what)) {
      first.push_back(record);
      return;
    }
    for (const Record& earlier : first) take(earlier);
    first.clear();
    is_ledger = true;
    take(record);
  });
  if (replay.records == 0 && replay.unknown == 0 && replay.damaged > 0)
    return {EINVAL, path + ": not a ledger: no line of it is a record"};
  if (replay.damaged > 0)
    complain(path + ": passed over " + std::to_string(replay.damaged) + " damaged lines of " +
             std::to_string(replay.damaged + replay.records));
  if (replay.lost > 0)
    complain(path + ": lacks " + std::to_string(replay.lost) + " records that could not be written");
  return {};
}

Status read_files_of_node(const std::string& path, const Take& take) {
  std::vector<std::string> texts;
  Status read = read_ledger(path, Extent::all_files, texts);
  for (const std::string& text : texts)
    if (read.ok()) read = take_records(path, text, take);
  return read;
}

Status read_given_file(const std::string& path, const Take& take) {
  std::string text;
  if (Status read = read_file(path, text); !read.ok()) return read;
  return take_records(path, text, take);
}

// Sorts the files by age if all belong to one ledger, since a shell's wildcard lists them in another order.
// Otherwise, keeps their order.
std::vector<std::string> oldest_first(std::vector<std::string> files) {
  const auto number_of = [](const std::string& file) -> long {
    const std::size_t dot = file.rfind('.');
    const std::string digits = dot == file.npos ? "" : file.substr(dot + 1);
    const bool is_number =
        !digits.empty() && digits.size() < 6 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    return is_number ? std::stol(digits) : 0;
  };
  const auto stem_of = [&](const std::string& file) {
    return number_of(file) == 0 ? file : file.substr(0, file.rfind('.'));
  };
  const bool one = std::all_of(files.begin(), files.end(), [&](const std::string& file) {
    return stem_of(file) == stem_of(files.front());
  });
  if (one)
    std::stable_sort(files.begin(), files.end(),
                     [&](const std::string& a, const std::string& b) { return number_of(a) > number_of(b); });
  return files;
}

}  // namespace

int read_ledger_input(const LedgerInput& input, const Take& take) {
  Status read;
  if (input.files.empty()) {
    Settings settings;
    if (!load_settings(input.config, settings)) return 2;
    read = read_files_of_node(settings.state_dir + "/ledger", take);
  }
  for (const std::string& file : oldest_first(input.files))
    if (read = read_given_file(file, take); !read.ok()) break;
  if (read.ok()) return 0;
  complain(read.message());
  return 1;
}

}  // namespace sharedgpu::cli
