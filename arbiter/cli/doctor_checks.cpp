// SPDX-License-Identifier: Apache-2.0
// The checks of `sharedgpu doctor`, one function each.
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <sstream>

#include "arbiter/cli/doctor.h"
#include "config/node_gpus.h"
#include "config/quantities.h"
#include "protocol/split.h"

namespace sharedgpu::doctor {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kDriverPatience{3};
constexpr std::uint32_t kOldestSlurm = 22 << 16 | 5 << 8;
constexpr std::uint32_t kNewestSlurm = 26 << 16 | 5 << 8 | 0xff;

Finding good(std::string seen) { return {.verdict = Verdict::good, .seen = std::move(seen), .advice = {}}; }
Finding wrong(std::string seen, std::string advice) {
  return {.verdict = Verdict::wrong, .seen = std::move(seen), .advice = std::move(advice)};
}
Finding unseen(std::string seen, std::string advice) {
  return {.verdict = Verdict::unseen, .seen = std::move(seen), .advice = std::move(advice)};
}
Finding unused(std::string seen) {
  return {.verdict = Verdict::unused, .seen = std::move(seen), .advice = {}};
}

// Collects messages about what is wrong and how to repair it.
struct Troubles {
  std::vector<std::string> seen;
  std::vector<std::string> advice;
  void add(std::string what, std::string how) {
    seen.push_back(std::move(what));
    if (std::find(advice.begin(), advice.end(), how) == advice.end()) advice.push_back(std::move(how));
  }
  static std::string joined(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
    return text;
  }
  Finding or_else(std::string all_well) const {
    return seen.empty() ? good(std::move(all_well)) : wrong(joined(seen), joined(advice));
  }
};

bool lists(std::string_view list, std::string_view word) {
  const auto words = split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string version_text(std::uint32_t version) {
  char text[32];
  std::snprintf(text, sizeof text, "%u.%02u.%u", version >> 16, version >> 8 & 0xff, version & 0xff);
  return text;
}

// Converts "22.05.8" to 0x160508; 0 if the text is no version.
std::uint32_t version_number(const std::string& text) {
  unsigned major = 0, minor = 0, micro = 0;
  if (std::sscanf(text.c_str(), "%u.%u.%u", &major, &minor, &micro) < 2) return 0;
  return major << 16 | minor << 8 | micro;
}

std::string number_of(std::uint64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

Finding no_slurm(const Node& node) {
  return node.no_slurm == "scontrol is not installed"
             ? unused("no Slurm on this host")
             : unseen(node.no_slurm, "mend the connection to slurmctld, then run this again");
}

// The lines of a configuration file of Slurm, without comments and empty lines.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") != line.npos) lines.push_back(line);
  }
  return lines;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The value of Key=VALUE in the text of a file such as cgroup.conf, in lower case; empty if the key is
// missing.
std::string value_in(const std::string& text, const std::string& key) {
  for (const std::string& line : lines_of(text)) {
    const std::size_t equals = line.find('=');
    if (equals == line.npos) continue;
    std::string name = lower(line.substr(0, equals));
    name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
    if (name != lower(key)) continue;
    std::string value = lower(line.substr(equals + 1));
    value.erase(std::remove_if(value.begin(), value.end(), [](char c) { return c == ' ' || c == '\r'; }),
                value.end());
    return value;
  }
  return {};
}

NodeGpus gpus_of(const Node& node) { return find_node_gpus(kDriverPatience, node.host.root()); }

// ---- sharedgpu itself ----

Finding check_config(const Node& node) {
  if (node.config.empty()) return good("no file: every key has its default");
  if (!node.reading.readable)
    return node.host.facts(node.config)
               ? unseen(node.config + " cannot be read by this user", "make it readable for all: chmod 644")
               : wrong(node.reading.errors.front(), "write the file, or leave out --config");
  Troubles troubles;
  for (const std::string& error : node.reading.errors)
    troubles.add(error, "mend the lines (sharedgpu.conf(5)), test with sharedgpud --check");
  if (const auto facts = node.host.facts(node.config)) {
    const std::string mend = "chown root " + node.config + " && chmod 644 " + node.config;
    if (facts->st_uid != 0 && facts->st_uid != node.host.uid())
      troubles.add(node.config + " belongs to uid " + std::to_string(facts->st_uid), mend);
    if ((facts->st_mode & S_IWOTH) != 0) troubles.add("all users may write to " + node.config, mend);
  }
  return troubles.or_else(node.config);
}

Finding check_arbiter(const Node& node) {
  if (node.status) {
    const std::string version = node.status->value("version", "");
    if (version == SHAREDGPU_VERSION) return good("version " + version + " serves " + node.settings.socket);
    return wrong(
        "the arbiter has version " + version + ", this command " SHAREDGPU_VERSION,
        "restart the arbiter: systemctl restart sharedgpud, or end it and restart slurmd; running jobs "
        "keep their leases");
  }
  const auto socket = node.host.facts(node.settings.socket);
  if (socket && (socket->st_mode & S_IWOTH) == 0 && node.host.uid() != 0)
    return wrong(node.settings.socket + " does not admit this user",
                 "restart the arbiter, which sets the mode");
  return wrong(node.no_status,
               "start it: systemctl start sharedgpud, or restart slurmd, whose plugstack.conf must name "
               "spank_sharedgpu.so; then read the arbiter's log");
}

// Reports why an arbiter that this user starts would refuse a folder: this folder or a folder above it
// belongs to neither root nor the arbiter's user, or all users may write to it. A folder above may have the
// sticky bit instead (check_folder() of arbiter/daemon/folders.h).
void check_folder(const Node& node, const char* key, const std::string& last, Troubles& troubles) {
  for (std::string folder = last; !folder.empty(); folder.resize(folder.rfind('/'))) {
    const auto facts = node.host.facts(folder);
    if (!facts) continue;  // the arbiter creates this folder
    if (facts->st_uid != 0 && facts->st_uid != node.host.uid())
      troubles.add(std::string(key) + ": " + folder + " belongs to uid " + std::to_string(facts->st_uid),
                   "chown root " + folder);
    const bool keeps_names = folder != last && (facts->st_mode & S_ISVTX) != 0;
    if ((facts->st_mode & S_IWOTH) != 0 && !keeps_names)
      troubles.add(std::string(key) + ": all users may write to " + folder, "chmod o-w " + folder);
  }
}

Finding check_permissions(const Node& node) {
  Troubles troubles;
  const auto above = [](const std::string& path) { return path.substr(0, path.rfind('/')); };
  check_folder(node, "Socket", above(node.settings.socket), troubles);
  check_folder(node, "StateDir", node.settings.state_dir, troubles);
  if (!node.settings.log_file.empty()) check_folder(node, "LogFile", above(node.settings.log_file), troubles);
  const auto socket = node.host.facts(node.settings.socket);
  if (socket && !S_ISSOCK(socket->st_mode))
    troubles.add(node.settings.socket + " is not a socket", "remove the file, and restart the arbiter");
  else if (socket && (socket->st_mode & (S_IWOTH | S_IROTH)) != (S_IWOTH | S_IROTH))
    troubles.add("jobs cannot connect to " + node.settings.socket, "chmod 666 " + node.settings.socket);
  return troubles.or_else("folders of Socket, StateDir and LogFile");
}

Finding check_users(const Node& node) {
  Troubles troubles;
  std::vector<std::pair<std::string, std::string>> users{{"SlurmUser", node.settings.slurm_user}};
  for (const std::string& name : node.settings.admin_users) users.emplace_back("AdminUsers", name);
  for (const std::string& name : node.settings.status_users) users.emplace_back("StatusUsers", name);
  for (const auto& [key, name] : users)
    if (!node.host.user(name) && (key != "SlurmUser" || !node.slurm.empty()))
      troubles.add(key + ": no user '" + name + "' on this host", "mend " + key + "= in sharedgpu.conf");
  // Slurm writes the user as NAME(UID), such as "slurm(64030)".
  const std::string slurm = node.slurm_value("SlurmUser");
  const std::string number = slurm.substr(std::min(slurm.find('(') + 1, slurm.size()));
  const auto theirs = parse_number<uid_t>(number.substr(0, number.find(')')));
  const auto ours = node.host.user(node.settings.slurm_user);
  if (theirs && ours && *theirs != 0 && *theirs != *ours)
    troubles.add(
        "SlurmUser is " + node.settings.slurm_user + " in sharedgpu.conf, and " + slurm + " in slurm.conf",
        "set SlurmUser= in sharedgpu.conf to the value of slurm.conf");
  return troubles.or_else("SlurmUser, AdminUsers and StatusUsers");
}

Finding check_ledger(const Node& node) {
  const auto space = node.host.free_space(node.settings.state_dir);
  if (!space)
    return node.host.uid() == 0 ? good(node.settings.state_dir + " is not made yet")
                                : unseen(node.settings.state_dir + " cannot be examined", "run this as root");
  const std::uint64_t needs = node.settings.ledger_size.count * node.settings.ledger_files;
  const std::string seen = format_size(Bytes{*space}) + " free for " + node.settings.state_dir;
  if (*space >= std::min(needs, std::uint64_t{1} << 28)) return good(seen);
  return wrong(seen + ", the ledger may need " + format_size(Bytes{needs}),
               "free some space, or lower LedgerSize= or LedgerFiles=");
}

// ---- the driver and its GPUs ----

Finding check_driver(const Node& node) {
  const auto version = node.host.read("/proc/driver/nvidia/version");
  if (!version)
    return gpus_of(node).list.empty()
               ? wrong("NVIDIA's kernel module is not loaded", "install the driver, then modprobe nvidia")
               : good("device files without a kernel module: a simulated driver");
  const auto words = [&] {
    std::istringstream text(first_line(*version));
    std::vector<std::string> all;
    for (std::string word; text >> word;) all.push_back(word);
    return all;
  }();
  const auto number = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word.find('.') != word.npos && word.find_first_not_of("0123456789.") == word.npos;
  });
  const std::string kernel = number == words.end() ? "" : *number;
  Troubles troubles;
  for (const std::string name : {"libcuda.so", "libnvidia-ml.so"}) {
    std::vector<std::string> versions;
    bool is_linked = false;
    for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu",
                               "/usr/lib/x86_64-linux-gnu/nvidia/current"})
      for (const std::string& file : node.host.list(folder)) {
        is_linked = is_linked || file == name + ".1";
        if (file.starts_with(name + ".") && file.size() > name.size() + 2 && file != name + ".1")
          versions.push_back(file.substr(name.size() + 1));
      }
    if (!is_linked)
      troubles.add("no " + name + ".1", "install the driver's user-space packages of version " + kernel);
    else if (!kernel.empty() && !versions.empty() &&
             std::find(versions.begin(), versions.end(), kernel) == versions.end())
      troubles.add(name + " has version " + versions.back() + ", the kernel module " + kernel,
                   "reboot the node, or reload the kernel module, so that both have one version");
  }
  return troubles.or_else("version " + kernel);
}

