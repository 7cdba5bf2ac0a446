// SPDX-License-Identifier: Apache-2.0
// Reads sharedgpu.conf: `Key=Value` lines, `#` comments, and at the end sections for some GPUs, partitions or
// QOS. Used by sharedgpud, sharedgpu, sharedgpu-comment, sharedgpu-exporter, and the SPANK and job_submit
// plugins. Unknown keys and bad values are errors that name file and line.
//
// No exceptions leave these functions. Any thread.
//
// To add a key:
//   1. In this file, add a field with a usable default to Settings. In settings.cpp, add a setter, and a row
//      in the table of keys. The row says which kinds of sections may contain the key, and whether the key is
//      live: a running arbiter applies a new value of a live key when it reloads the file. Keys that sections
//      may contain are always live, and `sharedgpu set` can change only these keys.
//   2. Write the code that uses the key. For keys about jobs or turns, this code is in terms.cpp of
//      arbiter/daemon. If the value may differ between GPUs, add a field to Rules
//      (arbiter/core/model/model.h), or to TurnRules (arbiter/policy/turn_length.h) if it is about the length
//      of turns; a domain takes its Rules from its first GPU. If the core needs the value for the whole node,
//      add a field to Tuning and to NodeTuning (arbiter/core/model/tuning.h), and set it in node_tuning_of()
//      of terms.cpp. If Administration::reload() must do more than store a new value of the key, do it there.
//      If `sharedgpu status --json` shows the key, follow the steps in arbiter/daemon/status_text.h.
//   3. Document the key in docs/man/sharedgpu.conf.5 and in etc/sharedgpu.conf, which contains every key
//      (tests/unit/config/example_config.cpp checks this). If sections may contain the key, add the key to
//      the lists of such keys in both files, and to the list at the command `set` in docs/man/sharedgpu.1.
//   4. Test the key in tests/unit/config/settings.cpp and keys_golden.cpp. If the key is live, test its
//      effect in tests/unit/arbiter/daemon/reload.cpp and, if the core uses it,
//      tests/unit/arbiter/core/changed_settings.cpp. Test its default in
//      tests/unit/config/example_config.cpp. If `set` may change the key, add the key to
//      tests/fuzz/set_lines.cpp. Regenerate tests/unit/config/keys.golden and, if `set` may change the key,
//      tests/unit/arbiter/cli/options_sharedgpu.golden (see tests/golden).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/quantities.h"
#include "config/swap_per_unit.h"
#include "protocol/channel.h"
#include "protocol/messages.h"
#include "protocol/policy_names.h"
#include "protocol/units.h"

