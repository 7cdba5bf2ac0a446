// SPDX-License-Identifier: Apache-2.0
// Each check of `sharedgpu doctor` on a healthy node, and on nodes with one fault each.
#include "arbiter/cli/doctor.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "tests/unit/temporary_folder.h"

namespace sharedgpu::doctor {
namespace {

using test::TemporaryFolder;

constexpr std::uint32_t kRelease = 22 << 16 | 5 << 8 | 8;

// An ELF file with one dynamic symbol, plugin_version.
std::string plugin(std::uint32_t version) {
  const std::string names(std::string("\0plugin_version\0", 16));
  std::string file(sizeof(Elf64_Ehdr), '\0');
  const std::size_t name_at = file.size();
  file += names;
  const std::size_t symbols_at = file.size();
  Elf64_Sym symbols[2] = {};
  symbols[1].st_name = 1;
  symbols[1].st_shndx = 3;
  symbols[1].st_value = 0x1000;
  file.append(reinterpret_cast<const char*>(symbols), sizeof symbols);
  const std::size_t data_at = file.size();
  file.append(reinterpret_cast<const char*>(&version), sizeof version);
  Elf64_Ehdr head = {};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_shoff = file.size();
  head.e_shnum = 4;
  Elf64_Shdr sections[4] = {};
  sections[1].sh_type = SHT_DYNSYM;
  sections[1].sh_offset = symbols_at;
  sections[1].sh_size = sizeof symbols;
  sections[1].sh_link = 2;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = name_at;
  sections[2].sh_size = names.size();
  sections[3].sh_type = SHT_PROGBITS;
  sections[3].sh_addr = 0x1000;
  sections[3].sh_offset = data_at;
  sections[3].sh_size = sizeof version;
  file.append(reinterpret_cast<const char*>(sections), sizeof sections);
  std::memcpy(file.data(), &head, sizeof head);
  return file;
}

// A healthy node with one GPU, Slurm and an arbiter. Tests damage the node.
class Patient : public Host {
 public:
  explicit Patient(const TemporaryFolder& folder) : Host(folder.path) {
    write("/etc/sharedgpu/sharedgpu.conf", "SwapPerUnit=1GiB\n");
    write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n");
    write("/proc/driver/nvidia/gpus/0000:01:00.0/information",
          "Model: \t\t NVIDIA H200\nDevice Minor: \t 0\n");
    for (const char* name :
         {"libcuda.so.1", "libcuda.so.550.54.15", "libnvidia-ml.so.1", "libnvidia-ml.so.550.54.15"})
      write(std::string("/usr/lib/x86_64-linux-gnu/") + name, "");
    write("/etc/slurm/gres.conf", "# Flags=CountOnly Name=sharedgpu\nName=gpu File=/dev/nvidia1\n");
    write("/etc/slurm/plugstack.conf", "include /etc/slurm/plugstack.conf.d/*.conf\n");
    write("/etc/slurm/plugstack.conf.d/sharedgpu.conf", "optional /opt/spank_sharedgpu.so\n");
    write("/etc/slurm/cgroup.conf", "ConstrainDevices = yes\nConstrainRAMSpace=yes\n");
    write("/opt/spank_sharedgpu.so", plugin(kRelease));
    write("/plugins/gres_sharedgpu.so", plugin(kRelease));
    write("/plugins/acct_gather_interconnect_sharedgpu.so", plugin(kRelease));
    write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    write("/proc/net/udp", "  sl  local_address\n  1: 00000000:0249 00000000:0000 07\n");
    write("/proc/77/limits",
          "Limit                     Soft Limit           Hard Limit\n"
          "Max locked memory         unlimited            unlimited\n");
    facts_of["/run/sharedgpu/sharedgpud.sock"] = {S_IFSOCK | 0666, 0};
    facts_of["/run/munge/munge.socket.2"] = {S_IFSOCK | 0777, 0};
  }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    std::ofstream(root() + path) << text;
  }
  void remove(const std::string& path) { std::filesystem::remove_all(root() + path); }