Finding check_gpus(const Node& node) {
  const NodeGpus gpus = gpus_of(node);
  Troubles troubles;
  std::string drained;  // GPUs that an administrator has drained, which is no fault
  if (gpus.timed_out)
    troubles.add("the driver does not list its GPUs", "look for Xid errors in dmesg; reboot the node");
  else if (gpus.list.empty())
    troubles.add("no GPU", "look for NVRM lines in dmesg; check lspci -d 10de:");
  if (node.status) {
    const Json& all = node.status->value("gpus", Json::array());
    std::size_t verified = 0;
    for (const Json& gpu : all) {
      verified += gpu.value("verified", true) ? 1 : 0;
      const std::string name = "GPU " + std::to_string(gpu.value("number", 0));
      if (const std::string condition = gpu.value("condition", "healthy"); condition != "healthy")
        troubles.add(
            name + " is " + condition +
                (gpu.value("fault", Json()).is_string() ? " (" + gpu["fault"].get<std::string>() + ")" : ""),
            "reset or replace the GPU (docs/design/health.md)");
      if (gpu.value("drained", false)) drained += ", " + name + " is drained";
    }
    if (verified < gpus.list.size())
      troubles.add(
          "the arbiter has found " + std::to_string(verified) + " of " + number_of(gpus.list.size(), "GPU"),
          "read the arbiter's log; run nvidia-smi");
  }
  return troubles.or_else(number_of(gpus.list.size(), "GPU") + drained);
}