namespace sharedgpu {

inline constexpr char kDefaultConfigFile[] = "/etc/sharedgpu/sharedgpu.conf";

enum class OnNoArbiter : std::uint8_t { plain, fail };
// The measure against a tenant or process that keeps others from a GPU: none, a line in the log, or ending
// the tenant or process.
enum class Measure : std::uint8_t { ignore, warn, cancel };
// The requests to Slurm when a GPU fails or is lost: to drain the node, and to requeue the jobs of a lost
// GPU.
struct GpuLossMeasures {
  bool drain = false;
  bool requeue = false;
  bool operator==(const GpuLossMeasures&) const = default;
};
// The processes that may be tenants: either any process, or only processes of jobs and of runs that an
// administrator starts for a user.
enum class TenantKind : std::uint8_t { jobs, any };
// The writer of the jobs' AdminComments: this node, nobody, or the program that processes a spool folder.
enum class AdminComment : std::uint8_t { yes, no, folder };
// Decides whether ordinary users see the tenants of other users: as Slurm's PrivateData= says, never, or
// always.
enum class PrivateData : std::uint8_t { slurm, jobs, none };
// The jobs whose shares are enforced even while memory suffices for all jobs: only jobs that state a share,
// or all jobs.
enum class Shares : std::uint8_t { stated, units };

// A set of GPUs, stated by their numbers on this host or by UUID.
struct GpuNames {
  std::vector<std::uint32_t> numbers;
  std::vector<GpuUuid> uuids;
  bool has(std::uint32_t number, const GpuUuid& uuid) const;
  bool operator==(const GpuNames&) const = default;
};

// The kinds of sections, as bits of a set.
enum class SectionOf : std::uint8_t { gpu = 1, partition = 2, qos = 4 };

// The name of a key, and its value as written.
using KeyValue = std::pair<std::string, std::string>;

// A section with its valid keys and values.
struct Section {
  SectionOf of = SectionOf::gpu;
  GpuNames gpus;                   // for [gpu]
  std::vector<std::string> names;  // for [partition] and [qos]
  std::string head;                // as written: "[gpu 0,2-3]"
  std::vector<KeyValue> values;
  bool has(std::string_view name) const;
  bool is_about_the_same(const Section& other) const;
  bool operator==(const Section&) const = default;
};

// All settings, with the default of each key.
struct Settings {
  std::string socket = kDefaultSocket;
  std::string state_dir = "/var/lib/sharedgpu";
  Bytes ledger_size = mebibytes(64);
  std::uint32_t ledger_files = 16;
  Amount device_memory_limit{.bytes = {}, .percent = 100};
  Amount memory_reserve{.bytes = {}, .percent = 5};
  std::string policy = "round-robin";
  // Zero: the length is computed from max_swap_overhead, max_wait and the measured time of handoffs.
  Nanoseconds quantum{};
  double max_swap_overhead = 5;  // percent
  Nanoseconds max_wait = std::chrono::seconds(30);
  Nanoseconds idle_release = std::chrono::milliseconds(5);
  std::uint32_t units_per_gpu = 8;
  Shares shares = Shares::stated;
  double max_request = 100;   // percent of a GPU's time
  std::int32_t priority = 0;  // base priority, to which the job's own priority is added
  std::int32_t max_priority = 0;
  bool oversize = false;  // true: a tenant may have more memory than the GPU; the rest is away memory
  bool mps = false;
  TypedSizes swap_per_unit;    // without entries: unlimited, and job_submit/ adds no host memory to jobs
  TypedSizes gpu_memory;       // needed if swap_per_unit has an entry `auto` for a type of which the host has
                               // no GPU
  Bytes host_memory_per_unit;  // default limit on the host memory of a run's program, for each unit; zero: a
                               // run that states no host memory gets no control group
  std::string cgroup_parent = "/sharedgpu";  // the parent of the control groups of runs
  Nanoseconds arbiter_timeout = std::chrono::seconds(5);
  OnNoArbiter on_no_arbiter = OnNoArbiter::plain;
  Nanoseconds max_overuse = std::chrono::minutes(5);
  Measure on_overuse = Measure::warn;  // never Measure::ignore
  Measure unmanaged = Measure::warn;
  GpuLossMeasures on_gpu_loss;
  std::optional<TenantKind> tenants;  // nullopt: the value of sharedgpud's option --tenants, or `any`
  std::string
      peer_address;  // address at which to listen for other arbiters; empty: all addresses of the host
  // UDP port; zero: the turns of a job on several nodes are not coordinated between nodes
  std::uint16_t peer_port = 585;
  std::string munge_socket;               // path of munged's socket; empty: munge's default path
  std::string slurm_user = "slurm";       // a name or a uid
  std::vector<std::string> admin_users;   // names or uids
  std::vector<std::string> status_users;  // names or uids
  PrivateData private_data = PrivateData::slurm;
  Nanoseconds notice_after = std::chrono::seconds(30);  // zero: no notices
  bool summary = false;
  AdminComment comments = AdminComment::yes;
  std::string comment_folder;
  bool system_comment = false;  // summaries of jobs are in SystemComment, not in AdminComment
  std::string log_level = "info";
  std::string log_file;  // empty: standard error
  std::vector<Section> sections;
  std::vector<KeyValue> values;  // the keys that are set before the first section, each once
  bool operator==(const Settings&) const = default;
};

// Reads `path`. Returns an empty string, or an error message: "FILE:LINE: unknown key 'X'".
std::string read_settings(const std::string& path, Settings& settings);

// Parses `text` as read_settings() parses a file. `name` takes the place of the file name in error messages.
std::string parse_settings(std::string_view text, const std::string& name, Settings& settings);

// Reads `path` to the end, in spite of errors. `settings` gets the valid lines. Returns all error messages,
// at most one for each line. If the file cannot be read, `readable` is false and there is one message.
struct Reading {
  bool readable = false;
  std::vector<std::string> errors;
};
Reading read_in_spite_of_errors(const std::string& path, Settings& settings);

// The settings of one GPU. `partition`: the partition of all tenants on the GPU; empty if they do not all
// belong to one partition. If sections contradict each other, [gpu] overrides [partition], and the later of
// two sections of one kind overrides the earlier section.
Settings settings_of(const Settings& node, std::uint32_t number, const GpuUuid& gpu,
                     std::string_view partition = {});

// The settings of one job. If sections contradict each other, [qos] overrides [partition], and the later of
// two sections of one kind overrides the earlier section.
Settings settings_of(const Settings& node, const JobClass& job);

// Returns `settings` with the values of `section` applied.
Settings with_section(const Settings& settings, const Section& section);

// Applies a text in the format of sharedgpu.conf to `settings`. The text may contain only keys that sections
// may contain. On success, returns an empty string. On failure, returns an error message and changes nothing.
std::string change_settings(std::string_view text, Settings& settings);

// The keys whose values differ between two versions of sharedgpu.conf, in the order of settings_keys(). Keys
// in sections are named with the section, such as "[gpu 0] Policy". A key outside sections is not listed if
// both versions state the same value, even in different forms. In sections, values are compared as written.
struct Difference {
  std::vector<std::string> live;     // a running arbiter can apply the new value
  std::vector<std::string> restart;  // the new value needs a restart of the arbiter
};
Difference difference(const Settings& before, const Settings& after);

// The values of sharedgpu.conf that differ from the defaults, and all values in sections, in the order of the
// file. Keys are named as in Difference.
std::vector<KeyValue> chosen_values(const Settings& settings);

// Returns `before` with the live keys and the sections of `after`.
Settings with_live_keys(const Settings& before, const Settings& after);

// Parses "0", "1,4-7" or UUIDs, separated by commas. Returns an empty string, or an error message.
std::string parse_gpu_names(std::string_view text, GpuNames& gpus);

// Returns the folder in which programs find the MPS control daemon if Mps=yes.
std::string mps_folder(const std::string& socket);

// Sets Tenants= to `value`, as the file does. Returns an empty string, or an error message.
std::string parse_tenants(std::string_view value, Settings& settings);

// All keys.
std::vector<std::string_view> settings_keys();
// The live keys: a running arbiter applies their new values when it reloads its file.
std::vector<std::string_view> live_keys();
// The keys that sections may have, and the kinds of sections.
std::vector<std::string_view> section_keys();
std::vector<std::string_view> section_kinds();

// Reads the settings of a program that was started without --config. Reads the default file if it exists;
// otherwise each key has its default. Returns an empty string, or an error message.
std::string read_default_settings(Settings& settings);

// Returns the settings in the file `path`, or in the default file if `path` is empty. Returns nullopt if
// there is no such file, or if the file cannot be read or has an error.
std::optional<Settings> settings_in_file(const std::string& path);

}  // namespace sharedgpu
