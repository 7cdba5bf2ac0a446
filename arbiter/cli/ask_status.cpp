// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/ask_status.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "protocol/ask.h"

namespace sharedgpu::cli {
namespace {

constexpr int kMostQuestions = 5;

// Reads `size` bytes of the file. Returns false if the file is shorter, because the arbiter has emptied it.
bool read_answer(int file, std::size_t size, std::string& text) {
  struct stat info = {};
  if (fstat(file, &info) != 0 || static_cast<std::size_t>(info.st_size) < size) return false;
  text.resize(size);
  for (std::size_t done = 0; done < size;) {
    const ssize_t read = pread(file, text.data() + done, size - done, static_cast<off_t>(done));
    if (read <= 0) return false;
    done += static_cast<std::size_t>(read);
  }
  return true;
}

}  // namespace

std::string ask_status(const std::string& socket, Nanoseconds patience, std::string& text) {
  Channel channel;
  if (int error = channel.connect(socket.c_str(), patience))
    return "no arbiter at " + socket + ": " + std::strerror(error);
  for (int i = 0; i < kMostQuestions; ++i) {
    Message message;
    UniqueFd fd;
    if (int error = ask(channel, Message::of(StatusQuery{}), patience, message, fd))
      return "the arbiter at " + socket + " does not answer: " + std::strerror(error);
    const auto size = static_cast<std::size_t>(message.as<StatusReply>().size);
    if (message.type != MessageType::status_reply || !fd || size == 0) break;
    if (read_answer(fd.get(), size, text)) return {};
  }
  return "the arbiter at " + socket + " sent a reply that is not understood";
}

}  // namespace sharedgpu::cli