Finding check_ecc(const Node& node) {
  const Host::Output shown = node.host.run(
      {"nvidia-smi",
       "--query-gpu=index,ecc.mode.current,ecc.errors.uncorrected.volatile.total,remapped_rows.pending",
       "--format=csv,noheader,nounits"});
  if (!shown.ran) return unused("no nvidia-smi");
  if (shown.status != 0)
    return wrong("nvidia-smi fails with status " + std::to_string(shown.status),
                 "run nvidia-smi by hand; look for Xid errors in dmesg");
  Troubles troubles;
  std::istringstream lines(shown.text);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    for (std::string_view field : split(line, ','))
      fields.emplace_back(field.substr(std::min(field.find_first_not_of(' '), field.size())));
    if (fields.size() < 4) continue;
    ++count;
    if (fields[1] == "Disabled")
      troubles.add("ECC is off on GPU " + fields[0],
                   "nvidia-smi -i " + fields[0] + " -e 1, then reset the GPU");
    if (parse_number<std::uint64_t>(fields[2]).value_or(0) > 0)
      troubles.add("GPU " + fields[0] + " has " + fields[2] + " uncorrected memory errors",
                   "drain the GPU (sharedgpu drain gpu N), and reset it");
    if (fields[3] == "Yes" || fields[3] == "1")
      troubles.add("GPU " + fields[0] + " waits for a reset to remap rows", "drain the GPU, and reset it");
  }
  return troubles.or_else("no uncorrected errors on " + number_of(count, "GPU"));
}

