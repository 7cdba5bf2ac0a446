// SPDX-License-Identifier: Apache-2.0
// The outcome of an operation that can fail: success, or a code for programs and a message for people. A
// value; without exceptions.
#pragma once

#include <cstring>
#include <string>
#include <utility>

namespace sharedgpu {

class [[nodiscard]] Status {
 public:
  // Success.
  Status() = default;
  // A failure. `code` is an errno value and not 0; where no call has failed, the one that comes nearest, as
  // EINVAL for a wrong input. `message` names what failed, as "/var/lib/x: No space left on device".
  Status(int code, std::string message) : code_(code), message_(std::move(message)) {}
  // A call that concerns `subject` has failed with this errno value.
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
