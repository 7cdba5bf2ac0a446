// SPDX-License-Identifier: Apache-2.0
// Tells before a container is created whether its runtime can mount a folder there. A runtime starts no
// container at all if a mount fails. Reads the container's image, and changes nothing.
//
// An image may come from anyone. So these functions follow no symbolic link out of the image, and throw no
// exception, whatever the image contains.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace sharedgpu::cli {

// Returns true if `mount`, an entry of the configuration's "mounts", is at this path.
bool is_mounted_at(const nlohmann::json& mount, const std::string& folder);

// The file system in which a mount at a certain path of a container will be: the image, or another mount of
// the container.
struct MountPlace {
  std::string root;        // a folder of the host; empty: a new file system
  std::string path;        // the path of the mount below `root`
  bool may_create = true;  // the runtime may create missing folders there
};

// Finds the place of `folder`, an absolute path in the container with the configuration `spec`. `bundle` is
// the folder to which paths in `spec` are relative; empty: unknown. Returns nullopt if the configuration
// states a mount at `folder` itself, or does not say where the image is. Pure.
std::optional<MountPlace> mount_place(const nlohmann::json& spec, const std::string& folder,
                                      const std::string& bundle);

// Returns an empty string if a folder can be mounted at the place, or if these functions cannot find out.
// Otherwise returns the reason why not. `spec` tells which users the container has.
std::string obstacle_at(const MountPlace& place, const nlohmann::json& spec);

}  // namespace sharedgpu::cli