// ---- Slurm ----

Finding check_slurm(const Node& node) {
  if (node.slurm.empty()) return no_slurm(node);
  const std::string text = node.slurm_value("SLURM_VERSION");
  const std::uint32_t version = version_number(text);
  if (version >= kOldestSlurm && version <= kNewestSlurm) return good("Slurm " + text);
  return wrong("Slurm " + text + " is not among the tested releases, 22.05 to 26.05",
               "see docs/compatibility.md");
}

Finding check_plugins(const Node& node) {
  if (node.slurm.empty()) return no_slurm(node);
  const std::string release = node.slurm_value("SLURM_VERSION");
  std::vector<std::pair<std::string, bool>> plugins{{"gres_sharedgpu.so", true}};
  if (node.slurm_value("AcctGatherInterconnectType").find("sharedgpu") != std::string::npos)
    plugins.emplace_back("acct_gather_interconnect_sharedgpu.so", true);
  Troubles troubles;
  const std::string folders = node.slurm_value("PluginDir");
  for (std::string_view folder : split(folders, ':'))
    if (!node.host.exists(std::string(folder)))
      troubles.add("PluginDir names " + std::string(folder) + ", which does not exist",
                   "make the folder or take it out of PluginDir: Slurm's commands fail without it");
  for (const auto& [name, is_exact] : plugins) {
    std::optional<std::string> file;
    for (std::string_view folder : split(folders, ':'))
      if (!file) file = node.host.read(std::string(folder) + "/" + name);
    if (!file) {
      troubles.add("no " + name + " in " + folders, "install the plugins for Slurm " + release);
      continue;
    }
    const auto version = plugin_version(*file);
    if (!version)
      troubles.add(name + " is no plugin of Slurm", "install the plugins for Slurm " + release);
    else if (is_exact && *version != version_number(release))
      troubles.add(name + " is for Slurm " + version_text(*version) + ", this is " + release,
                   "install the plugins for Slurm " + release);
  }
  return troubles.or_else("for Slurm " + release);
}

