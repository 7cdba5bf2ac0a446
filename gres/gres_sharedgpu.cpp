// SPDX-License-Identifier: GPL-2.0-or-later
// The GRES plugin: writes the number of sharedgpu units that a batch, interactive or srun step has on its
// node into the step's environment. It also gives Slurm the device files that steps with units may open.
//
// Loaded by slurmctld, slurmd and slurmstepd. These daemons hold a lock while they call the plugin, so none
// of its functions blocks, except the search for GPUs in slurmd. The plugin logs its errors, and does not
// return them to Slurm. Slurm itself counts the units. The plugin has all functions that any release from
// 22.05 to 26.05 needs; a missing function would be fatal to the daemon.
//
// Devices. A GRES plugin tells Slurm which device files belong to a unit. With ConstrainDevices=yes, only
// jobs that hold the unit may open these files. If a GRES has files, Slurm numbers its units and gives each
// job a bitmap of them. Otherwise Slurm does not know which units a job has. The units of sharedgpu have no
// files of their own. So the plugin marks the units' records as having files, and slurmd reports these marks
// to slurmctld. The plugin lists each unit with all GPUs on which the unit may be used. A job without units
// may open none of these GPUs.
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/node_gpus.h"
#include "gres/shares.h"
#include "protocol/environment.h"
#include "slurm_shared/abi/gres.h"
#include "slurm_shared/offer.h"

#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const std::uint32_t plugin_version;
const char plugin_name[] = "GRES sharedgpu plugin";
const char plugin_type[] = "gres/sharedgpu";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;
}