  struct Facts {
    mode_t mode;
    uid_t uid;
  };
  std::map<std::string, Facts> facts_of;
  std::map<std::string, std::string> slurm{
      {"SLURM_VERSION", "22.05.8"},
      {"SLURM_CONF", "/etc/slurm/slurm.conf"},
      {"PlugStackConfig", "(null)"},
      {"PluginDir", "/plugins"},
      {"GresTypes", "gpu,sharedgpu"},
      {"ProctrackType", "proctrack/cgroup"},
      {"AccountingStorageType", "accounting_storage/slurmdbd"},
      {"AccountingStorageTRES", "cpu,gres/sharedgpu,gres/sharedgpu_lease"},
      {"AcctGatherInterconnectType", "acct_gather_interconnect/sharedgpu"},
      {"SlurmUser", "slurm(64030)"}};
  bool has_slurm = true;
  std::string node = "NodeName=n1 State=IDLE Gres=gpu:1,sharedgpu:h200:8(S:0) RealMemory=64000\n";
  std::string smi = "0, Enabled, 0, No\n";
  nlohmann::json arbiter{{"version", SHAREDGPU_VERSION},
                         {"gpus", {{{"number", 0}, {"condition", "healthy"}, {"verified", true}}}}};
  std::string no_arbiter;
  int munge = 0;
  std::optional<bool> clock = true;
  std::uint64_t space = std::uint64_t{1} << 40;