Finding check_slurm_conf(const Node& node) {
  if (node.slurm.empty()) return no_slurm(node);
  Troubles troubles;
  if (!lists(node.slurm_value("GresTypes"), "sharedgpu"))
    troubles.add("GresTypes lacks sharedgpu", "add sharedgpu to GresTypes= in slurm.conf");
  if (node.slurm_value("ProctrackType") != "proctrack/cgroup")
    troubles.add("ProctrackType is " + node.slurm_value("ProctrackType"),
                 "set ProctrackType=proctrack/cgroup: the arbiter reads a process's job from its cgroup");
  const std::string tres = node.slurm_value("AccountingStorageTRES");
  const bool reports = node.slurm_value("AcctGatherInterconnectType").find("sharedgpu") != std::string::npos;
  // Without a database, AccountingStorageTRES has no effect on units.
  const bool has_database = node.slurm_value("AccountingStorageType") == "accounting_storage/slurmdbd";
  if (has_database && !lists(tres, "gres/sharedgpu"))
    troubles.add("AccountingStorageTRES lacks gres/sharedgpu", "add it in slurm.conf, and restart slurmctld");
  if (reports && !lists(tres, "gres/sharedgpu_lease"))
    troubles.add("AccountingStorageTRES lacks gres/sharedgpu_lease",
                 "add it in slurm.conf, and restart slurmctld");
  return troubles.or_else("GresTypes, ProctrackType and AccountingStorageTRES");
}

// The sum of the units in "gpu:2,sharedgpu:h200:8(S:0-1)".
std::uint64_t units_in(const std::string& gres) {
  std::uint64_t sum = 0;
  for (std::string_view entry : split(gres, ',')) {
    entry = entry.substr(0, entry.find('('));
    if (!entry.starts_with("sharedgpu:") && entry != "sharedgpu") continue;
    sum += parse_number<std::uint64_t>(entry.substr(entry.rfind(':') + 1)).value_or(1);
  }
  return sum;
}

Finding check_units(const Node& node) {
  if (node.slurm.empty()) return no_slurm(node);
  if (node.slurm_node.empty())
    return wrong("slurm.conf has no node " + node.host.host_name(),
                 "add NodeName= of this host to slurm.conf");
  const std::uint64_t units = units_in(node.node_value("Gres"));
  if (units == 0) return wrong("slurm.conf gives this node no units", "add Gres= as sharedgpu gres shows it");
  const std::uint64_t gpus = gpus_of(node).list.size();
  const std::uint64_t most = gpus * node.settings.units_per_gpu;
  if (units > most && gpus > 0)
    return wrong(number_of(units, "unit") + " for " + number_of(gpus, "GPU") +
                     " with UnitsPerGpu=" + std::to_string(node.settings.units_per_gpu),
                 "set Gres= in slurm.conf as sharedgpu gres shows it");
  const std::string state = node.node_value("State");
  if (state.find("INVAL") != std::string::npos)
    return wrong("Slurm calls the node invalid", "read slurmd's log: it names the reason");
  return good(number_of(units, "unit") + " of GRES sharedgpu");
}

Finding check_gres_conf(const Node& node) {
  if (node.slurm.empty()) return no_slurm(node);
  const std::string path = node.slurm_folder() + "/gres.conf";
  const auto text = node.host.read(path);
  if (!text)
    return node.host.exists(path) ? unseen(path + " cannot be read by this user", "run this as root")
                                  : good("no gres.conf: all GPUs are shared");
  Troubles troubles;
  for (const std::string& line : lines_of(*text)) {
    const std::string words = lower(line);
    if (words.find("name=sharedgpu") == words.npos) continue;
    if (words.find("countonly") != words.npos)
      troubles.add("Flags=CountOnly at sharedgpu in " + path, "remove it: it keeps the plugin from loading");
    if (words.find("file=") != words.npos && words.find("count=") != words.npos)
      troubles.add("Count= beside File= at sharedgpu in " + path,
                   "remove Count=: Slurm takes it for the files");
  }
  return troubles.or_else(path);
}

