// SPDX-License-Identifier: Apache-2.0
// The bytes of a fuzzer's input as numbers. After the end of the input, all bytes are zero.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu::fuzz {

// If the condition is false, prints the message and aborts; libFuzzer then writes the input to a file.
inline void require(bool good, const char* wrong) {
  if (good) return;
  std::fprintf(stderr, "wrong: %s\n", wrong);
  std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  unsigned below(unsigned bound) { return byte() % bound; }
  bool one_in(unsigned bound) { return below(bound) == bound - 1; }
  template <class Array>
  const auto& one_of(const Array& array) {
    return array[below(static_cast<unsigned>(std::size(array)))];
  }
  // Returns arbitrary bytes; zeros after the end of the input.
  void fill(void* bytes, std::size_t size) {
    const std::size_t given = std::min(size, left_);
    std::memset(bytes, 0, size);
    std::memcpy(bytes, data_, given);
    data_ += given;
    left_ -= given;
  }
  // Returns a few GiB at most: the daemon refuses larger sizes and does not pass them to the core.
  Bytes size() {
    const std::uint64_t digits = byte();
    return {digits << below(25)};
  }
  MemoryUse use() {
    return {.swappable = size(),
            .resident = size(),
            .pinned = size(),
            .context = size(),
            .host = size(),
            .settling = size(),
            .host_limit = size()};
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace sharedgpu::fuzz
