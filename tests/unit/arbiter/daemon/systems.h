// SPDX-License-Identifier: Apache-2.0
// Replacements of the operating system's calls: RootedSystem, whose /proc and /sys are in a folder of the
// test, and FaultySystem, whose calls fail as the test requests.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arbiter/daemon/system.h"
#include "tests/unit/temporary_folder.h"

namespace sharedgpu::test {

inline const System kHostSystem;

class RootedSystem : public System {
 public:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_.path + path).parent_path());
    std::ofstream(root_.path + path) << text;
  }
  Status read_file(const std::string& path, std::string& text) const override {
    return System::read_file(root_.path + path, text);
  }
  std::optional<std::vector<std::string>> list_folder(const std::string& path,
                                                      std::size_t most) const override {
    return System::list_folder(root_.path + path, most);
  }
  // Owners by path; root owns all other files.
  std::map<std::string, uid_t> owners;
  Status owner_of(const std::string& path, uid_t& owner) const override {
    const Status read = System::owner_of(root_.path + path, owner);
    const auto other = owners.find(path);
    owner = other == owners.end() ? 0 : other->second;
    return read;
  }
  std::string group_folder(const std::string& group) const override {
    for (const char* mount : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
      if (std::filesystem::exists(root_.path + mount + group)) return mount + group;
    return "/sys/fs/cgroup" + group;
  }
  Status read_group(const std::string& group, const char* file, std::string& text) const override {
    return read_file(group_folder(group) + "/" + file, text);
  }

 private:
  TemporaryFolder root_;
};

class FaultySystem : public System {
 public:
  // The errno with which reading a file or folder fails; 0: the host's file is read.
  std::function<int(const std::string& path)> reading = [](const std::string&) { return 0; };
  // Errno with which each kind of call fails; 0: the calls succeed.
  int peers = 0, processes = 0, duplicates = 0, memory_files = 0, signals = 0;
  bool random_numbers = true;
  bool users = true;
  std::optional<Nanoseconds> time;  // if set, now() returns this time

  Nanoseconds now() const override { return time.value_or(System::now()); }

  Status read_file(const std::string& path, std::string& text) const override {
    if (const int error = reading(path)) {
      text.clear();
      return Status::of_errno(error, path);
    }
    return System::read_file(path, text);
  }
  std::optional<std::vector<std::string>> list_folder(const std::string& path,
                                                      std::size_t most) const override {
    if (!succeeds(reading(path))) return std::nullopt;
    return System::list_folder(path, most);
  }
  Status owner_of(const std::string& path, uid_t& owner) const override {
    if (const int error = reading(path)) return Status::of_errno(error, path);
    return System::owner_of(path, owner);
  }
  Status read_group(const std::string& group, const char* file, std::string& text) const override {
    if (const int error = reading(group + "/" + file)) return Status::of_errno(error, group);
    return System::read_group(group, file, text);
  }
  std::vector<ino_t> pid_namespaces(pid_t pid, std::size_t count) const override {
    const bool reads = succeeds(reading("/proc/" + std::to_string(pid) + "/ns/pid"));
    return reads ? System::pid_namespaces(pid, count) : std::vector<ino_t>();
  }
  bool credentials_of(int socket, ucred& credentials) const override {
    return succeeds(peers) && System::credentials_of(socket, credentials);
  }
  UniqueFd open_peer(int socket, pid_t pid) const override {
    return succeeds(processes) ? System::open_peer(socket, pid) : UniqueFd();
  }
  UniqueFd open_process(pid_t pid) const override {
    return succeeds(processes) ? System::open_process(pid) : UniqueFd();
  }
  int send_signal(int pidfd, int number) const override {
    return signals != 0 ? signals : System::send_signal(pidfd, number);
  }
  UniqueFd duplicate(int descriptor) const override {
    return succeeds(duplicates) ? System::duplicate(descriptor) : UniqueFd();
  }
  UniqueFd reopen_to_read(int descriptor) const override {
    return succeeds(memory_files) ? System::reopen_to_read(descriptor) : UniqueFd();
  }
  UniqueFd memory_file(const char* name) const override {
    return succeeds(memory_files) ? System::memory_file(name) : UniqueFd();
  }
  bool random(void* bytes, std::size_t size) const override {
    return random_numbers && System::random(bytes, size);
  }
  std::optional<uid_t> find_user(const std::string& name) const override {
    return users ? System::find_user(name) : std::nullopt;
  }

