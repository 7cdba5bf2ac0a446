// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/board.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

namespace sharedgpu::simgpu {
namespace {

// The request to the board, and the board's answer. In the answer, `size` is the number of allocated bytes:
// the requested size, or 0.
struct Part {
  static constexpr MessageType kType = MessageType::invalid;
  std::uint64_t offset = 0;
  Bytes size;
};

constexpr Nanoseconds kPatience = std::chrono::seconds(60);

}  // namespace

bool take_on_board(const std::string& socket, int file, std::uint64_t offset, Bytes size) {
  Channel channel;
  Message answer;
  UniqueFd none;
  return channel.connect(socket.c_str()) == 0 &&
         channel.send(Message::of(Part{.offset = offset, .size = size}), file) == 0 &&
         channel.wait(kPatience) == 0 && channel.receive(answer, none) == 0 && answer.as<Part>().size == size;
}

int serve_board(const std::string& socket) {
  UniqueFd listening;
  if (int error = listen_at(socket.c_str(), listening)) return error;
  for (;;) {
    Channel peer(UniqueFd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    if (!peer) return errno;
    Message message;
    UniqueFd file;
    if (peer.wait(kPatience) != 0 || peer.receive(message, file) != 0 || !file) continue;
    Part part = message.as<Part>();
    if (fallocate(file.get(), 0, static_cast<off_t>(part.offset), static_cast<off_t>(part.size.count)) != 0)
      part.size = {};
    peer.send(Message::of(part));
  }
}

}  // namespace sharedgpu::simgpu
