// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/mount_point.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

using nlohmann::json;

constexpr int kMostLinks = 40;  // the kernel's limit

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool has_option(const json& mount, std::string_view option) {
  const auto options = mount.find("options");
  if (options == mount.end() || !options->is_array()) return false;
  return std::find(options->begin(), options->end(), option) != options->end();
}

std::string below(const std::string& folder, const std::string& path) {
  return path.starts_with('/') || folder.empty() ? path : folder + "/" + path;
}

std::deque<std::string> names_in(const std::string& path) {
  std::deque<std::string> names;
  for (const std::string_view name : split(path, '/'))
    if (!name.empty() && name != ".") names.emplace_back(name);
  return names;
}

// Normalises the path of a mount: no empty names, no ".", no slash at the end.
std::string normal(const std::string& path) {
  std::string text;
  for (const std::string& name : names_in(path)) text += "/" + name;
  return text;
}

std::string destination_of(const json& mount) {
  return mount.is_object() ? normal(text_of(mount, "destination")) : "";
}

// Returns true if the container's user namespace maps `owner`, so that root in the container may do
// everything in a folder of this owner.
bool is_mapped(const json& spec, const char* mappings, std::uint64_t owner) {
  const auto linux_part = spec.find("linux");
  if (linux_part == spec.end() || !linux_part->is_object()) return false;
  const auto list = linux_part->find(mappings);
  if (list == linux_part->end() || !list->is_array()) return false;
  const auto number = [](const json& range, const char* name) {
    const auto found = range.find(name);
    return found != range.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
  };
  return std::any_of(list->begin(), list->end(), [&](const json& range) {
    if (!range.is_object() || !range.contains("hostID")) return false;
    const std::uint64_t first = number(range, "hostID");
    return owner >= first && owner - first < number(range, "size");
  });
}

std::string obstacle_in(const std::string& folder, const json& spec) {
  if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
  const int error = errno;
  struct stat info = {};
  if (error == EACCES && stat(folder.c_str(), &info) == 0 && is_mapped(spec, "uidMappings", info.st_uid) &&
      is_mapped(spec, "gidMappings", info.st_gid))
    return {};
  return std::strerror(error);
}

// Resolves a path as processes of a container with the root folder `root` do: no link leads out of `root`.
class Walk {
 public:
  Walk(std::string root, const std::string& path) : root_(std::move(root)), ahead_(names_in(path)) {}

  enum class End { folder, missing, unknown, failure };
  // Walks to the end of the path, or to the first name that is not a folder.
  End go() {
    while (!ahead_.empty()) {
      const std::string name = std::move(ahead_.front());
      ahead_.pop_front();
      const bool is_linked = linked_ > 0;
      if (is_linked) --linked_;
      if (name == "..") {
        if (!passed_.empty()) passed_.pop_back();
        continue;
      }
      passed_.push_back(name);
      struct stat info = {};
      if (lstat(at().c_str(), &info) != 0) {
        if (errno == EACCES) return End::unknown;
        if (errno != ENOENT || is_linked) return fail(errno);
        return End::missing;
      }
      if (S_ISLNK(info.st_mode)) {
        if (!follow()) return End::failure;
      } else if (!S_ISDIR(info.st_mode)) {
        return fail(ENOTDIR);
      }
    }
    return End::folder;
  }
  std::string at() const { return folder() + (passed_.empty() ? "" : "/" + passed_.back()); }
  // The folder that contains at().
  std::string folder() const {
    std::string path = root_;
    for (std::size_t i = 0; i + 1 < passed_.size(); ++i) path += "/" + passed_[i];
    return path;
  }
  std::string failure() const { return failure_; }

 private:
  End fail(int error) {
    failure_ = at() + ": " + std::strerror(error);
    return End::failure;
  }
  bool follow() {
    char target[PATH_MAX] = {};
    if (++links_ > kMostLinks) return fail(ELOOP), false;
    if (readlink(at().c_str(), target, sizeof target - 1) < 0) return fail(errno), false;
    passed_.pop_back();
    if (*target == '/') passed_.clear();
    const std::deque<std::string> names = names_in(target);
    ahead_.insert(ahead_.begin(), names.begin(), names.end());
    linked_ += names.size();
    return true;
  }

  const std::string root_;
  std::deque<std::string> ahead_;
  std::vector<std::string> passed_;
  std::size_t linked_ = 0;  // number of names at the front of `ahead_` that come from symbolic links
  int links_ = 0;
  std::string failure_;
};

}  // namespace

bool is_mounted_at(const json& mount, const std::string& folder) {
  return destination_of(mount) == normal(folder);
}

std::optional<MountPlace> mount_place(const json& spec, const std::string& folder,
                                      const std::string& bundle) {
  if (!spec.is_object()) return {};
  MountPlace place{.root = {}, .path = folder};
  if (const auto root = spec.find("root"); root != spec.end() && root->is_object())
    place.root = below(bundle, text_of(*root, "path"));
  bool is_known = place.root.starts_with('/');
  if (const auto mounts = spec.find("mounts"); mounts != spec.end() && mounts->is_array())
    for (const json& mount : *mounts) {
      if (is_mounted_at(mount, folder)) return {};
      const std::string above = destination_of(mount);
      if (above.empty() || !folder.starts_with(above + "/")) continue;
      const bool is_bind = has_option(mount, "bind") || has_option(mount, "rbind");
      const bool is_new = text_of(mount, "type") == "tmpfs";
      place.root = is_bind ? below(bundle, text_of(mount, "source")) : "";
      is_known = is_new || place.root.starts_with('/');
      place.path = folder.substr(above.size());
      place.may_create = is_new && !has_option(mount, "ro");
    }
  return is_known ? std::optional(place) : std::nullopt;
}

std::string obstacle_at(const MountPlace& place, const json& spec) {
  if (place.root.empty()) return place.may_create ? "" : "it is in a read-only file system";
  const std::unique_ptr<char, decltype(&std::free)> root(realpath(place.root.c_str(), nullptr), std::free);
  if (!root) return {};
  Walk walk(root.get(), place.path);
  switch (walk.go()) {
    case Walk::End::folder:
    case Walk::End::unknown:
      return {};
    case Walk::End::failure:
      return walk.failure();
    case Walk::End::missing:
      break;
  }
  if (!place.may_create) return "it is missing in " + place.root;
  const std::string obstacle = obstacle_in(walk.folder(), spec);
  return obstacle.empty() ? "" : walk.at() + ": cannot be created: " + obstacle;
}

}  // namespace sharedgpu::cli