namespace {

using namespace sharedgpu::gres;

std::vector<Share> offers;          // shares by type; set in slurmd once node_config_load has run
NodeUnits node_units;               // set in slurmd, which sends them to slurmstepd
std::deque<gres_device_t> entries;  // set in slurmstepd: the items of `device_list`
list_t* device_list = nullptr;

// Appends the files of a list such as "/dev/nvidia[0-1]" in gres.conf.
void add_files(const char* text, std::vector<std::string>& files) {
  hostlist* list = text == nullptr ? nullptr : slurm_hostlist_create(text);
  if (list == nullptr) return;
  while (char* file = slurm_hostlist_shift(list)) {
    files.emplace_back(file);
    std::free(file);
  }
  slurm_hostlist_destroy(list);
}

struct Reading {
  std::vector<Record> records;
  std::vector<gres_slurmd_conf_t*> originals;
  std::vector<const gres_slurmd_conf_t*> others;
};

int read_record(void* item, void* argument) {
  auto& record = *static_cast<gres_slurmd_conf_t*>(item);
  auto& reading = *static_cast<Reading*>(argument);
  if (!is_record_of(record, "sharedgpu")) {
    reading.others.push_back(&record);
    return 0;
  }
  Record ours;
  if (record.type_name != nullptr) ours.type = record.type_name;
  ours.units = record.count;
  add_files(record.file, ours.files);
  reading.records.push_back(ours);
  reading.originals.push_back(&record);
  return 0;
}

// The files of other GRES. Slurm has a record for each GRES that it knows, so also for sharedgpu. If no
// record for sharedgpu was found, Slurm's records do not have the declared layout, and this function returns
// no files.
std::vector<std::string> files_taken(const Reading& reading) {
  std::vector<std::string> files;
  if (reading.records.empty()) return files;
  for (const gres_slurmd_conf_t* other : reading.others) add_files(other->file, files);
  return files;
}

// A driver without persistence mode may take long to start. When slurmd starts, the plugin waits for the
// driver for kPatience at most, as slurmd itself waits for the libraries of AutoDetect. When slurmd is
// reconfigured, the plugin already knows the GPUs, and waits only for kPatienceLater.
constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::seconds kPatienceLater{3};
std::vector<Gpu> known;

std::vector<Gpu> find_gpus() {
  const auto patience = known.empty() ? kPatience : kPatienceLater;
  const sharedgpu::NodeGpus found = sharedgpu::find_node_gpus(patience);
  if (found.timed_out)
    slurm_error("gres/sharedgpu: NVIDIA's driver did not list its GPUs within %d s: %s",
                static_cast<int>(patience.count()),
                known.empty() ? "using the GPUs in /dev, whose models are not known; restart slurmd when "
                                "/proc/driver/nvidia/gpus can be read"
                              : "using the GPUs found before");
  if (found.timed_out && !known.empty()) return known;
  std::vector<Gpu> gpus;
  for (const sharedgpu::NodeGpu& gpu : found.list)
    gpus.push_back({sharedgpu::device_file(gpu), sharedgpu::gres_type(gpu.model)});
  if (!found.timed_out) known = gpus;
  return gpus;
}

constexpr int kCharacterDevice = 2;  // DEV_TYPE_CHAR
// The major device number of NVIDIA's GPUs. The plugin assumes this number for device files that do not exist
// yet.
constexpr unsigned kNvidiaMajor = 195;

bool find_numbers(Device& device) {
  struct stat status = {};
  if (stat(device.file.c_str(), &status) == 0 && S_ISCHR(status.st_mode)) {
    device.major = major(status.st_rdev);
    device.minor = minor(status.st_rdev);
    return true;
  }
  device.major = kNvidiaMajor;
  return std::sscanf(device.file.c_str(), "/dev/nvidia%u", &device.minor) == 1;
}

void list_units(const std::vector<Share>& shares) {
  node_units = {};
  for (const Share& share : shares) {
    if (!share.type.empty()) node_units.typed.push_back({share.first_unit, share.units, share.type});
    for (const std::string& file : share.files) {
      Device device = {share.first_unit, share.units, 0, 0, file};
      if (find_numbers(device))
        node_units.devices.push_back(device);
      else
        slurm_error("gres/sharedgpu: %s is no device file", file.c_str());
    }
  }
}

void log_offer(const Share& share) {
  std::string files;
  for (const std::string& file : share.files) files += " " + file;
  slurm_info("gres/sharedgpu: this node offers %" PRIu64 " units%s%s on%s", share.units,
             share.type.empty() ? "" : " of type ", share.type.c_str(),
             files.empty() ? " GPUs that it does not see" : files.c_str());
}

// Marks the records as having files, so that Slurm numbers their units.
void number_units(const Reading& reading) {
  for (gres_slurmd_conf_t* record : reading.originals) record->config_flags |= GRES_CONF_HAS_FILE;
}

// Reports that the node has no units. Slurm then marks the node invalid, since slurm.conf states more units:
// the node takes no new jobs, and running jobs continue. Logs the reason.
void refuse(const Reading& reading, const std::string& why) {
  slurm_error("gres/sharedgpu: this node offers no units: %s", why.c_str());
  for (gres_slurmd_conf_t* record : reading.originals) record->count = 0;
}

// The devices that gres/gpu lists in the same slurmstepd. Null if gres/gpu is not loaded or has no devices.
list_t* devices_of_gpu_plugin() {
  std::string file;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* found) {
        if (!std::string_view(object->dlpi_name).ends_with("/gres_gpu.so")) return 0;
        *static_cast<std::string*>(found) = object->dlpi_name;
        return 1;
      },
      &file);
  void* plugin = file.empty() ? nullptr : dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (plugin == nullptr) return nullptr;
  auto list = reinterpret_cast<list_t* (*)()>(dlsym(plugin, "gres_p_get_devices"));
  dlclose(plugin);  // Slurm keeps the plugin loaded
  return list == nullptr ? nullptr : list();
}

struct WholeGpu {
  int index = 0;
  std::optional<int> minor;
};

int look_for_gpu(void* item, void* argument) {
  const auto& device = *static_cast<const gres_device_t*>(item);
  auto& wanted = *static_cast<WholeGpu*>(argument);
  if (device.index != wanted.index) return 0;
  const bool is_part = device.unique_id != nullptr && std::strncmp(device.unique_id, "MIG", 3) == 0;
  const bool is_whole = device.dev_desc.major == kNvidiaMajor && !is_part;
  wanted.minor = is_whole ? static_cast<int>(device.dev_desc.minor) : -1;
  return 0;
}

