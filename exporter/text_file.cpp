// SPDX-License-Identifier: Apache-2.0
#include "exporter/text_file.h"

#include <fcntl.h>
#include <prometheus/text_serializer.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "protocol/channel.h"
#include "protocol/write_all.h"

namespace sharedgpu::exporter {

std::string text_of(const std::vector<prometheus::MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

std::string write_text_file(const std::string& path, const std::string& text) {
  std::string temporary = path + ".XXXXXX";
  const UniqueFd file(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) return path + ": " + std::strerror(errno);
  if (write_all(file.get(), text.data(), text.size()) && fchmod(file.get(), 0644) == 0 &&
      rename(temporary.c_str(), path.c_str()) == 0)
    return {};
  const int error = errno;
  unlink(temporary.c_str());
  return path + ": " + std::strerror(error);
}

}  // namespace sharedgpu::exporter
