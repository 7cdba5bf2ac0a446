// SPDX-License-Identifier: Apache-2.0
// The checks of `sharedgpu doctor`: each examines one thing of a node, and says what is wrong and how to
// repair it. A check reads through a Host and judges what it has read; it changes nothing.
//
// To add a check: write a function in doctor_checks.cpp, and add a row to its table. Test the function on a
// healthy node and on a broken one in tests/unit/arbiter/cli/doctor.cpp. The table in docs/operate.md has a
// row for each check.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace sharedgpu::doctor {

// The host that the checks examine. The methods of this class read the real host, below a root folder. Tests
// override them. No method blocks for more than a few seconds.
class Host {
 public:
  // `root`: the folder to read instead of /, without a slash at its end; empty: / itself.
  explicit Host(std::string root = "") : root_(std::move(root)) {}
  virtual ~Host() = default;

  // Returns the text of a file, or nullopt if the file cannot be read.
  std::optional<std::string> read(const std::string& path) const;
  bool exists(const std::string& path) const;
  // The names in a folder, sorted; empty if it cannot be read.
  std::vector<std::string> list(const std::string& path) const;
  // Owner, type and mode. nullopt if there is no such file, or a folder above it cannot be searched.
  virtual std::optional<struct stat> facts(const std::string& path) const;
  // Bytes that an ordinary user can still write to the file system of `path`; nullopt if unknown.
  virtual std::optional<std::uint64_t> free_space(const std::string& path) const;

  struct Output {
    bool ran = false;  // false: there is no such program, or no process could be created
    int status = 0;    // exit status, or 128 plus a signal's number; 124: killed after a few seconds
    std::string text;  // standard output
  };
  // Runs a program that PATH finds, with no input.
  virtual Output run(const std::vector<std::string>& words) const;

  // The text of `sharedgpu status --json`; `error` says why there is none.
  virtual std::string status(const Settings& settings, std::string& error) const;
  virtual std::optional<uid_t> user(const std::string& name) const;
  virtual uid_t uid() const;
  virtual std::string host_name() const;
  // Returns true if the Linux kernel's clock is synchronised; nullopt if this is unknown.
  virtual std::optional<bool> clock_is_synchronised() const;

  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

enum class Verdict : std::uint8_t {
  good,
  wrong,   // something on the node is wrong
  unseen,  // the facts that the check needs are missing, for example for lack of permission
  unused,  // the node does not use the thing that the check examines
};

struct Finding {
  Verdict verdict = Verdict::good;
  std::string seen;    // what was found: "version 550.54"
  std::string advice;  // how to repair it; empty unless something is wrong or unseen
};

// The facts that several checks need, read once.
struct Node {
  const Host& host;
  std::string config;  // path of sharedgpu.conf; empty: there is none, and the defaults apply
  Reading reading;     // tells if `config` is readable, and has the errors in it
  Settings settings;
  std::optional<nlohmann::json> status;  // the arbiter's status
  std::string no_status;                 // the reason if there is no status
  // `scontrol show config`, as Key = value; empty if there is no scontrol, or it fails, or was not run.
  std::vector<KeyValue> slurm;
  std::string slurm_node;  // the line of `scontrol show node --oneliner`; may be empty
  std::string no_slurm;    // why scontrol gave no configuration; empty if it did, or was not run

  // The value of a key in `slurm`; an empty text if the key is missing.
  std::string slurm_value(std::string_view key) const;
  // The value of KEY=VALUE in slurm_node.
  std::string node_value(std::string_view key) const;
  // The folder of slurm.conf.
  std::string slurm_folder() const;
};
// Collects the facts. `with_slurm`: calls scontrol, too.
Node examine(const Host& host, const std::string& config, bool with_slurm = true);

struct Check {
  const char* name;      // the check's name on the command line, one word
  const char* examines;  // what the check examines, as text for people
  Finding (*judge)(const Node&);
  bool asks_slurm = false;
};
const std::vector<Check>& checks();

struct Result {
  const Check* check;
  Finding finding;
};
// Runs the checks with these names, or all checks if there are none. Each name must be that of a check.
std::vector<Result> run_checks(const Node& node, const std::vector<std::string>& names);
bool is_any_wrong(const std::vector<Result>& results);

// The results for people, one or two lines for each check, and as JSON (docs/status-json.md).
std::string text_of(const std::vector<Result>& results);
std::string json_of(const std::vector<Result>& results);

// The value of the symbol `plugin_version` of a Slurm plugin, such as 0x160508 for 22.05.8; nullopt if `file`
// is no ELF file of a plugin. Does not load the file.
std::optional<std::uint32_t> plugin_version(std::string_view file);

}  // namespace sharedgpu::doctor
