// SPDX-License-Identifier: Apache-2.0
// Before a container is created, checks whether the container runtime can mount a folder at a path in the
// container. If a mount fails, the runtime starts no container at all. The check reads the container's image,
// and changes nothing.
//
// An image may come from anyone. So these functions follow no symbolic link out of the image, and throw no
// exception, whatever the image contains.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace sharedgpu::cli {

// Returns true if `mount`, an entry of the configuration's "mounts", has `folder` as its destination.
bool is_mounted_at(const nlohmann::json& mount, const std::string& folder);

// The position of a mount point in a file system: in the image, or in another mount of the container.
struct MountPlace {
  std::string root;        // the root of the file system, a folder of the host; empty: a new file system
  std::string path;        // the path of the mount point below `root`
  bool may_create = true;  // the runtime may create missing folders below `root`
};

// Finds the mount point for `folder`, an absolute path in the container with the configuration `spec`.
// `bundle` is the folder to which paths in `spec` are relative; empty: unknown. Returns nullopt if the
// configuration states a mount at `folder` itself, or does not say where the image is. Pure.
std::optional<MountPlace> mount_place(const nlohmann::json& spec, const std::string& folder,
                                      const std::string& bundle);

// Returns the reason why a folder cannot be mounted at `place`, or an empty string if it can be mounted or no
// reason is known. `spec` is the configuration of the container; its user mappings matter.
std::string obstacle_at(const MountPlace& place, const nlohmann::json& spec);

}  // namespace sharedgpu::cli
