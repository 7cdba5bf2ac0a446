// SPDX-License-Identifier: Apache-2.0
// Stand-ins for the operating system: one whose /proc and /sys lie in a folder of the test, and one whose
// calls fail as set by the test.
#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "../temporary_folder.h"
#include "arbiter/daemon/system.h"

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
  // Root owns all files but these.
  std::map<std::string, uid_t> owners;
  Status owner_of(const std::string& path, uid_t& owner) const override {
    const Status read = System::owner_of(root_.path + path, owner);
    const auto other = owners.find(path);
    owner = other == owners.end() ? 0 : other->second;
    return read;
  }

 private:
  TemporaryFolder root_;
};

class FaultySystem : public System {
 public:
  // The errno value of reading a file or folder; 0: as on the host.
  std::function<int(const std::string& path)> reading = [](const std::string&) { return 0; };
  // These calls fail with this errno value unless it is 0.
  int peers = 0, processes = 0, duplicates = 0, memory_files = 0, signals = 0;
  bool random_numbers = true;
  bool users = true;
  std::optional<Nanoseconds> time;  // if set, the time in place of the clock

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

 private:
  static bool succeeds(int error) {
    errno = error;
    return error == 0;
  }
};

}  // namespace sharedgpu::test
