// SPDX-License-Identifier: Apache-2.0
// The methods of System that read and change memory cgroups. They use libcgroup 2. The library finds the
// mount points, hides the differences of cgroup v1 and v2, and turns on the memory controller in the groups
// above a new group.
//
// libcgroup has one table of mount points for the whole process, and locks this table itself. It has an error
// number for each thread. Two functions of libcgroup 2.0.2 are not used. Under v1, cgroup_attach_task_pid()
// moves only one thread, so processes are moved by the file cgroup.procs. Under v2,
// cgroup_get_current_controller_path() fails, so the group of a process is read from /proc, see cgroups.h. No
// function of libcgroup returns the owner of a group's folder.
#include <libcgroup.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "arbiter/daemon/system.h"

namespace sharedgpu {
namespace {

constexpr char kMemory[] = "memory";
// libcgroup builds paths in buffers of FILENAME_MAX bytes and truncates longer paths.
constexpr std::size_t kLongestGroup = 3000;

// Keeps libcgroup from printing its errors: the functions here return each error as a Status, which the
// daemon logs.
void say_nothing(void*, int, const char*, va_list) {}

int errno_of(int code) {
  switch (code) {
    case 0:
      return 0;
    case ECGOTHER:
      return cgroup_get_last_errno() != 0 ? cgroup_get_last_errno() : EIO;
    case ECGROUPNOTEXIST:
    case ECGROUPVALUENOTEXIST:
      return ENOENT;
    case ECGNONEMPTY:
      return EBUSY;
    case ECGROUPNOTOWNER:
    case ECGROUPNOTALLOWED:
      return EACCES;
    case ECGROUPNOTMOUNTED:
    case ECGROUPSUBSYSNOTMOUNTED:
    case ECGROUPNOTINITIALIZED:
      return ENODEV;
    default:
      return EIO;
  }
}

Status status_of(int code, const std::string& group) {
  return code == 0 ? Status() : Status::of_errno(errno_of(code), "control group " + group);
}

// Lets libcgroup read the mount points, once. After a failure, the next call tries again.
Status initialize(const std::string& group) {
  static std::mutex mutex;
  static bool done = false;
  if (group.size() > kLongestGroup) return Status::of_errno(ENAMETOOLONG, "control group");
  const std::lock_guard lock(mutex);
  if (done) return {};
  cgroup_set_logger(say_nothing, 0, nullptr);
  const int code = cgroup_init();
  done = code == 0;
  return status_of(code, group);
}

// Returns "/" for the root group, since libcgroup does not accept an empty name.
const char* name_of(const std::string& group) { return group.empty() ? "/" : group.c_str(); }

struct Free {
  void operator()(cgroup* group) const { cgroup_free(&group); }
};
using Group = std::unique_ptr<cgroup, Free>;

// Creates libcgroup's description of a group, with at most one file to write; null if memory is short.
Group describe(const std::string& group, const char* file = nullptr, const std::string& value = {}) {
  Group made(cgroup_new_cgroup(name_of(group)));
  cgroup_controller* memory = made ? cgroup_add_controller(made.get(), kMemory) : nullptr;
  if (memory == nullptr) return nullptr;
  if (file != nullptr && cgroup_add_value_string(memory, file, value.c_str()) != 0) return nullptr;
  return made;
}

Status write_file(const std::string& group, const char* file, const std::string& value) {
  const Group change = describe(group, file, value);
  if (!change) return Status::of_errno(ENOMEM, "control group " + group);
  return status_of(cgroup_modify_cgroup(change.get()), group + "/" + file);
}

}  // namespace

std::string System::group_folder(const std::string& group) const {
  char* mount = nullptr;
  if (!initialize(group).ok() || cgroup_get_subsys_mount_point(kMemory, &mount) != 0) return {};
  const std::string folder = mount + group;
  std::free(mount);
  return folder;
}

Status System::read_group(const std::string& group, const char* file, std::string& text) const {
  text.clear();
  if (Status ready = initialize(group); !ready.ok()) return ready;
  char part[4096];
  void* reading = nullptr;
  std::string name = file;  // libcgroup takes no const char*
  int code = cgroup_read_value_begin(kMemory, name_of(group), name.data(), &reading, part, sizeof part);
  while (code == 0) {
    text += part;
    code = cgroup_read_value_next(&reading, part, sizeof part);
  }
  if (reading != nullptr) cgroup_read_value_end(&reading);
  return code == ECGEOF ? Status() : status_of(code, group + "/" + file);
}

// libcgroup turns on the controller only in the folder directly above the group that it makes. So
// make_group() makes the missing groups from the top down.
Status System::make_group(const std::string& group, const char* file, const std::string& value) const {
  if (Status ready = initialize(group); !ready.ok()) return ready;
  for (std::size_t end = 0; end != std::string::npos;) {
    end = group.find('/', end + 1);
    const std::string above = group.substr(0, end);
    const Group made = describe(above);
    if (!made) return Status::of_errno(ENOMEM, "control group " + above);
    if (Status done = status_of(cgroup_create_cgroup(made.get(), 1), above); !done.ok()) return done;
  }
  Status limited = write_file(group, file, value);
  if (!limited.ok()) static_cast<void>(remove_group(group));
  return limited;
}

Status System::enter_group(const std::string& group, pid_t pid) const {
  if (Status ready = initialize(group); !ready.ok()) return ready;
  return write_file(group, "cgroup.procs", std::to_string(pid));
}

// libcgroup 2.0.2 reports success even if the group is not empty and was not removed.
Status System::remove_group(const std::string& group) const {
  if (Status ready = initialize(group); !ready.ok()) return ready;
  const Group gone = describe(group);
  if (!gone) return Status::of_errno(ENOMEM, "control group " + group);
  if (const int code = cgroup_delete_cgroup_ext(gone.get(), CGFLAG_DELETE_EMPTY_ONLY))
    return status_of(code, group);
  uid_t owner = 0;
  const bool is_left = System::owner_of(System::group_folder(group), owner).ok();
  return is_left ? Status::of_errno(EBUSY, "control group " + group) : Status();
}

}  // namespace sharedgpu
