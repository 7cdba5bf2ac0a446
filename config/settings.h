// SPDX-License-Identifier: Apache-2.0
// Reads sharedgpu.conf: `Key=Value` lines, `#` comments, and at the end sections for some GPUs, partitions or
// QOS. Used by sharedgpud, the sharedgpu command and the SPANK plugin. Unknown keys and bad values are errors
// that name file and line.
//
// No exceptions leave these functions. Any thread.
//
// To add a key:
//   1. Here: a field of Settings with a usable default. In settings.cpp: a setter, and a row in the table of
//      keys. The row says in which sections the key may stand; only such keys can be changed while the
//      arbiter runs.
//   2. The code that uses the key. A key about jobs or turns is used by terms.cpp in arbiter/daemon. If its
//      value may differ between GPUs, add a field to Rules (arbiter/core/model/model.h), which a domain takes
//      from its first GPU. A key that is fixed for the life of the arbiter is a field of Tuning, set in
//      arbiter.cpp. If `sharedgpu status --json` shows the key, follow the recipe in
//      arbiter/daemon/status_text.h.
//   3. Document it in etc/sharedgpu.conf, which has every key (tests/unit/slurm/example_config_test.cpp
//      checks that), and docs/man/sharedgpu.conf.5; both list the keys of sections, as does the command `set`
//      in docs/man/sharedgpu.1.
//   4. Test it in tests/unit/config/settings.cpp and keys_golden.cpp. Test its default in
//      tests/unit/slurm/example_config_test.cpp. If `set` may change it, add it to tests/fuzz/set_lines.cpp.
//      Regenerate keys.golden beside the first two and, if `set` may change it,
//      tests/unit/command/options_sharedgpu.golden (see tests/golden).
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
// it.
enum class Measure : std::uint8_t { ignore, warn, cancel };
// The requests to Slurm when a GPU fails or is lost: draining the node, requeueing the jobs of a lost GPU.
struct GpuLossMeasures {
  bool drain = false;
  bool requeue = false;
  bool operator==(const GpuLossMeasures&) const = default;
};
// The processes that may be tenants: only processes of jobs and of runs for which an administrator vouches,
// or any.
enum class TenantKind : std::uint8_t { jobs, any };
// The writer of the jobs' AdminComments: this node, nobody, or the program that processes a spool folder.
enum class AdminComment : std::uint8_t { yes, no, folder };
// The jobs that the policy elastic schedules even while memory suffices: jobs that state a share, or all
// jobs.
enum class Shares : std::uint8_t { stated, units };

// GPUs, by their numbers on this host or by UUID.
struct GpuNames {
  std::vector<std::uint32_t> numbers;
  std::vector<GpuUuid> uuids;
  bool has(std::uint32_t number, const GpuUuid& uuid) const;
  bool operator==(const GpuNames&) const = default;
};

// The kinds of sections, as bits: each key may stand in sections of some kinds.
enum class SectionOf : std::uint8_t { gpu = 1, partition = 2, qos = 4 };

// A section with its valid keys and values.
struct Section {
  SectionOf of = SectionOf::gpu;
  GpuNames gpus;                   // for [gpu]
  std::vector<std::string> names;  // for [partition] and [qos]
  std::vector<std::pair<std::string, std::string>> values;
  bool has(std::string_view name) const;
  bool is_about_the_same(const Section& other) const;
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
  std::int32_t priority = 0;  // the job's own priority is added
  std::int32_t max_priority = 0;
  bool mps = false;
  TypedSizes swap_per_unit;    // nullopt: unlimited, and job_submit/ adds no host memory to jobs
  TypedSizes gpu_memory;       // used if swap_per_unit is auto, on a host without the GPUs
  Bytes host_memory_per_unit;  // for a run's program, if the run states none; zero: no group
  std::string cgroup_parent = "/sharedgpu";  // the control group above the control groups of runs
  Nanoseconds arbiter_timeout = std::chrono::seconds(5);
  OnNoArbiter on_no_arbiter = OnNoArbiter::plain;
  Nanoseconds max_overuse = std::chrono::minutes(5);
  Measure on_overuse = Measure::warn;  // never ignore
  Measure unmanaged = Measure::warn;
  GpuLossMeasures on_gpu_loss;
  std::optional<TenantKind> tenants;  // nullopt: as --tenants of sharedgpud says, or else any
  std::string
      peer_address;  // address at which other arbiters reach this one; empty: all addresses of the host
  // UDP; zero: the turns of a job on several nodes are not coordinated between nodes.
  std::uint16_t peer_port = 585;
  std::string munge_socket;              // munged's socket; empty: munge's own default
  std::string slurm_user = "slurm";      // a name or a uid
  std::vector<std::string> admin_users;  // names or uids
  AdminComment comments = AdminComment::yes;
  std::string comment_folder;
  std::string log_level = "info";
  std::string log_file;  // empty: standard error
  std::vector<Section> sections;
};

// Reads `path`. Returns an empty string, or an error message: "FILE:LINE: unknown key 'X'".
std::string read_settings(const std::string& path, Settings& settings);

// Does the same for text in memory; `name` replaces the file name in errors.
std::string parse_settings(std::string_view text, const std::string& name, Settings& settings);

// The settings of one GPU. `partition`: the partition that all of its tenants belong to; empty if there is
// none. If sections contradict each other, [gpu] overrides [partition], and among equals the later one wins.
Settings settings_of(const Settings& node, std::uint32_t number, const GpuUuid& gpu,
                     std::string_view partition = {});

// The settings of one job. If sections contradict each other, [qos] overrides [partition], and among equals
// the later one wins.
Settings settings_of(const Settings& node, const JobClass& job);

// The settings with the values of one of their sections.
Settings with_section(const Settings& settings, const Section& section);

// Changes `settings` by a text in the form of sharedgpu.conf that has only keys which sections may have. On
// success, returns an empty string. On failure, returns an error message and changes nothing.
std::string change_settings(std::string_view text, Settings& settings);

// Parses "0", "1,4-7" or UUIDs, separated by commas. Returns an empty string, or an error message.
std::string parse_gpu_names(std::string_view text, GpuNames& gpus);

// The folder in which programs find the MPS control daemon if Mps=yes.
std::string mps_folder(const std::string& socket);

// The keys that a file may have.
std::vector<std::string_view> settings_keys();
// The keys that sections may have, and the kinds of sections.
std::vector<std::string_view> section_keys();
std::vector<std::string_view> section_kinds();

// Reads the settings of a program without --config: the default file if it exists, otherwise the default of
// each key. Returns an empty string, or an error message.
std::string read_default_settings(Settings& settings);

// Returns the settings in the file `path`, or in the default file if `path` is empty. Returns nullopt if
// there is no such file, or if the file cannot be read or has an error.
std::optional<Settings> settings_in_file(const std::string& path);

}  // namespace sharedgpu
