// SPDX-License-Identifier: Apache-2.0
#include "spank/job_class.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "protocol/channel.h"
#include "spank/plugin.h"

namespace sharedgpu {
namespace {

std::string folder_of(const Settings& settings) {
  return std::filesystem::path(settings.socket).parent_path().string() + "/jobs";
}

std::string file_of(const Settings& settings, std::uint32_t job) {
  return folder_of(settings) + "/" + std::to_string(job);
}

// Returns a dash in place of a name that no section of sharedgpu.conf can have, because it is empty, is too
// long, or has a blank or a character outside printable ASCII.
std::string name_or_none(const char* name) {
  if (name == nullptr || *name == '\0' || std::strlen(name) > JobClass::kLongest) return "-";
  const bool whole = std::all_of(name, name + std::strlen(name), [](char c) { return c > ' ' && c <= '~'; });
  return whole ? name : "-";
}

bool any_about_qos(const Settings& settings) {
  return std::any_of(settings.sections.begin(), settings.sections.end(),
                     [](const Section& section) { return section.of == SectionOf::qos; });
}

// The first line that squeue prints; empty on failure. Slurm waits for the prolog, so the timeout is short.
std::string ask_squeue(std::uint32_t job, const std::vector<std::string>& environment) {
  for (const std::string& entry : environment)
    if (entry.starts_with("PATH=")) setenv("PATH", entry.c_str() + std::strlen("PATH="), 1);
  const std::string command = "exec timeout 10 squeue --noheader --format=%q --jobs=" + std::to_string(job);
  std::FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return {};
  char line[256] = {};
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  if (pclose(pipe) != 0 || !read) return {};
  return std::string(line, std::strcspn(line, "\n"));
}

// If slurmd is killed, a job may end without an epilog, and the file with the job's class stays. So each
// prolog removes the files of jobs that have started no step for kLong.
void forget_old_jobs(const std::string& folder) {
  constexpr std::chrono::hours kLong{24 * 30};
  const auto oldest = std::filesystem::file_time_type::clock::now() - kLong;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code its;
    if (it->last_write_time(its) < oldest && !its) std::filesystem::remove(it->path(), its);
  }
}

}  // namespace

void keep_job_class(const Settings& settings, std::uint32_t job,
                    const std::vector<std::string>& environment) {
  const char* told = std::getenv("SLURM_JOB_QOS");
  std::string qos = told != nullptr ? told : "";
  if (qos.empty() && any_about_qos(settings)) {
    qos = ask_squeue(job, environment);
    if (qos.empty())
      log_error("job " + std::to_string(job) + ": its QOS is not known; no [qos] section applies to it");
  }
  const char* restarts = std::getenv("SLURM_JOB_RESTART_COUNT");
  const std::string text = name_or_none(std::getenv("SLURM_JOB_PARTITION")) + " " +
                           name_or_none(qos.c_str()) + " " + (restarts == nullptr ? "0" : restarts) + "\n";
  const std::string folder = folder_of(settings);
  const std::string path = file_of(settings, job);
  // Also creates the parent folder. The arbiter normally creates it, but the arbiter may still be starting.
  std::error_code error;  // not used: mkdir() below fails if there is no parent folder
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return log_error(folder + ": " + std::strerror(errno));
  forget_old_jobs(folder);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    log_error(path + ": " + std::strerror(errno) +
              "; no [partition] or [qos] section of sharedgpu.conf applies to the job");
}

JobClass read_job_class(const Settings& settings, std::uint32_t job) {
  const std::string path = file_of(settings, job);
  utimensat(AT_FDCWD, path.c_str(), nullptr,
            AT_SYMLINK_NOFOLLOW);  // updates the time of the file, so that no prolog removes it while the job
                                   // starts steps
  std::ifstream file(path);
  std::string partition;
  std::string qos;
  JobClass job_class;
  if (!(file >> partition >> qos >> job_class.restarts)) return {};
  if (partition != "-") partition.copy(job_class.partition, JobClass::kLongest);
  if (qos != "-") qos.copy(job_class.qos, JobClass::kLongest);
  return job_class;
}

void forget_job_class(const Settings& settings, std::uint32_t job) { unlink(file_of(settings, job).c_str()); }

}  // namespace sharedgpu