// Appends to `text` the lines of a plugstack.conf and of the files that it includes. As for Slurm, a
// relative path begins at the folder of the including file, and the last part of a path may be a pattern for
// glob(7).
void read_plugstack(const Node& node, const std::string& path, int depth, std::string& text) {
  const auto own = node.host.read(path);
  if (!own || depth > 4) return;
  for (const std::string& line : lines_of(*own)) {
    std::istringstream words(line);
    std::string word, target;
    words >> word >> target;
    if (word != "include") {
      text += line + "\n";
      continue;
    }
    if (!target.starts_with('/')) target = path.substr(0, path.rfind('/') + 1) + target;
    if (target.find_first_of("*?[") == target.npos) {
      read_plugstack(node, target, depth + 1, text);
      continue;
    }
    const std::size_t slash = target.rfind('/');
    const std::string folder = target.substr(0, slash), pattern = target.substr(slash + 1);
    for (const std::string& name : node.host.list(folder))
      if (fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0)
        read_plugstack(node, folder + "/" + name, depth + 1, text);
  }
}

Finding check_plugstack(const Node& node) {
  if (node.slurm.empty()) return no_slurm(node);
  std::string path = node.slurm_value("PlugStackConfig");
  if (path.empty()) path = node.slurm_folder() + "/plugstack.conf";
  std::string text;
  read_plugstack(node, path, 0, text);
  for (const std::string& line : lines_of(text)) {
    if (line.find("spank_sharedgpu.so") == line.npos) continue;
    std::istringstream words(line);
    std::string kind, plugin;
    words >> kind >> plugin;
    std::optional<std::string> file;
    if (plugin.starts_with('/')) {
      file = node.host.read(plugin);
    } else {
      const std::string folders = node.slurm_value("PluginDir");
      for (std::string_view folder : split(folders, ':'))
        if (!file) file = node.host.read(std::string(folder) + "/" + plugin);
    }
    if (!file)
      return wrong(path + " names " + plugin + ", which does not exist",
                   "mend the path, or install the plugin");
    const auto version = plugin_version(*file);
    const std::string release = node.slurm_value("SLURM_VERSION");
    if (version && *version >> 8 != version_number(release) >> 8)
      return wrong("spank_sharedgpu.so is for Slurm " + version_text(*version) + ", this is " + release,
                   "install the plugins for Slurm " + release);
    if (kind == "required")
      return wrong("spank_sharedgpu.so is required in " + path,
                   "write optional: a required plugin that cannot be loaded stops all jobs");
    return good(path);
  }
  return wrong(path + " does not name spank_sharedgpu.so",
               "add the line of share/sharedgpu/etc/plugstack.conf.d/sharedgpu.conf");
}

Finding check_cgroups(const Node& node) {
  const auto control = node.host.read("/sys/fs/cgroup/cgroup.controllers");
  const bool has_memory = control ? (" " + *control).find(" memory") != std::string::npos
                                  : node.host.exists("/sys/fs/cgroup/memory");
  Troubles troubles;
  if (!has_memory)
    troubles.add("the kernel has no memory controller",
                 "boot without cgroup_disable=memory (on Debian with cgroup_enable=memory)");
  const std::string seen = control ? "version 2" : "version 1";
  if (node.slurm.empty()) return troubles.or_else(seen);
  const std::string path = node.slurm_folder() + "/cgroup.conf";
  const std::string text = node.host.read(path).value_or("");
  if (value_in(text, "ConstrainDevices") != "yes")
    troubles.add("ConstrainDevices is not yes in " + path,
                 "set ConstrainDevices=yes: jobs without units can open the GPUs otherwise");
  if (value_in(text, "ConstrainRAMSpace") != "yes")
    troubles.add("ConstrainRAMSpace is not yes in " + path,
                 "set ConstrainRAMSpace=yes: a job's evicted memory is not limited otherwise");
  return troubles.or_else(seen + ", ConstrainDevices, ConstrainRAMSpace");
}