 protected:
  static bool succeeds(int error) {
    errno = error;
    return error == 0;
  }
};

// A host whose memory control groups are values of this object. The control groups have version 1 or version
// 2.
class GroupsSystem : public FaultySystem {
 public:
  struct Group {
    std::map<std::string, std::string> files;
    uid_t owner = 0;
  };
  mutable std::map<std::string, Group> groups;  // by path
  mutable std::map<pid_t, std::string> places;  // the group of each process; a process without an entry is in
                                                // the root group
  bool is_v2 = false;
  int makes = 0, enters = 0, removals = 0;  // errno values of these calls
  bool is_slow = false;                     // work given to aside() waits for work()
  void work() const {
    for (const auto& each : std::exchange(waiting_, {})) each();
  }

  Status read_file(const std::string& path, std::string& text) const override {
    const bool is_place = path.starts_with("/proc/") && path.ends_with("/cgroup");
    if (!is_place || reading(path) != 0) return FaultySystem::read_file(path, text);
    const auto place = places.find(std::atoi(path.c_str() + 6));
    text = (is_v2 ? "0::" : "4:memory:") + (place == places.end() ? "/" : place->second) + "\n";
    return {};
  }
  std::string group_folder(const std::string& group) const override { return "/groups" + group; }
  Status owner_of(const std::string& path, uid_t& owner) const override {
    if (!path.starts_with("/groups")) return FaultySystem::owner_of(path, owner);
    const auto group = groups.find(path.substr(7));
    if (group == groups.end()) return Status::of_errno(ENOENT, path);
    owner = group->second.owner;
    return {};
  }
  std::optional<std::vector<std::string>> list_folder(const std::string& path,
                                                      std::size_t most) const override {
    if (!path.starts_with("/groups")) return FaultySystem::list_folder(path, most);
    std::vector<std::string> names{"cgroup.procs", "run_", "run_x"};
    for (const auto& [name, group] : groups)
      if (name.starts_with(path.substr(7) + "/")) names.push_back(name.substr(path.size() - 6));
    return names;
  }
  Status read_group(const std::string& path, const char* file, std::string& text) const override {
    if (const int error = reading(path + "/" + file)) return Status::of_errno(error, path);
    const auto group = groups.find(path);
    if (group == groups.end() || group->second.files.count(file) == 0) return Status::of_errno(ENOENT, path);
    text = group->second.files.at(file);
    return {};
  }
  Status make_group(const std::string& path, const char* file, const std::string& value) const override {
    if (makes != 0) return Status::of_errno(makes, path);
    groups[path].files[file] = value;
    return {};
  }
  Status enter_group(const std::string& path, pid_t pid) const override {
    if (enters != 0) return Status::of_errno(enters, path);
    if (groups.count(path) == 0) return Status::of_errno(ENOENT, path);
    places[pid] = path;
    return {};
  }
  Status remove_group(const std::string& path) const override {
    if (removals != 0) return Status::of_errno(removals, path);
    for (const auto& [pid, place] : places)
      if (place == path) return Status::of_errno(EBUSY, path);
    groups.erase(path);
    return {};
  }
  std::unique_ptr<Aside> aside() const override { return std::make_unique<Waiting>(*this); }

 private:
  struct Waiting : Aside {
    explicit Waiting(const GroupsSystem& system) : its(system) {}
    ~Waiting() override { its.waiting_.clear(); }
    void run(std::function<void()> work) override {
      its.waiting_.push_back(std::move(work));
      if (!its.is_slow) its.work();
    }
    const GroupsSystem& its;
  };
  mutable std::vector<std::function<void()>> waiting_;
};

}  // namespace sharedgpu::test
