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

namespace sharedgpu::exporter {
namespace {

bool write_whole(int file, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return fchmod(file, 0644) == 0;
}

}  // namespace

std::string text_of(const std::vector<prometheus::MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

std::string write_text_file(const std::string& path, const std::string& text) {
  std::string temporary = path + ".XXXXXX";
  const UniqueFd file(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) return path + ": " + std::strerror(errno);
  if (write_whole(file.get(), text) && rename(temporary.c_str(), path.c_str()) == 0) return {};
  const int error = errno;
  unlink(temporary.c_str());
  return path + ": " + std::strerror(error);
}

}  // namespace sharedgpu::exporter