// ---- jobs on several nodes ----

Finding check_munge(const Node& node) {
  if (node.settings.peer_port == 0 && node.slurm.empty()) return unused("PeerPort=0");
  const std::string socket =
      node.settings.munge_socket.empty() ? "/run/munge/munge.socket.2" : node.settings.munge_socket;
  const auto facts = node.host.facts(socket);
  if (!facts || !S_ISSOCK(facts->st_mode))
    return wrong("no munged at " + socket, "start munged, or set MungeSocket= in sharedgpu.conf");
  const Host::Output made = node.host.run({"munge", "-n", "--socket", socket});
  if (made.ran && made.status != 0)
    return wrong("munged at " + socket + " does not answer", "restart munged, and read its log");
  return good(socket);
}

Finding check_peers(const Node& node) {
  if (node.settings.peer_port == 0) return unused("PeerPort=0: jobs on several nodes are not coordinated");
  if (!node.status) return unseen("there is no arbiter that would listen", "mend the arbiter first");
  char port[8];
  std::snprintf(port, sizeof port, ":%04X", node.settings.peer_port);
  for (const char* table : {"/proc/net/udp", "/proc/net/udp6"}) {
    std::istringstream lines(node.host.read(table).value_or(""));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string slot, local;
      words >> slot >> local;
      if (local.ends_with(port)) {
        const std::string seen = "UDP port " + std::to_string(node.settings.peer_port) + " is open here";
        const std::string bound = local.substr(0, local.rfind(':'));
        if (bound == "0100007F")
          return wrong("UDP port " + std::to_string(node.settings.peer_port) + " is bound to 127.0.0.1",
                       "set PeerAddress= to the node's address in the cluster");
        return good(seen + "; a firewall between nodes is not examined");
      }
    }
  }
  return wrong("nothing listens on UDP port " + std::to_string(node.settings.peer_port),
               "with Tenants=jobs, the arbiter opens this port; if it has not, its log names the error");
}

// ---- the host ----

Finding check_huge_pages(const Node& node) {
  const auto text = node.host.read("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!text) return unused("the kernel has no transparent huge pages");
  const std::size_t begin = text->find('[');
  const std::string mode = begin == text->npos ? "" : text->substr(begin + 1, text->find(']') - begin - 1);
  if (mode != "never") return good("transparent huge pages: " + mode);
  return wrong("transparent huge pages are off",
               "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: evicted memory is pinned faster");
}

Finding check_locked_memory(const Node& node) {
  const Host::Output pids = node.host.run({"pidof", "slurmd"});
  if (!pids.ran || pids.status != 0) return unused("no slurmd runs here");
  const std::string pid = pids.text.substr(0, pids.text.find_first_of(" \n"));
  const auto limits = node.host.read("/proc/" + pid + "/limits");
  if (!limits) return unseen("the limits of slurmd (pid " + pid + ")", "run this as root");
  std::istringstream lines(*limits);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("Max locked memory")) continue;
    std::istringstream words(line.substr(std::min<std::size_t>(26, line.size())));
    std::string soft;
    words >> soft;
    if (soft == "unlimited") return good("slurmd's jobs may lock memory without limit");
    return wrong(
        "slurmd's jobs may lock " + format_size(Bytes{parse_number<std::uint64_t>(soft).value_or(0)}) +
            " only",
        "LimitMEMLOCK=infinity in slurmd.service: jobs that register memory with a network card need it");
  }
  return unseen("the limits of slurmd (pid " + pid + ")", "run this as root");
}