bool is_ours(const buf_t& buffer) {
  if (buffer.magic != BUF_MAGIC || buffer.head == nullptr || buffer.processed > buffer.size) return false;
  return begins_with_units(std::string_view(buffer.head + buffer.processed, buffer.size - buffer.processed));
}

// The number of set bits among the `count` bits of `units` that begin at bit `first`.
std::uint64_t held(bitstr_t* units, std::uint64_t first, std::uint64_t count) {
  const std::int64_t end =
      std::min<std::int64_t>(slurm_bit_size(units), static_cast<std::int64_t>(first + count));
  std::uint64_t sum = 0;
  for (auto unit = static_cast<std::int64_t>(first); unit < end; ++unit)
    sum += slurm_bit_test(units, unit) != 0 ? 1 : 0;
  return sum;
}

// The numbers of the GPUs to which these units belong, such as "0,1"; empty if unknown.
std::string numbers_of(bitstr_t* units) {
  std::set<std::uint32_t> numbers;
  if (units == nullptr) return {};
  for (const Device& device : node_units.devices)
    if (device.major == kNvidiaMajor && held(units, device.first_unit, device.units) > 0)
      numbers.insert(device.minor);
  std::string text;
  for (std::uint32_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

// The types of these units, such as "a100:2,h100:1"; empty if the units have no types, or no type is known.
std::string types_of(bitstr_t* units) {
  std::string text;
  if (units == nullptr) return text;
  for (const TypedUnits& typed : node_units.typed)
    if (const std::uint64_t count = held(units, typed.first_unit, typed.units))
      text += (text.empty() ? "" : ",") + typed.type + ":" + std::to_string(count);
  return text;
}

void set_or_remove(char*** environment, const char* name, const std::string& value) {
  if (value.empty())
    slurm_unsetenvp(*environment, name);
  else
    slurm_env_array_overwrite(environment, name, value.c_str());
}

// Logs once that the job's units have no numbers. slurmctld numbers a node's units when the node first
// registers them. If the node's version of sharedgpu did not ask for numbers at that time, slurmctld numbers
// the units only when slurmctld is restarted. Only jobs that are submitted after the restart get numbered
// units.
void warn_of_missing_numbers() {
  static bool told = false;
  if (!told)
    slurm_error(
        "gres/sharedgpu: slurmctld has not numbered the units of this job; with ConstrainDevices=yes the job "
        "can open no GPU. Restart slurmctld if it has run since before sharedgpu was upgraded on this node");
  told = true;
}

// Sets or removes the variables that the SPANK plugin reads, so that a value exported by the user is never
// used.
void set_units(char*** environment, bitstr_t* units, std::uint64_t count) {
  if (count > 0 && units == nullptr && !node_units.devices.empty()) warn_of_missing_numbers();
  if (environment == nullptr || *environment == nullptr) return;
  set_or_remove(environment, sharedgpu::environment::kUnits,
                count == 0 ? std::string() : std::to_string(count));
  set_or_remove(environment, sharedgpu::environment::kDevices,
                count == 0 ? std::string() : numbers_of(units));
  set_or_remove(environment, sharedgpu::environment::kUnitTypes,
                count == 0 ? std::string() : types_of(units));
}

}  // namespace

extern "C" {

int init() {
  slurm_debug("gres/sharedgpu: loaded");
  return SLURM_SUCCESS;
}

int fini() {
  if (device_list != nullptr) slurm_list_destroy(device_list);
  device_list = nullptr;
  return SLURM_SUCCESS;
}

// Called with this node's records of gres.conf and slurm.conf, which Slurm has merged. Called in slurmd, and
// in slurmctld for cloud nodes. slurmctld must not look for the GPUs of these nodes.
int gres_p_node_config_load(list_t* records, node_config_load_t* config) {
  Reading reading;
  if (records != nullptr) slurm_list_for_each(records, read_record, &reading);
  const bool here = config != nullptr && config->in_slurmd;
  Shares result = share_gpus(reading.records, here ? find_gpus() : std::vector<Gpu>(), files_taken(reading));
  for (const std::string& warning : result.warnings) slurm_error("gres/sharedgpu: %s", warning.c_str());
  if (!result.refusal.empty()) {
    refuse(reading, result.refusal);
    result.list.clear();
  }
  list_units(result.list);
  number_units(reading);
  offers = sum_by_type(result.list);
  for (const Share& offer : offers) log_offer(offer);
  return SLURM_SUCCESS;
}

// The units of this node, for the SPANK plugin in the same slurmd.
bool sharedgpu_offer(std::size_t index, SharedGpuOffer* offer) {
  if (index >= offers.size()) return false;
  const Share& share = offers[index];
  *offer = {share.type.c_str(), share.units, share.files.size()};
  return true;
}

// The SPANK plugin in the same slurmstepd calls this function, see slurm_shared/offer.h.
bool sharedgpu_whole_gpu(int index, int* minor) {
  list_t* gpus = devices_of_gpu_plugin();
  WholeGpu wanted = {.index = index, .minor = {}};
  if (gpus != nullptr) slurm_list_for_each(gpus, look_for_gpu, &wanted);
  if (wanted.minor) *minor = *wanted.minor;
  return wanted.minor.has_value();
}

void gres_p_job_set_env(char*** environment, bitstr_t* units, std::uint64_t count, gres_internal_flags_t) {
  set_units(environment, units, count);
}

void gres_p_step_set_env(char*** environment, bitstr_t* units, std::uint64_t count, gres_internal_flags_t) {
  set_units(environment, units, count);
}

// A task has all units of its step: units are not bound to tasks.
void gres_p_task_set_env(char*** environment, bitstr_t* units, std::uint64_t count, bitstr_t*,
                         gres_internal_flags_t) {
  set_units(environment, units, count);
}

void gres_p_send_stepd(buf_t* buffer) {
  std::string text = write_units(node_units);
  slurm_packmem(text.data(), static_cast<std::uint32_t>(text.size()), buffer);
}

// Reads the list of units that slurmd has written in gres_p_send_stepd(). A slurmd that was started before
// sharedgpu was installed, or with another version of sharedgpu, writes no such list. The buffer then
// continues with the data of the next plugin.
void gres_p_recv_stepd(buf_t* buffer) {
  char* text = nullptr;
  std::uint32_t size = 0;
  if (!is_ours(*buffer) || slurm_unpackmem_xmalloc(&text, &size, buffer) != 0 || text == nullptr ||
      !read_units(std::string_view(text, size), node_units))
    slurm_error(
        "gres/sharedgpu: slurmd sent no list of units; was another sharedgpu installed since it started?");
  slurm_xfree(reinterpret_cast<void**>(&text));
}

// Called in slurmstepd. The list has an entry for each pair of a unit and a device file that jobs with this
// unit may open. Never returns null, since Slurm expects a list from plugins whose units have bitmaps.
list_t* gres_p_get_devices() {
  if (device_list != nullptr) return device_list;
  device_list = slurm_list_create(nullptr);
  for (Device& device : node_units.devices)
    for (std::uint64_t unit = device.first_unit; unit < device.first_unit + device.units; ++unit) {
      gres_device_t& entry = entries.emplace_back();
      entry.index = static_cast<int>(unit);
      entry.dev_desc = {device.major, device.minor, kCharacterDevice};
      entry.dev_num = static_cast<int>(device.minor);
      entry.path = device.file.data();
      slurm_list_append(device_list, &entry);
    }
  return device_list;
}

void gres_p_step_hardware_init(bitstr_t*, char*) {}
void gres_p_step_hardware_fini() {}

// Slurm up to 24.05 requires the following two functions.
int gres_p_get_job_info(gres_job_state_t*, std::uint32_t, int, void*) { return EINVAL; }
int gres_p_get_step_info(gres_step_state_t*, std::uint32_t, int, void*) { return EINVAL; }

// Adds nothing to the environment of prolog and epilog. Called by Slurm 22.05.
gres_epilog_info_t* gres_p_epilog_build_env(gres_job_state_t*) { return nullptr; }
void gres_p_epilog_set_env(char***, gres_epilog_info_t*, int) {}
// Slurm 23.02 and later calls the two functions below instead of the two above.
void* gres_p_prep_build_env(gres_job_state_t*) { return nullptr; }
void gres_p_prep_set_env(char***, void*, int) {}
}
#pragma GCC visibility pop
