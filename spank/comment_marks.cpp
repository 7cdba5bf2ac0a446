// SPDX-License-Identifier: Apache-2.0
#include "spank/comment_marks.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "slurm_shared/siblings.h"
#include "spank/supervisor.h"

namespace sharedgpu {
namespace {

std::string folder_of(const Settings& settings) { return settings.state_dir + "/comments"; }

std::string mark_of(const Settings& settings, std::uint32_t job) {
  return folder_of(settings) + "/" + std::to_string(job);
}

bool is_installed() { return access(comment_path().c_str(), X_OK) == 0; }

}  // namespace

void mark_job(const Settings& settings, std::uint32_t job, bool begins) {
  if (settings.comments == AdminComment::no || !is_installed()) return;
  const std::string folder = folder_of(settings);
  const std::string mark = mark_of(settings, job);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return log_error(folder + ": " + std::strerror(errno) + "; the job's AdminComment will not be written");
  const UniqueFd file(open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return log_error(mark + ": " + std::strerror(errno));
  if (begins) futimens(file.get(), nullptr);
}

bool has_mark(const Settings& settings, std::uint32_t job) {
  return access(mark_of(settings, job).c_str(), F_OK) == 0;
}

bool has_marks(const Settings& settings) {
  DIR* folder = opendir(folder_of(settings).c_str());
  if (folder == nullptr) return false;
  bool any = false;
  while (const dirent* entry = readdir(folder))
    any = any || (entry->d_name[0] >= '0' && entry->d_name[0] <= '9');
  closedir(folder);
  return any;
}

void start_comment(const Configuration& configuration, std::uint32_t ended,
                   std::vector<std::string> environment) {
  if (!configuration.good || configuration.settings.comments == AdminComment::no || !is_installed()) return;
  std::vector<std::string> words = {comment_path()};
  if (!configuration.arguments.config.empty())
    words.insert(words.end(), {"--config", configuration.arguments.config});
  if (ended != 0) words.insert(words.end(), {"--ended", std::to_string(ended)});
  // Slurm passes the path of its slurm.conf to its scripts.
  const auto names_conf = [](const std::string& entry) { return entry.starts_with("SLURM_CONF="); };
  const char* conf = std::getenv("SLURM_CONF");
  if (conf != nullptr && std::none_of(environment.begin(), environment.end(), names_conf))
    environment.push_back(std::string("SLURM_CONF=") + conf);
  const std::string problem = start_daemon(words, environment);
  if (!problem.empty()) log_error("AdminComments are not written: " + problem);
}

}  // namespace sharedgpu