Finding check_memory(const Node& node) {
  if (node.slurm.empty()) return no_slurm(node);
  const auto real = parse_number<std::uint64_t>(node.node_value("RealMemory"));
  if (!real) return unseen("RealMemory of this node", "add NodeName= of this host to slurm.conf");
  const Bytes has = mebibytes(*real);
  const std::uint64_t units = units_in(node.node_value("Gres"));
  Bytes needs;
  if (!node.settings.swap_per_unit.entries.empty()) {
    const UnitMemory unit_memory(node.settings.swap_per_unit, node.settings.gpu_memory,
                                 node.settings.units_per_gpu);
    needs = Bytes{unit_memory.of({}).value_or(Bytes{}).count * units};
  }
  if (needs == Bytes{} && node.status)
    for (const Json& gpu : node.status->value("gpus", Json::array()))
      needs += Bytes{gpu.value("capacity_bytes", std::uint64_t{0})};
  if (needs == Bytes{}) return unseen("the memory of the GPUs", "mend the arbiter first");
  const std::string seen =
      "RealMemory is " + format_size(has) + ", the units may bring " + format_size(needs) + " of swap";
  if (has > needs) return good(seen);
  return wrong(seen, "set SwapPerUnit= in sharedgpu.conf to less, or give the node fewer units");
}

Finding check_clock(const Node& node) {
  const auto synchronised = node.host.clock_is_synchronised();
  if (!synchronised)
    return unseen("the Linux kernel does not report the state of the clock", "run this outside a container");
  if (*synchronised) return good("synchronised");
  return wrong("the clock is not synchronised",
               "start chronyd or systemd-timesyncd: munge rejects messages whose time is five minutes off");
}

}  // namespace

const std::vector<Check>& checks() {
  static const std::vector<Check> kChecks{
      {"config", "sharedgpu.conf: its lines, owner and mode", check_config},
      {"arbiter", "the arbiter answers, and has this command's version", check_arbiter},
      {"permissions", "owners and modes of socket, StateDir and log folder", check_permissions},
      {"users", "SlurmUser, AdminUsers and StatusUsers exist; SlurmUser is that of slurm.conf", check_users,
       true},
      {"ledger", "space for the ledger", check_ledger},
      {"driver", "kernel module, libcuda and NVML, of one version", check_driver},
      {"gpus", "the driver's GPUs, all known to the arbiter, and healthy", check_gpus},
      {"ecc", "ECC on, no uncorrected errors, no reset due", check_ecc},
      {"slurm", "Slurm's release", check_slurm, true},
      {"plugins", "sharedgpu's plugins in PluginDir, built for this release", check_plugins, true},
      {"slurm.conf", "GresTypes, ProctrackType, AccountingStorageTRES", check_slurm_conf, true},
      {"units", "the node's units against its GPUs", check_units, true},
      {"gres.conf", "lines of sharedgpu that Slurm or the plugin would refuse", check_gres_conf, true},
      {"plugstack", "spank_sharedgpu.so in plugstack.conf, optional, built for this release", check_plugstack,
       true},
      {"cgroups", "memory controller; ConstrainDevices and ConstrainRAMSpace", check_cgroups, true},
      {"munge", "munged answers", check_munge, true},
      {"peers", "the arbiter's port for jobs on several nodes", check_peers},
      {"huge-pages", "transparent huge pages, for fast eviction", check_huge_pages},
      {"locked-memory", "slurmd's limit of locked memory", check_locked_memory},
      {"memory", "RealMemory against the swap that units bring", check_memory, true},
      {"clock", "the clock is synchronised", check_clock},
  };
  return kChecks;
}

std::vector<Result> run_checks(const Node& node, const std::vector<std::string>& names) {
  std::vector<Result> results;
  for (const Check& check : checks())
    if (names.empty() || std::find(names.begin(), names.end(), check.name) != names.end())
      results.push_back({.check = &check, .finding = check.judge(node)});
  return results;
}

}  // namespace sharedgpu::doctor
