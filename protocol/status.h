// SPDX-License-Identifier: Apache-2.0
// The outcome of an operation that can fail: success, or an error code for programs and an error message for
// people. A value type; no exceptions.
#pragma once

#include <cstring>
#include <string>
#include <utility>

namespace sharedgpu {

class [[nodiscard]] Status {
 public:
  // Success.
  Status() = default;
  // A failure. `code` is a nonzero errno value. If no system call failed, it is the value with the nearest
  // meaning, such as EINVAL for wrong input. `message` states the object and the error: "/var/lib/x: No space
  // left on device".
  Status(int code, std::string message) : code_(code), message_(std::move(message)) {}
  // A failure with this errno value that concerns `subject`: a path, a system call or another object.
  static Status of_errno(int error, const std::string& subject) {
    return {error, subject + ": " + std::strerror(error)};
  }

  bool ok() const { return code_ == 0; }
  int code() const { return code_; }                       // 0 for success
  const std::string& message() const { return message_; }  // empty for success

 private:
  int code_ = 0;
  std::string message_;
};

}  // namespace sharedgpu
