// SPDX-License-Identifier: Apache-2.0
#include "protocol/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "protocol/channel.h"
#include "protocol/write_all.h"

namespace sharedgpu {

Status replace_file(const std::string& path, std::string_view text, Durable durable) {
  const std::string unfinished = path + ".new";
  unlink(unfinished.c_str());  // a process that has died may have left this file
  UniqueFd file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool is_written = file && write_all(file.get(), text.data(), text.size()) &&
                          (durable == Durable::no || fsync(file.get()) == 0) && close(file.release()) == 0;
  if (!is_written || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    Status failed = Status::of_errno(errno, path);
    unlink(unfinished.c_str());
    return failed;
  }
  if (durable == Durable::yes) {
    const UniqueFd folder(
        open(path.substr(0, path.rfind('/') + 1).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder) fsync(folder.get());
  }
  return {};
}

}  // namespace sharedgpu