  std::optional<struct stat> facts(const std::string& path) const override {
    struct stat result = {};
    if (const auto known = facts_of.find(path); known != facts_of.end()) {
      result.st_mode = known->second.mode;
      result.st_uid = known->second.uid;
      return result;
    }
    const auto real = Host::facts(path);
    if (!real) return std::nullopt;
    result.st_mode = S_ISDIR(real->st_mode) ? S_IFDIR | 0755 : S_IFREG | 0644;
    return result;
  }
  std::optional<std::uint64_t> free_space(const std::string& /*path*/) const override { return space; }
  Output run(const std::vector<std::string>& words) const override {
    if (words[0] == "scontrol" && !has_slurm) return {};
    if (words[0] == "scontrol" && words[1] == "show") {
      Output output{.ran = true, .status = 0, .text = "Configuration data\n"};
      for (const auto& [key, value] : slurm) output.text += key + "   = " + value + "\n";
      return output;
    }
    if (words[0] == "scontrol") return {.ran = true, .status = node.empty() ? 1 : 0, .text = node};
    if (words[0] == "nvidia-smi") return {.ran = true, .status = 0, .text = smi};
    if (words[0] == "munge") return {.ran = true, .status = munge, .text = {}};
    if (words[0] == "pidof") return {.ran = true, .status = 0, .text = "77\n"};
    return {};
  }
  std::string status(const Settings& /*settings*/, std::string& error) const override {
    error = no_arbiter;
    return no_arbiter.empty() ? arbiter.dump() : "";
  }
  std::optional<uid_t> user(const std::string& name) const override {
    return name == "slurm" ? std::optional<uid_t>(64030) : std::nullopt;
  }
  uid_t uid() const override { return 0; }
  std::string host_name() const override { return "n1"; }
  std::optional<bool> clock_is_synchronised() const override { return clock; }
};

Finding finding(const Patient& patient, const std::string& name) {
  const Node node = examine(patient, "");
  const std::vector<Result> results = run_checks(node, {name});
  REQUIRE(results.size() == 1);
  return results[0].finding;
}

TEST_CASE("Doctor: nothing is wrong with a healthy node") {
  const TemporaryFolder folder;
  const Patient patient(folder);
  const Node node = examine(patient, "");
  const std::vector<Result> results = run_checks(node, {});
  CHECK(results.size() == checks().size());
  for (const auto& [check, finding] : results) {
    INFO(check->name << ": " << finding.seen << " -> " << finding.advice);
    CHECK(finding.verdict == Verdict::good);
    CHECK(!finding.seen.empty());
    CHECK(finding.advice.empty());
  }
  CHECK(!is_any_wrong(results));
}

struct Fault {
  const char* check;
  std::function<void(Patient&)> spoil;
  const char* seen;  // a part of the finding's `seen`
  Verdict verdict = Verdict::wrong;
};

const std::vector<Fault> kFaults = {
    {"config", [](Patient& p) { p.write("/etc/sharedgpu/sharedgpu.conf", "Quantum=x\nNone=1\n"); },
     "sharedgpu.conf:2: unknown key 'None'"},
    {"config",
     [](Patient& p) {
       p.facts_of["/etc/sharedgpu/sharedgpu.conf"] = {S_IFREG | 0666, 0};
     },
     "all users may write to /etc/sharedgpu/sharedgpu.conf"},
    {"config",
     [](Patient& p) {
       p.facts_of["/etc/sharedgpu/sharedgpu.conf"] = {S_IFREG | 0644, 1000};
     },
     "belongs to uid 1000"},
    {"arbiter", [](Patient& p) { p.no_arbiter = "no arbiter at /s: No such file"; }, "no arbiter at /s"},
    {"arbiter", [](Patient& p) { p.arbiter["version"] = "0.0.9"; }, "the arbiter has version 0.0.9"},
    {"permissions",
     [](Patient& p) {
       p.facts_of["/run/sharedgpu"] = {S_IFDIR | 0777, 0};
     },
     "Socket: all users may write to /run/sharedgpu"},
    {"permissions",
     [](Patient& p) {
       p.facts_of["/var/lib/sharedgpu"] = {S_IFDIR | 0700, 1001};
     },
     "StateDir: /var/lib/sharedgpu belongs to uid 1001"},
    {"permissions",
     [](Patient& p) {
       p.facts_of["/var/lib/sharedgpu"] = {S_IFDIR | S_ISVTX | 0777, 0};
     },
     "StateDir: all users may write to /var/lib/sharedgpu"},
    {"permissions",
     [](Patient& p) {
       p.facts_of["/run/sharedgpu/sharedgpud.sock"] = {S_IFSOCK | 0600, 0};
     },
     "jobs cannot connect"},
    {"permissions",
     [](Patient& p) {
       p.facts_of["/run/sharedgpu/sharedgpud.sock"] = {S_IFREG | 0666, 0};
     },
     "is not a socket"},
    {"users", [](Patient& p) { p.write("/etc/sharedgpu/sharedgpu.conf", "AdminUsers=bob\n"); },
     "AdminUsers: no user 'bob'"},
    {"users", [](Patient& p) { p.slurm["SlurmUser"] = "hpc(500)"; }, "and hpc(500) in slurm.conf"},
    {"ledger", [](Patient& p) { p.space = 1 << 20; }, "1 MiB free"},
    {"driver", [](Patient& p) { p.remove("/proc/driver"); }, "kernel module is not loaded"},
    {"driver", [](Patient& p) { p.remove("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"); },
     "no libnvidia-ml.so.1"},
    {"driver",
     [](Patient& p) {
       p.remove("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15");
       p.write("/usr/lib/x86_64-linux-gnu/libcuda.so.535.1", "");
     },
     "libcuda.so has version 535.1, the kernel module 550.54.15"},
    {"gpus", [](Patient& p) { p.remove("/proc/driver/nvidia/gpus"); }, "no GPU"},
    {"gpus", [](Patient& p) { p.arbiter["gpus"][0]["condition"] = "lost"; }, "GPU 0 is lost"},
    {"gpus", [](Patient& p) { p.arbiter["gpus"] = nlohmann::json::array(); }, "has found 0 of 1 GPU"},
    {"ecc", [](Patient& p) { p.smi = "0, Enabled, 3, No\n"; }, "GPU 0 has 3 uncorrected"},
    {"ecc", [](Patient& p) { p.smi = "0, Disabled, [N/A], [N/A]\n"; }, "ECC is off on GPU 0"},
    {"ecc", [](Patient& p) { p.smi = "0, Enabled, 0, Yes\n"; }, "waits for a reset"},
    {"slurm", [](Patient& p) { p.slurm["SLURM_VERSION"] = "21.08.1"; }, "Slurm 21.08.1 is not"},
    {"slurm", [](Patient& p) { p.has_slurm = false; }, "no Slurm on this host", Verdict::unused},
    {"plugins", [](Patient& p) { p.remove("/plugins/gres_sharedgpu.so"); },
     "no gres_sharedgpu.so in /plugins"},
    {"plugins", [](Patient& p) { p.write("/plugins/gres_sharedgpu.so", plugin(kRelease + 1)); },
     "gres_sharedgpu.so is for Slurm 22.05.9, this is 22.05.8"},
    {"plugins", [](Patient& p) { p.write("/plugins/gres_sharedgpu.so", "not ELF"); },
     "is no plugin of Slurm"},
    {"plugins", [](Patient& p) { p.slurm["PluginDir"] = "/plugins:/none"; }, "names /none, which does not"},
    {"slurm.conf", [](Patient& p) { p.slurm["GresTypes"] = "gpu"; }, "GresTypes lacks sharedgpu"},
    {"slurm.conf", [](Patient& p) { p.slurm["ProctrackType"] = "proctrack/linuxproc"; },
     "proctrack/linuxproc"},
    {"slurm.conf",
     [](Patient& p) {
       p.slurm["AccountingStorageTRES"] = "cpu";
       p.slurm["AcctGatherInterconnectType"] = "(null)";
     },
     "AccountingStorageTRES lacks gres/sharedgpu"},
    {"slurm.conf", [](Patient& p) { p.slurm["AccountingStorageTRES"] = "gres/sharedgpu"; },
     "lacks gres/sharedgpu_lease"},
    {"units", [](Patient& p) { p.node = "NodeName=n1 State=IDLE Gres=gpu:1 RealMemory=64000\n"; },
     "no units"},
    {"units", [](Patient& p) { p.node = "NodeName=n1 State=IDLE Gres=sharedgpu:9 RealMemory=64000\n"; },
     "9 units for 1 GPU with UnitsPerGpu=8"},
    {"units", [](Patient& p) { p.node = "NodeName=n1 State=IDLE+INVALID_REG Gres=sharedgpu:8\n"; },
     "invalid"},
    {"units", [](Patient& p) { p.node = ""; }, "slurm.conf has no node n1"},
    {"gres.conf", [](Patient& p) { p.write("/etc/slurm/gres.conf", "Name=sharedgpu Flags=CountOnly\n"); },
     "CountOnly"},
    {"gres.conf",
     [](Patient& p) { p.write("/etc/slurm/gres.conf", "Name=sharedgpu File=/dev/nvidia0 Count=8\n"); },
     "Count= beside File="},
    {"plugstack", [](Patient& p) { p.write("/etc/slurm/plugstack.conf.d/sharedgpu.conf", ""); },
     "does not name"},
    {"plugstack",
     [](Patient& p) { p.write("/etc/slurm/plugstack.conf", "include /etc/slurm/plugstack.conf.d/site-*\n"); },
     "does not name"},
    {"plugstack", [](Patient& p) { p.remove("/opt/spank_sharedgpu.so"); }, "which does not exist"},
    {"plugstack", [](Patient& p) { p.write("/opt/spank_sharedgpu.so", plugin(23 << 16 | 2 << 8)); },
     "is for Slurm 23.02.0"},
    {"plugstack",
     [](Patient& p) {
       p.write("/etc/slurm/plugstack.conf.d/sharedgpu.conf", "required /opt/spank_sharedgpu.so\n");
     },
     "is required"},
    {"cgroups",
     [](Patient& p) { p.write("/etc/slurm/cgroup.conf", "#ConstrainDevices=yes\nConstrainRAMSpace=yes"); },
     "ConstrainDevices is not yes"},
    {"cgroups", [](Patient& p) { p.write("/sys/fs/cgroup/cgroup.controllers", "cpu pids\n"); },
     "no memory controller"},
    {"munge", [](Patient& p) { p.facts_of.erase("/run/munge/munge.socket.2"); }, "no munged at"},
    {"munge", [](Patient& p) { p.munge = 1; }, "does not answer"},
    {"peers", [](Patient& p) { p.write("/proc/net/udp", ""); }, "nothing listens on UDP port 585"},
    {"peers", [](Patient& p) { p.write("/proc/net/udp", " 1: 0100007F:0249 0:0 07\n"); },
     "bound to 127.0.0.1"},
    {"peers", [](Patient& p) { p.write("/etc/sharedgpu/sharedgpu.conf", "PeerPort=0\n"); }, "PeerPort=0",
     Verdict::unused},
    {"huge-pages",
     [](Patient& p) { p.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"); },
     "are off"},
    {"locked-memory",
     [](Patient& p) {
       p.write("/proc/77/limits", "Max locked memory         8388608              8388608   bytes\n");
     },
     "8 MiB only"},
    {"locked-memory", [](Patient& p) { p.remove("/proc/77"); }, "limits of slurmd", Verdict::unseen},
    {"memory", [](Patient& p) { p.write("/etc/sharedgpu/sharedgpu.conf", "SwapPerUnit=9GiB\n"); },
     "the units may bring 72 GiB"},
    {"clock", [](Patient& p) { p.clock = false; }, "not synchronised"},
    {"clock", [](Patient& p) { p.clock.reset(); }, "does not report", Verdict::unseen},
};

TEST_CASE("Doctor: each fault is found, and its check says how to mend it") {
  std::map<std::string, int> found;
  for (const Fault& fault : kFaults) {
    const TemporaryFolder folder;
    Patient patient(folder);
    fault.spoil(patient);
    const Finding what = finding(patient, fault.check);
    INFO(fault.check << ": " << what.seen << " -> " << what.advice);
    CHECK(what.verdict == fault.verdict);
    CHECK(what.seen.find(fault.seen) != std::string::npos);
    CHECK(what.advice.empty() == (fault.verdict == Verdict::unused));
    found[fault.check] += fault.verdict == Verdict::wrong ? 1 : 0;
  }
  for (const Check& check : checks()) {
    INFO(check.name);
    CHECK(found[check.name] > 0);
  }
}

TEST_CASE("Doctor: a GPU that an administrator has drained is named, and is not wrong") {
  const TemporaryFolder folder;
  Patient patient(folder);
  patient.arbiter["gpus"][0]["drained"] = true;
  const Finding what = finding(patient, "gpus");
  CHECK(what.verdict == Verdict::good);
  CHECK(what.seen == "1 GPU, GPU 0 is drained");
}

TEST_CASE("Doctor: plugstack.conf includes the files that its pattern matches") {
  for (const char* pattern : {"*", "shared*.conf", "shared???.conf", "[r-t]haredgpu.conf", "sharedgpu.conf"})
    for (const char* folder_name : {"/etc/slurm/plugstack.conf.d/", "plugstack.conf.d/"}) {
      CAPTURE(folder_name, pattern);
      const TemporaryFolder folder;
      Patient patient(folder);
      patient.write("/etc/slurm/plugstack.conf", std::string("include ") + folder_name + pattern);
      CHECK(finding(patient, "plugstack").verdict == Verdict::good);
    }
}

TEST_CASE("Doctor: AccountingStorageTRES matters only where Slurm has a database") {
  const TemporaryFolder folder;
  Patient patient(folder);
  patient.slurm["AccountingStorageTRES"] = "cpu,mem";
  patient.slurm["AcctGatherInterconnectType"] = "(null)";
  patient.slurm["AccountingStorageType"] = "(null)";
  CHECK(finding(patient, "slurm.conf").verdict == Verdict::good);
}

TEST_CASE("Doctor: text and JSON of the results") {
  const Check check{.name = "one", .examines = "a thing", .judge = nullptr};
  const std::vector<Result> results{
      {&check, {.verdict = Verdict::wrong, .seen = "bad", .advice = "mend it"}}};
  CHECK(text_of(results) == "wrong   one            bad\n                       -> mend it\n");
  const auto json = nlohmann::json::parse(json_of(results));
  CHECK(json["all_well"] == false);
  CHECK(json["checks"][0] == nlohmann::json{{"check", "one"},
                                            {"examines", "a thing"},
                                            {"verdict", "wrong"},
                                            {"seen", "bad"},
                                            {"advice", "mend it"}});
}

TEST_CASE("Doctor: no bytes make the reader of plugins fail") {
  const std::string whole = plugin(kRelease);
  CHECK(plugin_version(whole) == kRelease);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK(!plugin_version(std::string_view(whole).substr(0, size)));
    for (const char byte : {'\0', '\xff'}) {
      std::string changed = whole;
      changed[size] = byte;
      static_cast<void>(plugin_version(changed));
    }
  }
}

}  // namespace
}  // namespace sharedgpu::doctor
