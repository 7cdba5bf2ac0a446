// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/traces.h"

#include <unistd.h>

#include <clocale>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <set>
#include <string>

namespace sharedgpu::programs {
namespace {

// Prints the lines of a file that begin with one of `beginnings`.
void print_lines(std::ostream& out, const char* path, std::initializer_list<const char*> beginnings) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    for (const char* beginning : beginnings)
      if (line.rfind(beginning, 0) == 0) out << line << "\n";
}

}  // namespace

void print_traces(std::ostream& out) {
  std::error_code ignored;
  // Descriptors and threads are listed first, since printing opens further files.
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    auto target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (!ignored && target.find("/proc/") != 0) files.insert(entry.path().filename().string() + " " + target);
  }
  std::multiset<std::string> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    threads.insert(name);
  }
  out << "maps\n" << std::ifstream("/proc/self/maps").rdbuf() << "files\n";
  for (const std::string& file : files) out << file << "\n";
  out << "process\n";
  print_lines(out, "/proc/self/status", {"Umask", "Sig", "Shd", "Uid", "Gid", "Seccomp", "NoNewPrivs"});
  print_lines(out, "/proc/self/limits", {"Max"});
  out << "locale " << std::setlocale(LC_ALL, nullptr) << "\n";
  out << "nice " << nice(0) << "\nfolder " << std::filesystem::current_path(ignored).string() << "\n";
  out << "threads\n";
  for (const std::string& thread : threads) out << thread << "\n";
  out << "environment\n";
  for (char** variable = environ; *variable != nullptr; ++variable) out << *variable << "\n";
}

}  // namespace sharedgpu::programs
