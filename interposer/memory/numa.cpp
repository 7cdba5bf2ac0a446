// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/numa.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

namespace sharedgpu {

std::optional<unsigned> numa_node_of(const PciAddress& address, const std::string& root) {
  char name[64];
  std::snprintf(name, sizeof name, "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node", address.domain,
                address.bus, address.device);
  const int fd = open((root + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char text[16];
  const ssize_t got = read(fd, text, sizeof text);
  close(fd);
  unsigned node = 0;  // "-1" is rejected
  if (got <= 0 || std::from_chars(text, text + got, node).ec != std::errc{}) return std::nullopt;
  return node;
}

}  // namespace sharedgpu
