// SPDX-License-Identifier: Apache-2.0
// Images that prevent a container runtime from mounting a folder.
#include "arbiter/cli/mount_point.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/temporary_folder.h"

namespace sharedgpu::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr char kFolder[] = "/run/sharedgpu";

struct Image : test::TemporaryFolder {
  json spec = {{"root", {{"path", path}}}, {"mounts", json::array()}};

  void folder(const std::string& name) { fs::create_directories(path + name); }
  void file(const std::string& name) { std::ofstream(path + name) << "x"; }
  void link(const std::string& target, const std::string& name) { fs::create_symlink(target, path + name); }
  void mount(json mount) { spec["mounts"].push_back(std::move(mount)); }
  std::string obstacle(const std::string& bundle = "") const {
    const auto place = mount_place(spec, kFolder, bundle);
    return place ? obstacle_at(*place, spec) : "nothing is known";
  }
};

TEST_CASE("A folder can be mounted where the image has it, or where it can be created") {
  Image image;
  CHECK(image.obstacle().empty());
  image.folder("/run");
  CHECK(image.obstacle().empty());
  image.folder(kFolder);
  CHECK(image.obstacle().empty());
  CHECK(fs::is_empty(image.path + kFolder));
}

TEST_CASE("Symbolic links of an image are followed inside of the image") {
  Image image;
  SECTION("a relative link") {
    image.folder("/var/run");
    image.link("var/run", "/run");
  }
  SECTION("an absolute link") {
    image.folder("/var/run/sharedgpu");
    image.link("/var/run", "/run");
  }
  SECTION("a link that leads out of a folder") {
    image.folder("/var/run");
    image.link("../../../../var/run", "/run");
  }
  SECTION("a link to a link") {
    image.folder("/a");
    image.link("/a", "/b");
    image.link("b/.", "/run");
  }
  CHECK(image.obstacle().empty());
}

TEST_CASE("Nothing is mounted into an image whose links or files are in the way") {
  Image image;
  std::string reason;
  SECTION("a link to a folder that only the host has") {
    image.link(image.path, "/run");
    reason = "No such file or directory";
  }
  SECTION("a link to nothing at the folder itself") {
    image.folder("/run");
    image.link("/nothing", kFolder);
    reason = "No such file or directory";
  }
  SECTION("a loop") {
    image.link("run", "/run");
    reason = "Too many levels of symbolic links";
  }
  SECTION("a file above the folder") {
    image.file("/run");
    reason = "Not a directory";
  }
  SECTION("a file at the folder") {
    image.folder("/run");
    image.file(kFolder);
    reason = "Not a directory";
  }
  INFO(image.obstacle());
  CHECK(image.obstacle().starts_with(image.path + "/"));
  CHECK(image.obstacle().ends_with(": " + reason));
}

TEST_CASE("A folder of a user of the container can be written to by the container's root") {
  if (geteuid() != 0) return;  // only root can become other users
  Image image;
  image.folder("/run");
  REQUIRE(chown((image.path + "/run").c_str(), 4001, 4001) == 0);
  REQUIRE(chmod(image.path.c_str(), 0755) == 0);
  const auto as_user = [&](const json& linux_part) {
    REQUIRE(setresuid(4000, 4000, 0) == 0);
    image.spec["linux"] = linux_part;
    const std::string obstacle = image.obstacle();
    REQUIRE(setresuid(0, 0, 0) == 0);
    return obstacle;
  };
  const json range = {{"containerID", 0}, {"hostID", 4000u}, {"size", 2u}};
  CHECK(as_user({}) == image.path + "/run/sharedgpu: cannot be created: Permission denied");
  CHECK(as_user({{"uidMappings", {range}}, {"gidMappings", {range}}}).empty());
  CHECK_FALSE(as_user({{"uidMappings", {range}}}).empty());
  const json other = {{"hostID", 4000u}, {"size", 1u}};
  CHECK_FALSE(as_user({{"uidMappings", {other}}, {"gidMappings", {other}}}).empty());
  CHECK_FALSE(as_user({{"uidMappings", 1}, {"gidMappings", {1, json::object()}}}).empty());
}

TEST_CASE("Below a mount of the user, nothing is created") {
  Image image;
  test::TemporaryFolder users;
  image.mount({{"destination", "/run/"}, {"type", "bind"}, {"source", users.path}, {"options", {"rbind"}}});
  CHECK(image.obstacle() == "it is missing in " + users.path);
  CHECK(fs::is_empty(users.path));
  fs::create_directories(users.path + "/sharedgpu");
  CHECK(image.obstacle().empty());
}

TEST_CASE("The last mount above the folder counts") {
  Image image;
  image.file("/run");
  CHECK_FALSE(image.obstacle().empty());
  image.mount({{"destination", "/run"}, {"type", "bind"}, {"source", "/"}, {"options", {"bind"}}});
  CHECK(image.obstacle() == "it is missing in /");
  image.mount({{"destination", "/run"}, {"type", "tmpfs"}});
  CHECK(image.obstacle().empty());
  image.mount({{"destination", "/runs"}, {"type", "tmpfs"}, {"options", {"ro"}}});
  CHECK(image.obstacle().empty());
  image.mount({{"destination", "/run"}, {"type", "tmpfs"}, {"options", {"ro"}}});
  CHECK(image.obstacle() == "it is in a read-only file system");
}

TEST_CASE("A mount that the user states at the folder itself stays") {
  Image image;
  image.file("/run");
  image.mount({{"destination", "/run/sharedgpu/"}, {"source", "/mine"}});
  CHECK(image.obstacle() == "nothing is known");
}

TEST_CASE("Paths of a configuration are relative to its bundle") {
  Image image;
  image.folder("/rootfs");
  image.file("/rootfs/run");
  image.spec["root"]["path"] = "rootfs";
  CHECK(image.obstacle(image.path).starts_with(image.path + "/rootfs/run"));
  CHECK(image.obstacle() == "nothing is known");
}

TEST_CASE("If the image cannot be found, there is no obstacle") {
  CHECK_FALSE(mount_place(json(1), kFolder, "/b").has_value());
  CHECK_FALSE(mount_place(json::object(), kFolder, "").has_value());
  CHECK_FALSE(mount_place({{"root", 1}, {"mounts", {{"a", 1}}}}, kFolder, "").has_value());
  Image image;
  image.spec["root"]["path"] = "/missing/image";
  CHECK(image.obstacle().empty());
}

}  // namespace
}  // namespace sharedgpu::cli
